"""Recurrent layers on a GPU, all steps of which are one launch (planning/recurrences.py).

    %y, %h = call @kitsune_recurrent0(%x, %w, %b, %h0)

A cluster of CTAs has some rows of a direction's batch. Each CTA has some columns of the state, and their weights in its
shared memory, column by column, and the whole state twice, in turn: as it was before a step, and as it will be.

    loads what inputs make of the gates of its elements in the next step
    sums of a slice of the state by a column of the weights, for each thread; all sums go to shared memory;  barrier
    each element's new state and cell, of the sums of all slices; the state goes to all CTAs of the cluster
    waits until all of the new state has come;  stores the elements of the result

A CTA that is alone meets itself. Sums are of f32, and states in f32, rounded as results are. What is behind the last
row or column is computed as well, of others' numbers, and not written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import reduce
from math import prod

from kitsune_mlir import example_sizes
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.generics import extended
from kitsune_mlir.mlir import arith, func, gpu, ir, location, math, memref, scf
from kitsune_mlir.planning.recurrences import READ_AHEAD, STATIC, Layer, Shares, choose
from kitsune_mlir.planning.target import Target

from .cpu_build import each
from .gpu_kernel import Kernel, Kernels, See, Size, as_value, ceildiv, extent, on_host, only_if, product
from .hopper import cluster
from .pipeline.device import below, i64, narrow, when
from .pipeline.memory import narrowed
from .recurrent import Recurrent, recurrent, stepped
from .shared_parts import SharedPart

_TOGETHER = 8  # weights that a thread loads before it stores the first
_UNKNOWN = 64  # rows, or steps, where no example says how many


def lower_recurrent(module: ir.Module, main: func.FuncOp, kernels: Kernels, target: Target) -> None:
    """Puts kernels' launches in the place of the calls."""
    for layer in recurrent(module):
        if layer.call.block == main.body.blocks[0]:
            _lower(layer, kernels, target)


def _lower(of: Recurrent, kernels: Kernels, target: Target) -> None:
    op, sizes = of.call, example_sizes.shape_of(of.given)
    rows, steps = (_UNKNOWN if size is None else size for size in (sizes[1 - of.time], sizes[of.time]))
    layer = Layer(rows, of.directions, steps, of.width, of.gates, of.element.width // 8)
    own = choose(layer, target)
    if own is None:
        raise UnsupportedError(f"{location(op.location)}: a recurrent layer of {of.width} columns on {target.name}")
    with op.context, op.location, ir.InsertionPoint(op):
        results = [_result(of, number) for number in range(len(op.results))]
    kernel = Kernel(kernels, op, "recurrent", own.threads)
    kernel.in_clusters(own.cluster)
    kernel.priced(own.microseconds)
    with kernel.body():
        _Code(kernel, of, own, results).build()
    kernel.launch(lambda: product([ceildiv(_rows(of, on_host), own.rows), own.cluster * of.directions, _any_step(of)]))
    of.replace(*results)


def _any_step(of: Recurrent) -> Size:
    """1 where there are steps, and 0, so that nothing is launched, where there are none."""
    steps = extent(of.given, of.time)
    return min(steps, 1) if isinstance(steps, int) else arith.minsi(steps, as_value(1))


def _rows(of: Recurrent, see: See) -> Size:
    return extent(see(of.given), 1 - of.time)


def _result(of: Recurrent, number: int) -> ir.Value:
    """A buffer for the result of that number."""
    kind = ir.MemRefType(of.call.results[number].type)
    batch = of.batch_of(number)
    open_ = [_rows(of, on_host) if d == batch else extent(of.given, of.time) for d in range(kind.rank)]
    return memref.alloc(kind, [as_value(size) for d, size in enumerate(open_) if kind.is_dynamic_dim(d)], [])


@dataclass(frozen=True)
class _Place:
    """An element of the state that a thread has: whether (i1) the cluster has it, and the batch its row; the row of the
    batch, and the column; its row of the cluster's rows, and its column of the CTA's."""

    there: ir.Value
    is_row: ir.Value
    row: ir.Value
    column: ir.Value
    own_row: ir.Value
    within: ir.Value


def _buffers(kernel: Kernel, element: ir.Type, own: Shares) -> list[SharedPart]:
    """Those of weights, states and sums: of f32 parts of one."""
    f32 = ir.F32Type.get()
    shapes = [(own.own, own.pitch if own.held else 0), (2, own.rows, own.padded), (own.slices, own.rows, own.own)]
    counts = [-(-prod(shape) // own.word) * own.word for shape in shapes]
    if own.is_one:
        whole = kernel.shared([max(sum(counts), own.least_bytes // 4)], f32)
        return [SharedPart(whole, sum(counts[:i]), shape) for i, shape in enumerate(shapes)]
    if own.least_bytes or counts[0] and own.weight_bytes() + own.static_bytes() > STATIC:  # as large as the launch says
        counts[0] = max(counts[0], max(own.least_bytes, STATIC) // own.layer.element_bytes + own.word)
    kinds = [element, f32, f32]
    return [
        SharedPart(kernel.shared([max(count, own.word)], kind), 0, shape)
        for count, kind, shape in zip(counts, kinds, shapes, strict=True)
    ]


class _Code:
    """The code of a CTA."""

    def __init__(self, kernel: Kernel, of: Recurrent, own: Shares, results: Sequence[ir.Value]):
        see = kernel.inside
        self._of, self._own = of, own
        self._given, self._all, self._bias = see(of.given), see(of.weights), see(of.bias)
        self._begun, self._results = [see(state) for state in of.states], [see(result) for result in results]
        self._batch, self._steps = as_value(_rows(of, see)), as_value(extent(see(of.given), of.time))
        self._f32 = ir.F32Type.get()
        self._weights, self._state, self._sums = _buffers(kernel, of.element, own)
        self._barriers = kernel.shared([2], i64()) if own.cluster > 1 else None
        self._thread = gpu.thread_id(gpu.Dimension.x)
        block = gpu.block_id(gpu.Dimension.x)
        number = arith.divui(block, as_value(own.cluster))
        self._direction = arith.remui(number, as_value(of.directions))
        self._first_row = arith.muli(arith.divui(number, as_value(of.directions)), as_value(own.rows))
        self._first_column = arith.muli(arith.remui(block, as_value(own.cluster)), as_value(own.columns))

    def build(self) -> None:
        """Builds all of it."""
        own, zero, one = self._own, as_value(0), as_value(1)
        self._begin()
        self._load_weights()
        self._load_states()
        places = [self._place(number) for number in range(own.items)]
        bias = [self._gate_values(place, self._bias_at) for place in places]
        begun = [
            extended(memref.load(state, [self._direction, place.row, place.column]), self._f32)
            for place in places
            for state in self._begun
        ]
        count, last = len(self._begun), arith.subi(self._steps, one)
        first = [value for place in places for value in self._gate_values(place, self._given_at, self._step(zero))]
        self._meet()
        loop = scf.ForOp(zero, self._steps, one, [*begun, *first])
        with ir.InsertionPoint(loop.body):
            turn, carried = loop.induction_variable, list(loop.inner_iter_args)
            after = self._step(arith.minui(arith.addi(turn, one), last))
            ahead = [value for place in places for value in self._gate_values(place, self._given_at, after)]
            states, given = carried[: len(begun)], carried[len(begun) :]
            now, new = arith.andi(turn, one), list[ir.Value]()
            self._multiply(now)
            gpu.barrier()
            for number, place in enumerate(places):
                before = states[number * count :][:count]
                new += self._leave(place, now, given[number * self._of.gates :], bias[number], before)
            self._receive(turn)
            step = self._step(turn)
            for number, place in enumerate(places):
                with self._if_there(place):
                    at = arith.addi(arith.muli(self._direction, as_value(self._of.width)), place.column)
                    shown = narrowed(new[number * count], self._of.element)
                    memref.store(shown, self._results[0], self._of.place(place.row, step, at))
            scf.yield_([*new, *ahead])
        self._meet()  # others may still send what nobody reads
        for number, place in enumerate(places):
            with self._if_there(place):
                for value, result in zip(list(loop.results)[number * count :][:count], self._results[1:], strict=True):
                    memref.store(narrowed(value, self._of.element), result, [self._direction, place.row, place.column])

    def _step(self, turn: ir.Value) -> ir.Value:
        """The step of a turn: the second direction goes back from the last one."""
        back = arith.subi(arith.subi(self._steps, as_value(1)), turn)
        is_first = arith.cmpi(arith.CmpIPredicate.eq, self._direction, as_value(0))
        return arith.select(is_first, turn, back)

    # What stays, and what is there before the first step.

    def _load_weights(self) -> None:
        """What is held of the CTA's columns of the weights, a thread one after another: of neighbours that stand
        together there."""
        own, zero = self._own, arith.constant(self._of.element, 0.0)
        if not own.held:
            return
        count = own.own * own.slices * own.held
        with each(self._thread, as_value(count), _TOGETHER * own.threads) as first:
            found = []
            for number in range(_TOGETHER):  # loads are on their way together
                at = arith.minui(arith.addi(first, as_value(number * own.threads)), as_value(count - 1))
                rest, column = arith.divui(at, as_value(own.own)), arith.remui(at, as_value(own.own))
                part, within = arith.divui(rest, as_value(own.held)), arith.remui(rest, as_value(own.held))
                there, place = self._weight_at(arith.addi(arith.muli(part, as_value(own.slice)), within), column)
                found.append((arith.select(there, memref.load(self._all, place), zero), [column, rest]))
            for value, at in found:
                self._weights.store(value, at)

    def _weight_at(self, k: ir.Value, column: ir.Value) -> tuple[ir.Value, list[ir.Value]]:
        """Whether there is a weight for column k of the state and a column of the CTA's, and a place in any case."""
        width, columns = as_value(self._of.width), as_value(self._own.columns)
        gate, within = arith.divui(column, columns), arith.remui(column, columns)
        hidden, last = arith.addi(self._first_column, within), as_value(self._of.width - 1)
        there = arith.andi(below(k, width), below(hidden, width))
        at = arith.addi(arith.muli(gate, width), arith.minui(hidden, last))
        return there, [self._direction, arith.minui(k, last), at]

    def _load_states(self) -> None:
        """The first states, and zeros behind them, which are never written."""
        own, zero = self._own, arith.constant(self._f32, 0.0)
        with each(self._thread, as_value(2 * own.rows * own.padded), own.threads) as number:
            rest, k = arith.divui(number, as_value(own.padded)), arith.remui(number, as_value(own.padded))
            turn, row = arith.divui(rest, as_value(own.rows)), arith.remui(rest, as_value(own.rows))
            there = arith.andi(below(k, as_value(self._of.width)), below(turn, as_value(1)))
            at = [self._direction, self._row(row), arith.minui(k, as_value(self._of.width - 1))]
            value = arith.select(there, extended(memref.load(self._begun[0], at), self._f32), zero)
            self._state.store(value, [turn, row, k])

    def _row(self, row: ir.Value) -> ir.Value:
        """A row of the cluster's as one of the batch: the last one, where there are fewer."""
        return arith.minui(arith.addi(self._first_row, row), arith.subi(self._batch, as_value(1)))

    # A step.

    def _multiply(self, now: ir.Value) -> None:
        """The thread's sums: of a slice of the state, for some of the columns, and all rows."""
        own = self._own
        thread = arith.minui(self._thread, as_value(own.across * own.slices - 1))
        part, first = arith.divui(thread, as_value(own.across)), arith.remui(thread, as_value(own.across))
        last = as_value(own.own - 1)
        columns = [arith.minui(arith.addi(first, as_value(e * own.across)), last) for e in range(own.each)]
        begin = arith.muli(part, as_value(own.slice))
        held = arith.muli(part, as_value(own.held))

        def in_shared(k: ir.Value, column: ir.Value, count: int) -> list[ir.Value]:
            return self._weights.load([column, arith.addi(held, k)], count)

        def in_memory(k: ir.Value, column: ir.Value, count: int) -> list[ir.Value]:
            places = [self._weight_at(arith.addi(begin, arith.addi(k, as_value(e))), column) for e in range(count)]
            return [memref.load(self._all, at) for _, at in places]  # behind the last the state is zero

        sums = [arith.constant(self._f32, 0.0)] * (own.each * own.rows)
        ahead = own.held + (own.slice - own.held) // READ_AHEAD * READ_AHEAD
        for start, end, step, weights in (
            (0, own.held, own.word, in_shared),
            (own.held, ahead, READ_AHEAD, in_memory),
            (ahead, own.slice, own.word, in_memory),
        ):
            if start < end:
                sums = self._summed(sums, now, begin, columns, (start, end, step), weights)
        for e, column in enumerate(columns):
            there = below(arith.addi(first, as_value(e * own.across)), as_value(own.own))
            with when(arith.andi(there, below(self._thread, as_value(own.across * own.slices)))):
                for row in range(own.rows):
                    self._sums.store(sums[e * own.rows + row], [part, as_value(row), column])

    def _summed(
        self,
        sums: Sequence[ir.Value],
        now: ir.Value,
        begin: ir.Value,
        columns: Sequence[ir.Value],
        turns: tuple[int, int, int],
        weights: Callable[[ir.Value, ir.Value, int], list[ir.Value]],
    ) -> list[ir.Value]:
        """The sums with those of some turns of a slice, which begins at a number of the state; `weights` has those of a
        column from a number of the slice on."""
        rows, (start, end, step) = self._own.rows, turns
        loop = scf.ForOp(as_value(start), as_value(end), as_value(step), list(sums))
        with ir.InsertionPoint(loop.body):
            k, found = loop.induction_variable, list(loop.inner_iter_args)
            given = [[extended(x, self._f32) for x in weights(k, column, step)] for column in columns]
            for at in range(0, step, 4):
                place = arith.addi(begin, arith.addi(k, as_value(at)))
                for row in range(rows):
                    states = self._state.load([now, as_value(row), place], 4)
                    for e, own in enumerate(given):
                        for weight, state in zip(own[at : at + 4], states, strict=True):
                            found[e * rows + row] = math.fma(weight, state, found[e * rows + row])
            scf.yield_(found)
        return list(loop.results)

    def _place(self, number: int) -> _Place:
        """The thread's element of that number."""
        own = self._own
        item = arith.addi(self._thread, as_value(number * own.threads))
        row, within = arith.divui(item, as_value(own.columns)), arith.remui(item, as_value(own.columns))
        column = arith.addi(self._first_column, within)
        there = arith.andi(below(row, as_value(own.rows)), below(column, as_value(self._of.width)))
        own_row = arith.minui(row, as_value(own.rows - 1))
        return _Place(
            there,
            below(arith.addi(self._first_row, row), self._batch),
            self._row(own_row),
            arith.minui(column, as_value(self._of.width - 1)),
            own_row,
            within,
        )

    def _gate_values(self, place: _Place, at: Callable[..., ir.Value], *more: ir.Value) -> list[ir.Value]:
        """What there is for each gate of an element."""
        width = self._of.width
        return [at(place, arith.addi(place.column, as_value(gate * width)), *more) for gate in range(self._of.gates)]

    def _bias_at(self, place: _Place, column: ir.Value) -> ir.Value:
        return extended(memref.load(self._bias, [self._direction, column]), self._f32)

    def _given_at(self, place: _Place, column: ir.Value, step: ir.Value) -> ir.Value:
        before = arith.muli(self._direction, as_value(self._of.gates * self._of.width))
        at = self._of.place(place.row, step, arith.addi(before, column))
        return extended(memref.load(self._given, at), self._f32)

    def _leave(
        self,
        place: _Place,
        now: ir.Value,
        given: Sequence[ir.Value],
        bias: Sequence[ir.Value],
        before: Sequence[ir.Value],
    ) -> list[ir.Value]:
        """The new state, rounded as results are, and cell, of an element, which is given to all of the cluster."""
        own, sums = self._own, []
        for gate in range(self._of.gates):
            column = arith.addi(place.within, as_value(gate * own.columns))
            parts = [self._sums.load([as_value(part), place.own_row, column])[0] for part in range(own.slices)]
            sums.append(reduce(arith.addf, parts))
        hidden, *others = stepped(self._of.cell, given[: self._of.gates], sums, bias, before)
        hidden = extended(narrowed(hidden, self._of.element), self._f32)
        with when(place.there):
            self._give(hidden, [arith.subi(as_value(1), now), place.own_row, place.column])
        return [hidden, *others]

    # What goes from CTA to CTA.

    def _begin(self) -> None:
        """A barrier for each of the two states, on which what comes counts."""
        if self._own.cluster > 1:
            with only_if(self._thread, 1):
                for number in (0, 1):
                    cluster.begin(self._barrier(as_value(number)))

    def _barrier(self, number: ir.Value) -> ir.Value:
        return cluster.place_in(self._barriers, number, 8)

    def _give(self, value: ir.Value, at: Sequence[ir.Value]) -> None:
        """An element of the state goes into the shared memory of all CTAs of the cluster."""
        if self._own.cluster == 1:
            self._state.store(value, at)
            return
        place, barrier = cluster.place_in(self._state.whole, self._state.number(at), 4), self._barrier(at[0])
        for cta in range(self._own.cluster):
            cluster.send_to(place, barrier, narrow(as_value(cta)), value)

    def _receive(self, turn: ir.Value) -> None:
        """Waits for all of the state behind a step. Who has it knows that all have read the one before, which they did
        before they sent, and that all sums of the CTA have been taken, likewise: both are free. What another CTA sends
        in its next step counts on the other barrier."""
        if self._own.cluster == 1:
            gpu.barrier()
            return
        barrier = self._barrier(arith.subi(as_value(1), arith.andi(turn, as_value(1))))
        with only_if(self._thread, 1):
            cluster.expect(barrier, 4 * self._own.rows * self._of.width)
        cluster.await_(barrier, narrow(arith.andi(arith.shrui(turn, as_value(1)), as_value(1))))

    def _if_there(self, place: _Place) -> AbstractContextManager[ir.Operation]:
        """Code for the threads whose element is one of the layer's."""
        return when(arith.andi(place.there, place.is_row))

    def _meet(self) -> None:
        if self._own.cluster == 1:
            gpu.barrier()
        else:
            cluster.meet()
