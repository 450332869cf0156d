"""Split-K: the CTAs of a cluster each multiply a part of k of one tile, and add up in distributed shared memory.

CTA r of n finishes the r-th share of the tile's columns: each warpgroup stores its sums of every share, as ClusterSum
lays them out, into the shared memory of the CTA that finishes it. `full` counts the bytes that come in, `empty` the
CTAs that have read what was sent to them last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import arith, ir, vector

from . import cluster, mbarrier, waits, warps
from .cluster_sum import SUMS, ClusterSum
from .fragments import BLOCK
from .stores import Boxes
from .wgmma import THREADS

BARRIER_BYTES = 2 * mbarrier.BYTES  # of a warpgroup


def room_bytes(columns: int) -> int:
    """Shared memory of a warpgroup for sums of a tile of so many columns."""
    return columns // BLOCK * THREADS * SUMS * 4


def init(barriers: Int, ctas: int) -> None:
    """One thread, for a warpgroup."""
    mbarrier.init(barriers, 1)
    mbarrier.init(device.add(barriers, mbarrier.BYTES), ctas)


@dataclass
class SplitK:
    """A warpgroup's end, of `ctas` CTAs and tiles of `columns` columns. Behind `base`, in shared memory, the warpgroups
    have one after another at `room` room for sums, at `barriers` that for barriers. `turn` (i32) counts tiles."""

    ctas: int
    columns: int
    base: Int
    room: int
    barriers: int
    boxes: Boxes
    turn: ir.Value

    @property
    def share(self) -> int:
        """Columns that a CTA finishes."""
        return self.columns // self.ctas

    def state(self) -> list[ir.Value]:
        return [self.turn]

    def resume(self, state: list[ir.Value]) -> None:
        (self.turn,) = state

    def add_up(self, sums: Sequence[ir.Value]) -> list[ir.Value]:
        """The sums of the own share over all CTAs, from those of the whole tile over the own part of k."""
        parity = arith.andi(self.turn, device.value(1))
        before = arith.xori(parity, device.value(1))
        full, empty = self._barrier(0), self._barrier(1)
        with device.when(self.boxes.leader):
            mbarrier.expect(full, room_bytes(self.columns))
        waits.on_cluster(empty, before, "the other CTAs to have read the sums sent last")
        shares = self._shares()
        signals = [cluster.remote(full, cta) for cta in range(self.ctas)]
        shares.hand_out(sums, lambda cta, place, words: cluster.send(place, _bits(words), signals[cta]))
        waits.on_cluster(full, parity, "the other CTAs' sums over their parts of k")
        totals = [total for block in range(shares.share) for total in shares.block(block)]
        warps.barrier(self.boxes.barrier, THREADS)
        for cta in range(self.ctas):
            cluster.remote_arrive(cluster.remote(empty, cta), self.boxes.leader)
        self.turn = arith.addi(self.turn, device.value(1))
        return totals

    def _shares(self) -> ClusterSum:
        own = device.mul(warps.consumer(), room_bytes(self.columns))
        room = device.add(device.add(self.base, self.room), own)
        thread = device.value(device.mod(warps.thread(), THREADS))
        return ClusterSum(self.ctas, cluster.rank(), room, self.columns // BLOCK, thread, THREADS)

    def _barrier(self, number: int) -> Int:
        own = device.add(device.mul(warps.consumer(), BARRIER_BYTES), self.barriers + number * mbarrier.BYTES)
        return device.add(self.base, own)


def _bits(words: Sequence[ir.Value]) -> ir.Value:
    """Words as a vector of i32."""
    bits = [arith.bitcast(device.i32(), x) for x in words]
    return vector.from_elements(ir.VectorType.get([SUMS], device.i32()), bits)
