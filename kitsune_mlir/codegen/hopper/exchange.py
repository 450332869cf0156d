"""What the CTAs of a cluster tell each other about the rows that they share: tiles and sums of rows.

*Tiles*: each CTA computes a share of a tile's columns. Each warpgroup has in its shared memory room for its 64 rows of
the whole tile, as swizzled boxes of 64 columns, the shares one after another. It writes its own share there and has
the copy engine copy it into the same boxes of the other CTAs; products then read all of it. `full` counts the
bytes that come in, `empty` the other CTAs that are done with the tile that went out.

*Sums*: one f32 for each row goes from each CTA to each other, in two places in turn: a CTA can send the next sums
only after it got the last ones, so it is never two ahead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import arith, ir

from . import cluster, mbarrier, tma, waits, warps
from .fragments import HALVES, Fragment
from .stores import BOX_BYTES, BoxWriter
from .wgmma import CHUNK, ROWS, THREADS

PLACES = 2  # for sums
BARRIER_BYTES = (2 + PLACES) * mbarrier.BYTES  # of a warpgroup
_ROW_BYTES = 4


def sums_bytes(ctas: int) -> int:
    """Shared memory of a warpgroup for sums of rows."""
    return PLACES * ctas * ROWS * _ROW_BYTES


def init(barriers: Int, ctas: int) -> None:
    """One thread, for a warpgroup."""
    mbarrier.init(barriers, 1)
    mbarrier.init(device.add(barriers, mbarrier.BYTES), ctas - 1)
    for place in range(PLACES):
        mbarrier.init(device.add(barriers, (2 + place) * mbarrier.BYTES), 1)


def boxes_of(columns: int) -> int:
    return -(-columns // CHUNK)


@dataclass
class Exchange:
    """A warpgroup's end. `boxes` is the room for a tile whose shares have `columns` columns, `sums` that for sums,
    `barriers` BARRIER_BYTES. `turn` and `sums_turn` (i32) count tiles and sums exchanged."""

    ctas: int
    rank: ir.Value
    columns: int
    boxes: Int
    sums: Int
    barriers: Int
    writer: BoxWriter
    turn: ir.Value
    sums_turn: ir.Value

    def state(self) -> list[ir.Value]:
        return [self.turn, self.sums_turn]

    def resume(self, state: list[ir.Value]) -> None:
        self.turn, self.sums_turn = state

    @property
    def _full(self) -> Int:
        return self.barriers

    @property
    def _empty(self) -> Int:
        return device.add(self.barriers, mbarrier.BYTES)

    def part(self, number: int) -> ir.Value:
        """The CTA whose share is read as number `number`: the own comes first."""
        return arith.remui(device.value(device.add(self.rank, number)), device.value(self.ctas))

    def box(self, part: Int, number: int) -> Int:
        """A box of a CTA's share."""
        at = device.add(device.mul(part, boxes_of(self.columns)), number)
        return device.add(self.boxes, device.mul(at, BOX_BYTES))

    def wait_empty(self) -> None:
        """Until the own boxes may be written again: every other CTA is done with the tile before."""
        parity = arith.xori(arith.andi(self.turn, device.value(1)), device.value(1))
        waits.on_cluster(self._empty, parity, "the other CTAs to be done with the tile sent last")

    def send(self, tile: Fragment) -> None:
        """Hands the own share out."""
        self.wait_empty()
        with device.when(self.writer.leader):
            tma.wait_read(0)  # an output may still leave from these boxes
        warps.barrier(self.writer.barrier, THREADS)
        for number in range(boxes_of(self.columns)):
            self.writer.write(self.box(self.rank, number), tile, number)
        tma.fence()
        warps.barrier(self.writer.barrier, THREADS)
        with device.when(self.writer.leader):
            mbarrier.expect(self._full, (self.ctas - 1) * boxes_of(self.columns) * BOX_BYTES)
            source = self.box(self.rank, 0)
            for other in range(1, self.ctas):
                peer = self.part(other)
                nbytes = boxes_of(self.columns) * BOX_BYTES
                cluster.copy(source, cluster.remote(source, peer), nbytes, cluster.remote(self._full, peer))
        self.turn = arith.addi(self.turn, device.value(1))

    def receive(self) -> None:
        """Until the other shares of the tile sent last are there."""
        last = arith.subi(self.turn, device.value(1))
        waits.on_cluster(self._full, arith.andi(last, device.value(1)), "the other CTAs' shares of a tile")

    def release(self) -> None:
        """After the last product has read the tile."""
        for other in range(1, self.ctas):
            cluster.remote_arrive(cluster.remote(self._empty, self.part(other)), self.writer.leader)

    def add_up(self, totals: list[ir.Value], combine: Callable[[ir.Value, ir.Value], ir.Value]) -> list[ir.Value]:
        """The numbers of the thread's two rows, in all four threads of a row the same, with those of all CTAs."""
        place = arith.andi(self.sums_turn, device.value(1))
        parity = arith.andi(arith.shrui(self.sums_turn, device.value(1)), device.value(1))
        barrier = device.add(self.barriers, device.add(device.mul(place, mbarrier.BYTES), 2 * mbarrier.BYTES))
        room = device.add(self.sums, device.mul(place, self.ctas * ROWS * _ROW_BYTES))
        first = device.equal(self.writer.pair, 0)
        with device.when(self.writer.leader):
            mbarrier.expect(barrier, (self.ctas - 1) * ROWS * _ROW_BYTES)
        with device.when(first):
            for other in range(1, self.ctas):
                peer = self.part(other)
                for h in HALVES:
                    at = cluster.remote(self._sum(room, self.rank, h), peer)
                    cluster.send_word(at, totals[h], cluster.remote(barrier, peer))
        waits.on_cluster(barrier, parity, "the other CTAs' sums of rows")
        results = list(totals)
        for other in range(1, self.ctas):
            for h in HALVES:
                pointer = device.shared(self._sum(room, self.part(other), h))
                results[h] = combine(results[h], device.load(pointer, ir.F32Type.get()))
        self.sums_turn = arith.addi(self.sums_turn, device.value(1))
        return results

    def _sum(self, room: Int, cta: Int, half: int) -> Int:
        row = device.add(self.writer.own_row, 8 * half)
        return device.add(room, device.mul(device.add(device.mul(cta, ROWS), row), _ROW_BYTES))
