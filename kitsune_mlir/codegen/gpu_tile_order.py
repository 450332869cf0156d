"""A tile of rows in the order of a digit of their keys, those with the same digit as they were, in shared memory.

    ranks      a warp counts its rows of each digit, one row of each lane at a time; lanes with the same digit find each
               other by ballots, a bit of the digit after another, and the last of them adds for all
    begins     counts of warps become where a warp's rows of a digit begin in the tile
    moved      what rows have is written to their places in shared memory, and read from there by neighbours

Rows that go together then are neighbours, and their stores share lines. How long it takes does not depend on the keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from kitsune_mlir.generics import all_hold
from kitsune_mlir.mlir import arith, gpu, ir, math, memref, nvvm

from .gpu_kernel import WARP, Kernel, as_value, shuffled
from .pipeline.device import below, choose, equal, i32, index, narrow, when
from .pipeline.device import value as number_of

THREADS = 512  # of a block that has a tile
WARPS = THREADS // WARP
LEAST_BITS = 5  # of a digit: no fewer digits than lanes of a warp
_DISTANCES = (1, 2, 4, 8, 16)  # of lanes


@dataclass(frozen=True)
class Digit:
    """`bits` bits of keys from bit `shift` on: no fewer digits than lanes of a warp, no more than THREADS."""

    shift: int
    bits: int

    @property
    def count(self) -> int:
        return 1 << self.bits

    def of(self, key: ir.Value) -> ir.Value:
        """That of a key, both i32."""
        moved = arith.shrui(key, number_of(self.shift)) if self.shift else key
        return arith.andi(moved, number_of(self.count - 1))


@dataclass(frozen=True)
class TileOrder:
    """A thread block's tile of `items` rows a thread, those of a warp side by side, the items of its lanes in turn."""

    kernel: Kernel
    digit: Digit
    items: int
    words: ir.Value  # in shared memory: counts of warps, and later what rows have
    begins: ir.Value  # of a digit: what to add to a place in the tile for the place among all rows
    thread: ir.Value

    @staticmethod
    def of(kernel: Kernel, digit: Digit, items: int) -> TileOrder:
        words = kernel.shared([max(WARPS * digit.count, items * THREADS)], i32())
        thread = narrow(gpu.thread_id(gpu.Dimension.x))
        return TileOrder(kernel, digit, items, words, kernel.shared([digit.count], i32()), thread)

    @property
    def lane(self) -> ir.Value:
        return arith.remui(self.thread, number_of(WARP))

    @property
    def warp(self) -> ir.Value:
        return arith.divui(self.thread, number_of(WARP))

    @property
    def own_digit(self) -> ir.Value:
        """A digit for each thread; those behind the last have what others have, too."""
        return arith.remui(self.thread, number_of(self.digit.count))

    def own(self) -> list[ir.Value]:
        """Where a thread's rows are in the tile."""
        first = arith.addi(arith.muli(self.warp, number_of(WARP * self.items)), self.lane)
        return [arith.addi(first, number_of(number * WARP)) for number in range(self.items)]

    def numbers(self) -> list[ir.Value]:
        """The places whose rows a thread has when they are in order."""
        return [arith.addi(self.thread, number_of(number * THREADS)) for number in range(self.items)]

    def places(self, keys: Sequence[ir.Value], before: ir.Value, total: ir.Value) -> list[ir.Value]:
        """The places of rows in the order of their digits. Of a thread's own digit so many rows are in tiles before,
        and so many there are in all."""
        ranks = self._ranks(keys)
        gpu.barrier()
        self._begin(before, total)
        gpu.barrier()
        return [
            arith.addi(memref.load(self.words, [self._of_warp(self.digit.of(key))]), rank)
            for key, rank in zip(keys, ranks, strict=True)
        ]

    def targets(self, keys: Sequence[ir.Value]) -> list[ir.Value]:
        """Where among all rows those stand that a thread has when they are in order, by their keys."""
        return [
            arith.addi(memref.load(self.begins, [index(self.digit.of(key))]), number)
            for key, number in zip(keys, self.numbers(), strict=True)
        ]

    def moved(self, values: Sequence[ir.Value], places: Sequence[ir.Value]) -> list[ir.Value]:
        """What a thread's rows have, integers of 32 or 64 bits, becomes what the rows have that it has in order."""
        kind = values[0].type
        if kind != i32():
            width = arith.constant(kind, 32)
            low = self.moved([arith.trunci(i32(), value) for value in values], places)
            high = self.moved([arith.trunci(i32(), arith.shrui(value, width)) for value in values], places)
            return [arith.ori(arith.extui(kind, a), arith.shli(arith.extui(kind, b), width)) for a, b in zip(low, high)]
        gpu.barrier()
        for value, place in zip(values, places, strict=True):
            memref.store(value, self.words, [index(place)])
        gpu.barrier()
        return [memref.load(self.words, [index(number)]) for number in self.numbers()]

    def _of_warp(self, digit: ir.Value) -> ir.Value:
        """Where a thread's warp counts a digit."""
        return index(arith.addi(arith.muli(self.warp, number_of(self.digit.count)), digit))

    def _ranks(self, keys: Sequence[ir.Value]) -> list[ir.Value]:
        """For each row of a thread, how many of its warp stand before it and have its digit; all are counted then."""
        for number in range(0, self.digit.count, WARP):
            memref.store(number_of(0), self.words, [self._of_warp(arith.addi(self.lane, number_of(number)))])
        meet()
        lower = arith.subi(arith.shli(number_of(1), self.lane), number_of(1))
        ranks = []
        for key in keys:
            digit = self.digit.of(key)
            same = _same_digit(digit, self.digit.bits)

            def add(digit: ir.Value = digit, same: ir.Value = same) -> ir.Value:
                place = [self._of_warp(digit)]
                return memref.atomic_rmw(arith.AtomicRMWKind.addi, math.ctpop(same), self.words, place)

            before = choose(
                equal(arith.shrui(same, self.lane), 1), i32(), add, lambda: number_of(0)
            )  # the last of them
            meet()
            last = arith.subi(number_of(WARP - 1), math.ctlz(same))
            counted = shuffled(before, last, gpu.ShuffleMode.IDX)
            ranks.append(arith.addi(counted, math.ctpop(arith.andi(same, lower))))
        return ranks

    def _begin(self, before: ir.Value, total: ir.Value) -> None:
        has_digit = below(self.thread, number_of(self.digit.count))
        counts = [index(arith.addi(self.own_digit, number_of(number * self.digit.count))) for number in range(WARPS)]
        in_warps = [memref.load(self.words, [place]) for place in counts]
        in_all = reduce(arith.addi, in_warps), total
        in_tile, total = (arith.select(has_digit, count, number_of(0)) for count in in_all)
        local, start = before_threads(self.kernel, self.thread, [in_tile, total])
        with when(has_digit):
            memref.store(arith.subi(arith.addi(start, before), local), self.begins, [index(self.own_digit)])
            for place, count in zip(counts, in_warps, strict=True):
                memref.store(local, self.words, [place])
                local = arith.addi(local, count)


def before_threads(kernel: Kernel, thread: ir.Value, values: Sequence[ir.Value]) -> list[ir.Value]:
    """Of each value the sum over the threads before this one. All threads meet once."""
    sums = kernel.shared([len(values), WARPS], i32())
    warp, lane = arith.divui(thread, number_of(WARP)), arith.remui(thread, number_of(WARP))
    found = []
    for number, value in enumerate(values):
        before, in_warp = before_lane(value, lane)
        with when(equal(lane, 0)):
            memref.store(in_warp, sums, [as_value(number), index(warp)])
        found.append(before)
    gpu.barrier()
    for other in range(WARPS - 1):
        is_before = below(number_of(other), warp)
        for number in range(len(values)):
            there = memref.load(sums, [as_value(number), as_value(other)])
            found[number] = arith.addi(found[number], arith.select(is_before, there, number_of(0)))
    return found


def before_lane(x: ir.Value, lane: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The sum over the lanes before this one, and that over all lanes, from sums of ever more neighbours."""
    before, whole = number_of(0), x
    for distance in _DISTANCES:
        other = shuffled(whole, number_of(distance), gpu.ShuffleMode.XOR)
        is_earlier = equal(arith.andi(lane, number_of(distance)), 0)
        before = arith.select(is_earlier, before, arith.addi(before, other))
        whole = arith.addi(whole, other)
    return before, whole


def _same_digit(digit: ir.Value, bits: int) -> ir.Value:
    """The lanes of a warp that have a lane's digit, a bit each."""
    found = None
    for bit in range(bits):
        is_clear = equal(arith.andi(digit, number_of(1 << bit)), 0)
        others = nvvm.vote_sync(number_of(-1), is_clear, nvvm.VoteSyncKind.ballot)
        same = arith.xori(others, arith.select(is_clear, number_of(0), number_of(-1)))
        found = all_hold(found, same)
    assert found is not None
    return found


def meet() -> None:
    """The lanes of a warp meet, and see what others of it wrote to shared memory (PTX ISA, bar.warp.sync)."""
    nvvm.bar_warp_sync(number_of(-1))
