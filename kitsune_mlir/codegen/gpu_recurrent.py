"""Recurrent layers on a GPU, all steps of which are one launch (planning/recurrences.py).

    %y, %h = call @kitsune_recurrent0(%x, %w, %b, %h0)

A cluster of CTAs has some rows of a direction's batch. Each CTA has some columns of the state, and their weights in its
shared memory, column by column, and the whole state twice, in turn: as it was before a step, and as it will be.

    loads what inputs make of the gates of its elements
    sums of a slice of the state by a column of the weights, for each thread; all sums go to shared memory;  barrier
    each element's new state and cell, of the sums of all slices; the state goes to all CTAs of the cluster
    barrier of the cluster: nobody writes a state before all have read what was in its place

A CTA that is alone meets itself. Sums are of f32, and states in f32, rounded as results are. What is behind the last row
or column is computed as well, of others' numbers, and not written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from kitsune_mlir import example_sizes
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, func, gpu, ir, location, math, memref, scf
from kitsune_mlir.planning.recurrences import Layer, Shares, choose
from kitsune_mlir.planning.target import Target

from .gpu_kernel import Kernel, Kernels, See, Size, as_value, ceildiv, extent, on_host, only_if, product
from .gpu_word_access import load_word
from .hopper import cluster
from .pipeline.device import below, narrow, when
from .recurrent import Recurrent, narrowed, recurrent, stepped, widened

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
    with kernel.body():
        _Code(kernel, of, own, results).build()
    kernel.launch(lambda: product([ceildiv(_rows(of, on_host), own.rows), own.cluster * of.directions]))
    of.replace(results)


def _rows(of: Recurrent, see: See) -> Size:
    return extent(see(of.given), 1 - of.time)


def _result(of: Recurrent, number: int) -> ir.Value:
    """A buffer for the result of that number; those behind the first are states, whose rows are dimension 1."""
    kind = ir.MemRefType(of.call.results[number].type)
    batch = 1 if number else 1 - of.time
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


@contextlib.contextmanager
def _turns(first: ir.Value, last: int, step: int) -> Iterator[ir.Value]:
    """A loop that carries nothing, whose body is built inside; its number."""
    loop = scf.ForOp(first, as_value(last), as_value(step))
    with ir.InsertionPoint(loop.body):
        yield loop.induction_variable
        scf.yield_([])


class _Code:
    """The code of a CTA."""

    def __init__(self, kernel: Kernel, of: Recurrent, own: Shares, results: Sequence[ir.Value]):
        see = kernel.inside
        self._of, self._own = of, own
        self._given, self._all, self._bias = see(of.given), see(of.weights), see(of.bias)
        self._begun, self._results = [see(state) for state in of.states], [see(result) for result in results]
        self._batch, self._steps = as_value(_rows(of, see)), as_value(extent(see(of.given), of.time))
        self._f32 = ir.F32Type.get()
        self._weights = kernel.shared([own.own, own.pitch], of.element) if own.resident else None
        self._state = kernel.shared([2, own.rows, own.padded], self._f32)
        self._sums = kernel.shared([own.slices, own.rows, own.own], self._f32)
        self._thread = gpu.thread_id(gpu.Dimension.x)
        block = gpu.block_id(gpu.Dimension.x)
        number = arith.divui(block, as_value(own.cluster))
        self._direction = arith.remui(number, as_value(of.directions))
        self._first_row = arith.muli(arith.divui(number, as_value(of.directions)), as_value(own.rows))
        self._first_column = arith.muli(arith.remui(block, as_value(own.cluster)), as_value(own.columns))

    def build(self) -> None:
        """Builds all of it."""
        own, zero, one = self._own, as_value(0), as_value(1)
        self._load_weights()
        self._load_states()
        places = [self._place(number) for number in range(own.items)]
        bias = [self._gate_values(place, self._bias_at) for place in places]
        begun = [
            widened(memref.load(state, [self._direction, place.row, place.column]))
            for place in places
            for state in self._begun
        ]
        self._meet()
        loop = scf.ForOp(zero, self._steps, one, begun)
        with ir.InsertionPoint(loop.body):
            turn, states = loop.induction_variable, list(loop.inner_iter_args)
            back = arith.subi(arith.subi(self._steps, one), turn)
            is_first = arith.cmpi(arith.CmpIPredicate.eq, self._direction, zero)
            step = arith.select(is_first, turn, back)
            given = [self._gate_values(place, self._given_at, step) for place in places]
            now = arith.andi(turn, one)
            self._multiply(now)
            gpu.barrier()
            new = []
            for number, place in enumerate(places):
                each = len(self._begun)
                before = states[number * each : (number + 1) * each]
                new += self._leave(place, step, now, given[number], bias[number], before)
            self._meet()
            scf.yield_(new)
        for number, place in enumerate(places):
            each = len(self._begun)
            with self._if_there(place):
                for value, result in zip(list(loop.results)[number * each :][:each], self._results[1:], strict=True):
                    memref.store(narrowed(value, self._of.element), result, [self._direction, place.row, place.column])

    # What stays, and what is there before the first step.

    def _load_weights(self) -> None:
        """The CTA's columns of the weights, a thread one after another: of neighbours that stand together there."""
        if self._weights is None:
            return
        own, zero = self._own, arith.constant(self._of.element, 0.0)
        with self._each(own.own * own.padded) as number:
            k, column = arith.divui(number, as_value(own.own)), arith.remui(number, as_value(own.own))
            there, at = self._weight_at(k, column)
            memref.store(arith.select(there, memref.load(self._all, at), zero), self._weights, [column, k])

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
        with self._each(2 * own.rows * own.padded) as number:
            rest, k = arith.divui(number, as_value(own.padded)), arith.remui(number, as_value(own.padded))
            turn, row = arith.divui(rest, as_value(own.rows)), arith.remui(rest, as_value(own.rows))
            there = arith.andi(below(k, as_value(self._of.width)), below(turn, as_value(1)))
            at = [self._direction, self._row(row), arith.minui(k, as_value(self._of.width - 1))]
            value = arith.select(there, widened(memref.load(self._begun[0], at)), zero)
            memref.store(value, self._state, [turn, row, k])

    def _each(self, count: int) -> AbstractContextManager[ir.Value]:
        """The numbers below one, a thread's one after another."""
        return _turns(self._thread, count, self._own.threads)

    def _row(self, row: ir.Value) -> ir.Value:
        """A row of the cluster's as one of the batch: the last one, where there are fewer."""
        return arith.minui(arith.addi(self._first_row, row), arith.subi(self._batch, as_value(1)))

    # A step.

    def _multiply(self, now: ir.Value) -> None:
        """The thread's sums: of a slice of the state, for some of the columns, and all rows."""
        own = self._own
        used = min(own.threads, own.own * own.slices)
        thread = arith.minui(self._thread, as_value(used - 1))
        part, first = arith.divui(thread, as_value(own.own)), arith.remui(thread, as_value(own.own))
        if own.slices == 1:
            part, first = as_value(0), thread
        last = as_value(own.own - 1)
        columns = [arith.minui(arith.addi(first, as_value(e * own.threads)), last) for e in range(own.each)]
        begin = arith.muli(part, as_value(own.slice))
        start = [arith.constant(self._f32, 0.0)] * (own.each * own.rows)
        loop = scf.ForOp(as_value(0), as_value(own.slice), as_value(own.word), start)
        with ir.InsertionPoint(loop.body):
            k, sums = arith.addi(begin, loop.induction_variable), list(loop.inner_iter_args)
            weights = [self._weights_from(k, column) for column in columns]
            for row in range(own.rows):
                states: list[ir.Value] = []
                for at in range(0, own.word, 4):
                    place = [now, as_value(row), arith.addi(k, as_value(at))]
                    states += load_word(self._state, place, 4)
                for e in range(own.each):
                    for weight, state in zip(weights[e], states, strict=True):
                        sums[e * own.rows + row] = math.fma(weight, state, sums[e * own.rows + row])
            scf.yield_(sums)
        for e, column in enumerate(columns):
            number = arith.addi(self._thread, as_value(e * own.threads))
            with only_if(number, own.own * own.slices):
                for row in range(own.rows):
                    memref.store(loop.results[e * own.rows + row], self._sums, [part, as_value(row), column])

    def _weights_from(self, k: ir.Value, column: ir.Value) -> list[ir.Value]:
        """A word of a column's weights, in f32."""
        if self._weights is not None:
            return [widened(x) for x in load_word(self._weights, [column, k], self._own.word)]
        found = []
        for e in range(self._own.word):  # behind the last the state is zero
            _, at = self._weight_at(arith.addi(k, as_value(e)), column)
            found.append(widened(memref.load(self._all, at)))
        return found

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
        return widened(memref.load(self._bias, [self._direction, column]))

    def _given_at(self, place: _Place, column: ir.Value, step: ir.Value) -> ir.Value:
        before = arith.muli(self._direction, as_value(self._of.gates * self._of.width))
        at = self._of.place(place.row, step, arith.addi(before, column))
        return widened(memref.load(self._given, at))

    def _leave(
        self,
        place: _Place,
        step: ir.Value,
        now: ir.Value,
        given: Sequence[ir.Value],
        bias: Sequence[ir.Value],
        before: Sequence[ir.Value],
    ) -> list[ir.Value]:
        """The new state, and cell, of an element, which is written, and given to all of the cluster."""
        own, sums = self._own, []
        for gate in range(self._of.gates):
            column = arith.addi(place.within, as_value(gate * own.columns))
            parts = [memref.load(self._sums, [as_value(part), place.own_row, column]) for part in range(own.slices)]
            total = parts[0]
            for part in parts[1:]:
                total = arith.addf(total, part)
            sums.append(total)
        hidden, *others = stepped(self._of.cell, given, sums, bias, before)
        shown = narrowed(hidden, self._of.element)
        hidden = widened(shown)
        with self._if_there(place):
            at = arith.addi(arith.muli(self._direction, as_value(self._of.width)), place.column)
            memref.store(shown, self._results[0], self._of.place(place.row, step, at))
        with when(place.there):
            self._give(hidden, [arith.subi(as_value(1), now), place.own_row, place.column])
        return [hidden, *others]

    def _give(self, value: ir.Value, at: Sequence[ir.Value]) -> None:
        """Stores an element of the state in the shared memory of all CTAs of the cluster."""
        own = self._own
        if own.cluster == 1:
            memref.store(value, self._state, list(at))
            return
        turn, row, column = at
        number = arith.addi(arith.muli(turn, as_value(own.rows)), row)
        number = arith.addi(arith.muli(number, as_value(own.padded)), column)
        for cta in range(own.cluster):
            cluster.store(self._state, number, value, narrow(as_value(cta)))

    def _if_there(self, place: _Place) -> AbstractContextManager[ir.Operation]:
        """Code for the threads whose element is one of the layer's."""
        return when(arith.andi(place.there, place.is_row))

    def _meet(self) -> None:
        if self._own.cluster == 1:
            gpu.barrier()
        else:
            cluster.meet()
