"""Gradients of convolutions of few channels a group, by their filters: a thread goes over strips of places with its
sums in registers, each element of the image being loaded once for the taps of a row (planning/filter_gradient.py).

    %p = call @kitsune_filter_gradient0(%x, %g)
  =>
    thread (lane c, behind it b):  for strips s = b, b + B, ... of the block's part:
                                     g[0 .. n] = the gradient there
                                     for the rows of taps that it has:  if the row is in the image:
                                       x[...] = what windows have of it, zero outside
                                       sums[row, tap] += x[place stride + tap dilation] * g[place],  all places and taps
                                   sums of all b, by shared memory:  %p[part, taps, channels]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from kitsune_mlir.generics import all_hold, extended
from kitsune_mlir.mlir import arith, func, gpu, ir, memref, scf
from kitsune_mlir.planning.filter_gradient import THREADS, Convolution, Shares, columns, left_over

from .filter_gradient import FilterGradient, filter_gradients
from .gpu_kernel import Kernel, Kernels, Size, as_value, ceildiv, delinearize, extent, product
from .gpu_word_access import load_word
from .pipeline.device import below

_CHUNK = 16  # sums of each thread that are in shared memory at once
_FMA = "#arith.fastmath<contract>"


def lower_filter_gradients(module: ir.Module, main: func.FuncOp, kernels: Kernels) -> None:
    """Puts kernels' launches in the place of the calls."""
    for one in filter_gradients(module):
        if one.call.block == main.body.blocks[0]:
            _lower(one, kernels)


def _lower(one: FilterGradient, kernels: Kernels) -> None:
    assert one.shares is not None
    with one.call.context, one.call.location, ir.InsertionPoint(one.call):
        result = memref.alloc(one.kind, [], [])
    kernel = Kernel(kernels, one.call, "filters", THREADS)
    with kernel.body():
        _Code(kernel, one, one.convolution, one.shares, result).build()
    kernel.launch(one.shares.blocks(one.convolution.channels))
    one.replace(result)


@dataclass(frozen=True)
class _Strip:
    """Where a strip of so many places is: its image, its places along all sizes, of which the last is its first one."""

    count: int
    batch: ir.Value
    places: list[ir.Value]
    is_line: bool  # whether it is all places along the last size


@dataclass
class _Code:
    """A kernel's code."""

    kernel: Kernel
    one: FilterGradient
    of: Convolution
    shares: Shares
    result: ir.Value

    def __post_init__(self) -> None:
        of, shares = self.of, self.shares
        self.image, self.gradient = (self.kernel.inside(value) for value in (self.one.image, self.one.gradient))
        thread = gpu.thread_id(gpu.Dimension.x)
        self.behind, self.lane = delinearize(thread, [THREADS // shares.lanes, shares.lanes])
        counts = [shares.parts, shares.segments, shares.row_parts, shares.channel_blocks(of.channels)]
        self.part, self.segment, rows, channels = delinearize(gpu.block_id(gpu.Dimension.x), counts)
        self.first_row = arith.muli(rows, as_value(shares.rows))
        word = arith.addi(arith.muli(channels, as_value(shares.lanes)), self.lane)
        self.channel = arith.muli(word, as_value(shares.together))
        self.first_tap = arith.muli(self.segment, as_value(shares.taps))
        # Threads that have no channels of their own have the last ones, too.
        own = arith.minui(self.channel, as_value(of.channels - shares.together))
        output, pair = self._divided(own, of.inputs)
        group, _ = self._divided(output, of.outputs)
        self.output = output
        self.input = arith.addi(arith.muli(group, as_value(of.inputs)), pair)

    def _divided(self, number: ir.Value, size: int) -> tuple[ir.Value, ir.Value]:
        return (number, as_value(0)) if size == 1 else tuple(delinearize(number, [as_value(1), size]))

    @cached_property
    def sizes(self) -> list[Size]:
        """Those of images."""
        return [extent(self.image, 1 + axis) for axis in range(len(self.of.kernel))]

    @property
    def sum_kind(self) -> ir.Type:
        return self.one.kind.element_type

    def build(self) -> None:
        """Builds the loops, and what is behind them."""
        batch, *counts = (extent(self.gradient, d) for d in range(len(self.of.kernel) + 1))
        last, strip = counts[-1], self.shares.strip
        strips: Size = last // strip if isinstance(last, int) else arith.divui(last, as_value(strip))
        zero = arith.constant(self.sum_kind, 0.0)
        sums = [zero] * self.shares.sums
        is_line = strip == last
        sums = self._over([batch, *counts[:-1], strips], strip, as_value(0), is_line, sums)
        if left_over(self.of.places[-1], strip):
            rest: Size = last % strip if isinstance(last, int) else arith.remui(last, as_value(strip))
            first: Size = last - rest if isinstance(last, int) else arith.subi(last, rest)
            sums = self._over([batch, *counts[:-1], rest], 1, as_value(first), False, sums)
        self._join(sums)

    def _over(
        self, counts: Sequence[Size], strip: int, first: ir.Value, is_line: bool, sums: list[ir.Value]
    ) -> list[ir.Value]:
        """The sums behind this block's part of strips of so many places, which begin at `first`."""
        total = as_value(product(counts))
        each = ceildiv(total, self.shares.parts)
        begin = arith.muli(self.part, as_value(each))
        end = arith.minui(arith.addi(begin, as_value(each)), total)
        step = as_value(THREADS // self.shares.lanes)
        loop = scf.ForOp(arith.addi(begin, self.behind), end, step, sums)
        with ir.InsertionPoint(loop.body):
            batch, *places = delinearize(loop.induction_variable, counts)
            places[-1] = arith.addi(arith.muli(places[-1], as_value(strip)), first)
            scf.yield_(self._strip(_Strip(strip, batch, places, is_line), list(loop.inner_iter_args)))
        return list(loop.results)

    def _strip(self, strip: _Strip, sums: list[ir.Value]) -> list[ir.Value]:
        """The sums behind a strip."""
        gradients = []
        for e in range(strip.count):
            place = arith.addi(strip.places[-1], as_value(e))
            at = [strip.batch, *strip.places[:-1], place, self.output]
            gradients.append(self._wide(load_word(self.gradient, at, self._together(self.of.inputs == 1))))
        size = self.shares.taps * self.shares.together
        found = []
        for row in range(self.shares.rows):
            own = sums[row * size : (row + 1) * size]
            number = arith.addi(self.first_row, as_value(row))
            is_there, at = self._row(number, strip)
            if is_there is None:
                found += self._added(strip, at, gradients, own)
                continue
            branch = scf.IfOp(is_there, [self.sum_kind] * size, has_else=True)
            with ir.InsertionPoint(branch.then_block):
                scf.YieldOp(self._added(strip, at, gradients, own))
            with ir.InsertionPoint(branch.else_block):
                scf.YieldOp(own)
            found += list(branch.results)
        return found

    def _together(self, is_word: bool) -> int:
        """Neighbouring channels that a thread has of the image or the gradient."""
        return self.shares.together if is_word else 1

    def _row(self, number: ir.Value, strip: _Strip) -> tuple[ir.Value | None, list[ir.Value]]:
        """Whether there is a row of taps of that number, and in the image, None where it always is; where that is,
        along all sizes but the last."""
        of, found = self.of, list[ir.Value]()
        rows = self.shares.rows * self.shares.row_parts
        all_rows = product(of.kernel[:-1])
        is_there = below(number, as_value(all_rows)) if rows > all_rows else None
        taps = delinearize(number, of.kernel[:-1]) if len(of.kernel) > 1 else []
        for axis, tap in enumerate(taps):
            at = arith.addi(
                arith.muli(strip.places[axis], as_value(of.stride[axis])), arith.muli(tap, as_value(of.dilation[axis]))
            )
            if of.is_padded(axis):
                at = arith.subi(at, as_value(of.padding[axis]))
                fits = below(at, as_value(self.sizes[axis]))
                is_there = all_hold(is_there, fits)
            found.append(at)
        return is_there, found

    def _added(
        self, strip: _Strip, row: list[ir.Value], gradients: list[list[ir.Value]], sums: list[ir.Value]
    ) -> list[ir.Value]:
        """The sums of a row of taps, behind a strip."""
        of, shares = self.of, self.shares
        first = arith.addi(
            arith.muli(strip.places[-1], as_value(of.stride[-1])),
            arith.muli(self.first_tap, as_value(of.dilation[-1])),
        )
        seen = {}
        for column in columns(of, strip.count, shares.taps):
            seen[column] = self._element(strip, [strip.batch, *row], first, column)
        found, contract = list(sums), ir.Attribute.parse(_FMA)
        for place in range(strip.count):
            for tap in range(shares.taps):
                own = seen[place * of.stride[-1] + tap * of.dilation[-1]]
                if own is None:
                    continue
                for e in range(shares.together):
                    x, g = (values[e if len(values) > 1 else 0] for values in (own, gradients[place]))
                    at = tap * shares.together + e
                    term = arith.mulf(x, g, fastmath=contract)
                    found[at] = arith.addf(found[at], term, fastmath=contract)
        return found

    def _element(self, strip: _Strip, before: list[ir.Value], first: ir.Value, column: int) -> list[ir.Value] | None:
        """The channels of the element so far behind the first that a strip's windows have, zero where it is outside of
        the image; None where it is known to be."""
        of, count = self.of, self._together(self.of.inputs > 1 or self.of.outputs == 1)
        axis = len(of.kernel) - 1
        at = arith.addi(first, as_value(column))
        if not of.is_padded(axis) and self.shares.segments * self.shares.taps == of.kernel[-1]:
            return self._wide(load_word(self.image, [*before, at, self.input], count))
        at = arith.subi(at, as_value(of.padding[axis]))
        if strip.is_line and self.shares.segments == 1 and of.sizes[axis] is not None:
            if not of.is_within(axis, column, column):
                return None
            return self._wide(load_word(self.image, [*before, at, self.input], count))
        fits = below(at, as_value(self.sizes[axis]))
        safe = [*before, arith.select(fits, at, as_value(0)), self.input]
        zero = arith.constant(self.sum_kind, 0.0)
        return [arith.select(fits, x, zero) for x in self._wide(load_word(self.image, safe, count))]

    def _wide(self, values: Sequence[ir.Value]) -> list[ir.Value]:
        """Elements in the type of sums."""
        return [extended(x, self.sum_kind) for x in values]

    def _join(self, sums: list[ir.Value]) -> None:
        """Adds up the sums of threads that have the same channels, and writes them."""
        shares = self.shares
        behind, thread = THREADS // shares.lanes, gpu.thread_id(gpu.Dimension.x)
        chunk = min(_CHUNK, len(sums))
        buffer = self.kernel.shared([chunk, THREADS], self.sum_kind)
        zero = arith.constant(self.sum_kind, 0.0)
        for start in range(0, len(sums), chunk):
            own = sums[start : start + chunk]
            if start:
                gpu.barrier()
            for i, value in enumerate(own):
                memref.store(value, buffer, [as_value(i), thread])
            gpu.barrier()
            loop = scf.ForOp(self.behind, as_value(len(own)), as_value(behind), [])
            with ir.InsertionPoint(loop.body):
                i = loop.induction_variable
                inner = scf.ForOp(self.lane, as_value(THREADS), as_value(shares.lanes), [zero])
                with ir.InsertionPoint(inner.body):
                    value = memref.load(buffer, [i, inner.induction_variable])
                    scf.yield_([arith.addf(inner.inner_iter_args[0], value)])
                number = arith.addi(i, as_value(start))
                row, tap, e = delinearize(number, [shares.rows, shares.taps, shares.together])
                self._write(row, tap, e, inner.results[0])
                scf.yield_([])

    def _write(self, row: ir.Value, tap: ir.Value, e: ir.Value, total: ir.Value) -> None:
        """Writes a sum, if it is of a tap and a channel that there are."""
        of = self.of
        number, last = arith.addi(self.first_row, row), arith.addi(self.first_tap, tap)
        channel = arith.addi(self.channel, e)
        is_there = below(channel, as_value(of.channels))
        is_there = arith.andi(is_there, below(last, as_value(of.kernel[-1])))
        is_there = arith.andi(is_there, below(number, as_value(product(of.kernel[:-1]))))
        taps = delinearize(number, of.kernel[:-1]) if len(of.kernel) > 1 else []
        branch = scf.IfOp(is_there)
        with ir.InsertionPoint(branch.then_block):
            memref.store(total, self.kernel.inside(self.result), [self.part, *taps, last, channel])
            scf.YieldOp([])
