"""Tiles that leave through shared memory: a warpgroup writes 64 columns of its rows into a swizzled box, one thread
has the copy engine store it. Two boxes a warpgroup, so that one is written while the other leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import arith, ir

from . import tma, warps
from .fragments import BLOCK, HALVES, Fragment
from .wgmma import CHUNK, ROWS, THREADS

BOXES = 2
BOX_BYTES = ROWS * CHUNK * 2
BYTES = BOXES * BOX_BYTES  # of a warpgroup
_BLOCKS = CHUNK // BLOCK  # of a box


def boxes_of(columns: int) -> int:
    """Boxes that so many columns of a warpgroup's rows take."""
    return -(-columns // CHUNK)


@dataclass
class BoxWriter:
    """Writes tiles of a warpgroup into boxes. `own_row` is a thread's first row among the warpgroup's 64, `pair` 2q
    (fragments.py), `leader` (i1) holds in one thread, `barrier` is the number of a barrier of this warpgroup alone."""

    own_row: ir.Value
    pair: ir.Value
    leader: ir.Value
    barrier: Int

    @staticmethod
    def of(thread: ir.Value, leader: ir.Value, barrier: Int) -> BoxWriter:
        """That of the thread of this number in the CTA."""
        lane, warp = device.mod(thread, warps.WARP), device.div(device.mod(thread, THREADS), warps.WARP)
        own_row = device.add(device.mul(warp, 2 * BLOCK), device.div(lane, 4))
        return BoxWriter(device.value(own_row), device.value(device.mul(device.mod(lane, 4), 2)), leader, barrier)

    @property
    def warp(self) -> Int:
        """The thread's warp in the warpgroup, whose rows 16 * warp and on it has."""
        return device.div(self.own_row, 2 * BLOCK)

    @property
    def lane(self) -> Int:
        return device.add(device.mul(device.mod(self.own_row, BLOCK), 4), device.div(self.pair, 2))

    def write(self, box: Int, tile: Fragment, number: int) -> None:
        """The words of columns 64 * number and on, zeros beyond the tile. Four blocks of 8 x 8 at once (PTX ISA,
        stmatrix): the two halves of two neighbouring blocks; each eight lanes say where the rows of one lie."""
        row_in_block, matrix = device.mod(self.lane, BLOCK), device.div(self.lane, BLOCK)
        row = device.add(device.mul(self.warp, 2 * BLOCK), row_in_block)
        row = device.add(row, device.mul(device.mod(matrix, 2), BLOCK))
        # 16-byte chunk c of row r lies at chunk c ^ (r mod 8): that of a later pair of blocks is one xor away, done in
        # the instruction's own text, for addresses are moved out of loops and take registers there.
        chunk = arith.xori(device.value(device.div(matrix, 2)), device.value(row_in_block))
        place = device.add(device.add(box, device.mul(row, CHUNK * 2)), device.mul(chunk, 16))
        for block in range(0, _BLOCKS, 2):
            first = number * _BLOCKS + block
            words = [tile.word(each, h) for each in (first, first + 1) for h in HALVES]
            text = f"""{{
.reg .b32 place;
xor.b32 place, $0, {block * 16};
stmatrix.sync.aligned.m8n8.x4.shared.b16 [place], {{$1, $2, $3, $4}};
}}"""
            device.assembly(text, "r,r,r,r,r,~{memory}", [place, *words], None)


@dataclass
class Outbox:
    """A warpgroup's boxes at `place` in shared memory."""

    maps: ir.Value
    place: Int
    writer: BoxWriter

    def store(self, map_: int, tile: Fragment, columns: int, at: tuple[Int, Int]) -> None:
        """Sends `columns` columns of a tile to the column and row `at` of an output."""
        for group in range(boxes_of(columns)):
            box = device.add(self.place, group % BOXES * BOX_BYTES)
            with device.when(self.writer.leader):
                tma.wait_read(BOXES - 1 if group else 0)
            warps.barrier(self.writer.barrier, THREADS)
            self.writer.write(box, tile, group)
            tma.fence()
            warps.barrier(self.writer.barrier, THREADS)
            with device.when(self.writer.leader):
                tma.store(tma.map_pointer(self.maps, map_), (device.add(at[0], group * CHUNK), at[1]), box)
                tma.commit()

    def finish(self) -> None:
        """Before the kernel ends: shared memory lives until all boxes are read."""
        with device.when(self.writer.leader):
            tma.wait_read(0)
