"""What the CTAs of a cluster tell each other about the rows that they share: tiles and sums of rows.

*Tiles*: each CTA computes a share of a tile's columns and keeps it in registers. Each warpgroup has in its shared
memory room for its 64 rows of the other CTAs' shares, as swizzled boxes; products read them there. A share is sent
box by box as it is computed: each warp lays 16 rows of it out in shared memory and stores them, 16 bytes a thread, into
the same rows of the other CTAs' boxes. For every box `full` counts the bytes that come in; `empty` counts the other
CTAs that are done with the tile that went out.

*Sums*: one f32 for each row goes from each CTA to each other, in two places in turn: a CTA can send the next sums
only after it got the last ones, so it is never two ahead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import arith, ir
from kitsune_mlir.traffic import element_bytes

from . import cluster, mbarrier, tma, waits, warps
from .fragments import HALVES, Fragment
from .stores import BOX_BYTES, Boxes, boxes_of
from .stores import BYTES as OUTBOX_BYTES
from .warps import WARP
from .wgmma import ROWS, THREADS

WARPS = THREADS // WARP

PLACES = 2  # for sums
_ROW_BYTES = 4
_PIECE = 16  # bytes that a thread stores at once


def barrier_bytes(share_boxes: int) -> int:
    """Shared memory of a warpgroup for barriers, where a share has so many boxes."""
    return (1 + PLACES + share_boxes) * mbarrier.BYTES


def init(barriers: Int, ctas: int, share_boxes: int) -> None:
    """One thread, for a warpgroup: `empty`, one for each place of sums, `full` for each box."""
    for number in range(1 + PLACES + share_boxes):
        mbarrier.init(device.add(barriers, number * mbarrier.BYTES), 1 if number else ctas - 1)


def sums_bytes(ctas: int) -> int:
    """Shared memory of a warpgroup for sums of rows."""
    return PLACES * ctas * ROWS * _ROW_BYTES


def tiles_bytes(ctas: int, share_boxes: int) -> int:
    """Shared memory of a warpgroup for the other CTAs' shares of a tile."""
    return (ctas - 1) * share_boxes * BOX_BYTES


@dataclass
class Exchange:
    """A warpgroup's end. Behind `base`, in shared memory, the warpgroups have one after another at `boxes` room for the
    other CTAs' shares of at most `share_boxes` boxes, at `staging` their outboxes, at `sums` room for sums, at
    `barriers` that for barriers. `turn` and `sums_turn` (i32) count tiles and sums exchanged."""

    ctas: int
    share_boxes: int
    base: Int
    boxes: int
    staging: int
    sums: int
    barriers: int
    writer: Boxes
    turn: ir.Value
    sums_turn: ir.Value
    sent: int = 0  # boxes of the tile at hand, in the order of the code

    def state(self) -> list[ir.Value]:
        return [self.turn, self.sums_turn]

    def resume(self, state: list[ir.Value]) -> None:
        self.turn, self.sums_turn = state

    def _place(self, start: int, nbytes: int) -> Int:
        """Where the warpgroup's bytes begin, when each has so many."""
        return device.add(device.mul(warps.consumer(), nbytes), device.add(warps.here(self.base), start))

    @property
    def _empty(self) -> Int:
        return self._place(self.barriers, barrier_bytes(self.share_boxes))

    def _summed(self, place: Int) -> Int:
        return device.add(self._empty, device.add(device.mul(place, mbarrier.BYTES), mbarrier.BYTES))

    def _full(self, box: int) -> Int:
        return device.add(self._empty, (1 + PLACES + box) * mbarrier.BYTES)

    def part(self, number: int) -> ir.Value:
        """The CTA whose share is part number `number` of a tile: the own is part 0."""
        return arith.remui(device.value(device.add(cluster.rank(), number)), device.value(self.ctas))

    def box(self, part: int, number: int) -> Int:
        """A box of part `part`, from 1 on."""
        boxes = self._place(self.boxes, tiles_bytes(self.ctas, self.share_boxes))
        return device.add(boxes, ((part - 1) * self.share_boxes + number) * BOX_BYTES)

    def claim(self, count: int) -> None:
        """Before a share's boxes, so many, are sent: every other CTA is done with the tile before."""
        parity = arith.xori(arith.andi(self.turn, device.value(1)), device.value(1))
        waits.on_cluster(self._empty, parity, "the other CTAs to be done with the tile sent last")
        with device.when(self.writer.leader):
            tma.wait_read(0)  # an output may still leave from the staging box
            for number in range(self.share_boxes):
                comes = number < count
                mbarrier.expect(self._full(number), (self.ctas - 1) * BOX_BYTES * comes)
        warps.barrier(self.writer.barrier, THREADS)
        self.turn = arith.addi(self.turn, device.value(1))

    def send(self, tile: Fragment, number: int) -> None:
        """A box of the own share, after `claim`. A warp's rows lie together, in the same order here and there."""
        self.sent = number + 1
        staging = self._place(self.staging, OUTBOX_BYTES)
        writer = Boxes.of(warps.thread(), self.writer.leader, self.writer.barriers)
        writer.write(staging, tile, number)
        warps.sync()
        own = device.add(device.mul(writer.warp, BOX_BYTES // WARPS), device.mul(writer.lane, _PIECE))
        others = range(1, self.ctas)
        peers = [self.part(other) for other in others]
        boxes = [device.add(self.box(self.ctas - other, number), own) for other in others]
        places = [cluster.remote(box, peer) for box, peer in zip(boxes, peers)]
        signals = [cluster.remote(self._full(number), peer) for peer in peers]
        vector = ir.VectorType.get([_PIECE // 4], device.i32())
        for at in range(0, BOX_BYTES // WARPS, WARP * _PIECE):
            piece = device.load(device.shared(device.add(staging, device.add(own, at))), vector, align=_PIECE)
            for place, signal in zip(places, signals):
                cluster.send(device.add(place, at), piece, signal)
        warps.sync()

    def send_all(self, tile: Fragment, columns: int) -> None:
        """A whole share of so many columns."""
        count = boxes_of(columns, element_bytes(tile.element))
        self.claim(count)
        for number in range(count):
            self.send(tile, number)

    def receive(self, part: int, number: int) -> None:
        """Until a box of the tile sent last is there, of all parts; products may then read it."""
        if part == 1:
            last = arith.subi(self.turn, device.value(1))
            waits.on_cluster(self._full(number), arith.andi(last, device.value(1)), "the other CTAs' shares of a tile")
            tma.fence()

    def release(self) -> None:
        """After the last product has read the tile."""
        for other in range(1, self.ctas):
            cluster.remote_arrive(cluster.remote(self._empty, self.part(other)), self.writer.leader)

    def add_up(self, totals: list[ir.Value], combine: Callable[[ir.Value, ir.Value], ir.Value]) -> list[ir.Value]:
        """The numbers of the thread's two rows, in all four threads of a row the same, with those of all CTAs."""
        place = arith.andi(self.sums_turn, device.value(1))
        parity = arith.andi(arith.shrui(self.sums_turn, device.value(1)), device.value(1))
        barrier = self._summed(place)
        sums = self._place(self.sums, sums_bytes(self.ctas))
        room = device.add(sums, device.mul(place, self.ctas * ROWS * _ROW_BYTES))
        first = device.equal(self.writer.pair, 0)
        with device.when(self.writer.leader):
            mbarrier.expect(barrier, (self.ctas - 1) * ROWS * _ROW_BYTES)
        with device.when(first):
            for other in range(1, self.ctas):
                peer = self.part(other)
                for h in HALVES:
                    at = cluster.remote(self._sum(room, cluster.rank(), h), peer)
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
