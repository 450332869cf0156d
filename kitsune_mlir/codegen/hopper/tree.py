"""Partial sums of the CTAs of a grid, added up in one launch: a reduction tree through L2.

Every CTA leaves its partial sum, in f32, in a workspace and says so in a counter; when all have, each adds up a slice
of the elements over all partial sums. An element is added by a few neighbouring threads, each some of the partial sums,
then the threads' sums by halves: the order is fixed, so results do not change from run to run. All CTAs must be
resident (PTX ISA, Memory Consistency Model: release and acquire).

    workspace: counters (codegen/pipeline/counters.py), the first that of partial sums left, others' from OTHERS_AT on |
               partial sums, each `height` by `width`
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from kitsune_mlir.codegen.pipeline import counters, device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import arith, ir, vector

from . import waits, warps

OTHERS_AT = counters.FIRST_AT + counters.COUNTER_BYTES
QUAD = 4  # elements that a thread adds at once
MOST_LANES = 32  # threads that share an element's partial sums
MOST_LOADS = 12  # in flight in one thread


@dataclass(frozen=True)
class Tree:
    """`count` partial sums of height x width, after `counter_bytes` of the workspace, added by `threads` threads of
    each of `ctas` CTAs. Their elements in the first `rows` rows and `columns` columns matter. `barrier` is the number
    of a barrier of those threads."""

    workspace: ir.Value
    counter_bytes: int
    count: int
    height: int
    width: int
    rows: int
    columns: int
    ctas: int
    threads: int
    barrier: int

    def leave(self, partial: Int, row: Int, column: Int, pair: tuple[ir.Value, ir.Value]) -> None:
        """Stores two neighbouring elements, the first in an even column."""
        type_ = ir.VectorType.get([2], ir.F32Type.get())
        place = self._place(device.add(device.mul(partial, self.height), row), column)
        device.store(vector.from_elements(type_, list(pair)), place, align=8)

    def _place(self, row: Int, column: Int) -> ir.Value:
        partials = device.offset(self.workspace, self.counter_bytes, ir.IntegerType.get_signless(8))
        return device.offset(partials, device.add(device.mul(row, self.width), column), ir.F32Type.get())

    def sync(self, leader: ir.Value) -> None:
        """All the threads: after this every partial sum is there. `leader` (i1) holds in one thread of the CTA."""
        warps.barrier(self.barrier, self.threads)
        with device.when(leader):
            left = device.offset(self.workspace, counters.FIRST_AT, ir.IntegerType.get_signless(8))
            device.signal(left)
            waits.on_counter(left, self.ctas, "the partial sums of all CTAs")
        warps.barrier(self.barrier, self.threads)
        waits.leave_if_reported()

    def add_up(self, cta: Int, thread: Int, each: Callable[[Int, Int, list[ir.Value]], None]) -> None:
        """Adds the CTA's slice; calls `each`, in code, with a row, a column and the sums of QUAD elements from there
        on, in one thread. `columns` must be a multiple of QUAD."""
        quads, workers = self.rows * self.columns // QUAD, self.ctas * self.threads
        lanes = self._lanes(quads, workers)
        worker = device.add(device.mul(cta, self.threads), thread)
        last = device.value(quads - 1)

        def item(number: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            lane, quad = device.mod(number, lanes), device.div(number, lanes)
            inside = arith.cmpi(arith.CmpIPredicate.ule, device.value(quad), last)
            at = device.mul(device.value(device.least(quad, last)), QUAD)
            row, column = device.div(at, self.columns), device.mod(at, self.columns)
            sums = self._over_lanes(self._sums(lane, lanes, row, column), lanes)
            with device.when(arith.andi(inside, device.equal(lane, 0))):
                each(row, column, sums)
            return []

        rounds = ceil(quads * lanes / workers)  # the same for all threads, for lanes wait for one another
        device.loop(worker, rounds * workers, workers, item)

    def _lanes(self, quads: int, workers: int) -> int:
        """As many as keep all threads at work, no more than there are partial sums."""
        lanes = 1
        while 2 * lanes <= min(MOST_LANES, self.count) and 2 * lanes * quads <= workers:
            lanes *= 2
        return lanes

    def _sums(self, lane: Int, lanes: int, row: Int, column: Int) -> list[ir.Value]:
        """The sums of partial sums lane, lane + lanes, ...; several loads at a time."""
        trips = ceil(self.count / lanes)
        rounds = ceil(trips / MOST_LOADS)
        loads = ceil(trips / rounds)
        zero = arith.constant(ir.F32Type.get(), 0.0)
        type_ = ir.VectorType.get([QUAD], ir.F32Type.get())

        def some(number: Int, totals: list[ir.Value]) -> list[ir.Value]:
            found = []
            for i in range(loads):
                partial = device.add(device.mul(device.add(device.mul(number, loads), i), lanes), lane)
                exists = device.less(partial, self.count)
                there = device.least(partial, self.count - 1)
                place = self._place(device.add(device.mul(there, self.height), row), column)
                found.append((exists, device.load(place, type_, align=4 * QUAD)))
            for exists, quad in found:
                parts = [arith.select(exists, vector.extract(quad, [], [e]), zero) for e in range(QUAD)]
                totals = [arith.addf(total, part) for total, part in zip(totals, parts)]
            return totals

        return device.loop(0, rounds, 1, some, [zero] * QUAD) if rounds > 1 else some(0, [zero] * QUAD)

    def _over_lanes(self, sums: list[ir.Value], lanes: int) -> list[ir.Value]:
        mode = ir.Attribute.parse("#gpu<shuffle_mode xor>")
        distance = 1
        while distance < lanes:
            others = [device.gpu.ShuffleOp(x, device.value(distance), device.value(32), mode).results[0] for x in sums]
            sums = [arith.addf(x, other) for x, other in zip(sums, others)]
            distance *= 2
        return sums
