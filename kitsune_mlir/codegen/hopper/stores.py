"""Tiles that leave through shared memory: a warpgroup writes 64 columns of its rows into a swizzled box, one thread
has the copy engine store it. Two boxes a warpgroup, so that one is written while the other leaves.
"""

from __future__ import annotations

from collections.abc import Callable
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


@dataclass
class BoxWriter:
    """Writes tiles of a warpgroup into boxes. `own_row` is a thread's first row among the warpgroup's 64, `pair` 2q
    (fragments.py), `leader` (i1) holds in one thread, `barrier` is the number of a barrier of this warpgroup alone."""

    own_row: ir.Value
    pair: ir.Value
    leader: ir.Value
    barrier: Int

    def write(self, box: Int, tile: Fragment, number: int) -> None:
        """The words of columns 64 * number and on, zeros beyond the tile."""
        for block in range(_BLOCKS):
            start = self._start(box, block)
            for h in HALVES:
                place = device.offset(start, h * BLOCK * CHUNK * 2, ir.IntegerType.get_signless(8))
                device.store(tile.word(number * _BLOCKS + block, h), place, align=4)

    def _start(self, box: Int, block: int) -> ir.Value:
        """Where the thread's word of a block lies: 16-byte chunk block ^ (row mod 8) of its row."""
        chunk = arith.xori(device.value(block), device.value(device.mod(self.own_row, 8)))
        place = device.add(device.mul(self.own_row, CHUNK * 2), device.mul(self.pair, 2))
        place = device.add(box, device.add(place, device.mul(chunk, 16)))
        return device.shared(place)


@dataclass
class Outbox:
    """A warpgroup's boxes at `place` in shared memory; `claim` is called, in code, before they are written."""

    maps: ir.Value
    place: Int
    writer: BoxWriter
    claim: Callable[[], None] | None = None

    def store(self, map_: int, tile: Fragment, columns: int, at: tuple[Int, Int]) -> None:
        """Sends `columns` columns of a tile to the column and row `at` of an output."""
        if self.claim is not None:
            self.claim()
        for group in range(-(-columns // CHUNK)):
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
