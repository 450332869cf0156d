"""Tiles that leave through shared memory: a warpgroup writes 64 columns of its rows into a swizzled box, one thread
has the copy engine store it. Two boxes a warpgroup, so that one is written while the other leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import arith, ir

from . import tma, warps
from .fragments import BLOCK, HALVES, Fragment, blocks_of
from .wgmma import CHUNK, ROWS, THREADS

BOXES = 2
BOX_BYTES = ROWS * CHUNK * 2
BYTES = BOXES * BOX_BYTES  # of a warpgroup
_BLOCKS = CHUNK // BLOCK  # of a box


@dataclass
class Outbox:
    """A warpgroup's boxes at `place` in shared memory. `own_row` is a thread's first row among the warpgroup's 64,
    `pair` 2q (fragments.py), `barrier` the number of a barrier that only this warpgroup uses."""

    maps: ir.Value
    place: Int
    own_row: ir.Value
    pair: ir.Value
    leader: ir.Value
    barrier: Int

    def store(self, map_: int, tile: Fragment, columns: int, at: tuple[Int, Int]) -> None:
        """Sends `columns` columns of a tile to the column and row `at` of an output."""
        for group in range(-(-columns // CHUNK)):
            box = device.add(self.place, group % BOXES * BOX_BYTES)
            with device.when(self.leader):
                tma.wait_read(BOXES - 1)
            warps.barrier(self.barrier, THREADS)
            for block in range(group * _BLOCKS, min((group + 1) * _BLOCKS, blocks_of(columns))):
                start = self._start(block % _BLOCKS)
                for h in HALVES:
                    place = device.offset(
                        start, group % BOXES * BOX_BYTES + h * BLOCK * CHUNK * 2, ir.IntegerType.get_signless(8)
                    )
                    device.store(tile.words[block, h], place, align=4)
            tma.fence()
            warps.barrier(self.barrier, THREADS)
            with device.when(self.leader):
                tma.store(tma.map_pointer(self.maps, map_), (device.add(at[0], group * CHUNK), at[1]), box)
                tma.commit()

    def _start(self, block: int) -> ir.Value:
        """Where the thread's word of a block lies in the first box: 16-byte chunk block ^ (row mod 8) of its row."""
        chunk = arith.xori(device.value(block), device.value(device.mod(self.own_row, 8)))
        place = device.add(self.place, device.mul(self.own_row, CHUNK * 2))
        place = device.add(place, device.add(device.mul(chunk, 16), device.mul(self.pair, 2)))
        return device.llvm.IntToPtrOp(device.pointer_type(device.SHARED), device.value(place)).result

    def finish(self) -> None:
        """Before the kernel ends: shared memory lives until all boxes are read."""
        with device.when(self.leader):
            tma.wait_read(0)
