"""Where the CTAs of a cluster, each of which summed a part of k, add up in distributed shared memory.

CTA r of n finishes the r-th share of the tile's columns: each warpgroup stores its sums of every share, as ClusterSum
lays them out, into the shared memory of the CTA that finishes it. `full` counts the bytes that come in, `empty` the
CTAs that have read what was sent to them last. Both turn over at each meeting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kitsune_mlir.codegen.hopper import cluster, mbarrier, waits, warps
from kitsune_mlir.codegen.hopper.cluster_sum import SUMS, ClusterSum
from kitsune_mlir.codegen.hopper.fragments import BLOCK
from kitsune_mlir.codegen.hopper.mbarrier import Slot
from kitsune_mlir.codegen.hopper.wgmma import THREADS
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import arith, ir, vector

BARRIER_BYTES = 2 * mbarrier.BYTES  # of a copy
TURN = "kitsune.meet"  # among the turns of rings, that of the meetings


@dataclass(frozen=True)
class Meetings:
    """The room of an agent's copies, one behind the other: `room` bytes at `place` for sums, and barriers."""

    ctas: int
    barriers: Int
    place: Int
    room: int

    def init(self, copies: int) -> None:
        """One thread."""
        for copy in range(copies):
            barriers = device.add(self.barriers, copy * BARRIER_BYTES)
            mbarrier.init(barriers, 1)
            mbarrier.init(device.add(barriers, mbarrier.BYTES), self.ctas)

    def start(self) -> Slot:
        return Slot(device.value(0), device.value(0))

    def advance(self, turn: Slot) -> Slot:
        return Slot(turn.number, device.flipped(turn.parity))

    def add_up(self, sums: Sequence[ir.Value], turn: Slot, copy: Int, leader: ir.Value, barrier: Int) -> list[ir.Value]:
        """The own share of the sums over all CTAs, from a thread's of the whole tile. `leader` (i1) holds in one thread
        of the copy, `barrier` is the number of the copy's own."""
        full = device.add(self.barriers, device.mul(copy, BARRIER_BYTES))
        empty = device.add(full, mbarrier.BYTES)
        with device.when(leader):
            mbarrier.expect(full, len(sums) * THREADS * 4)
        before = device.flipped(turn.parity)
        waits.on_cluster(empty, before, "the other CTAs to have read the sums sent last")
        room = device.add(self.place, device.mul(copy, self.room))
        thread = device.value(device.mod(warps.thread(), THREADS))
        shares = ClusterSum(self.ctas, cluster.rank(), room, 2 * len(sums) // BLOCK, thread, THREADS)
        signals = [cluster.remote(full, cta) for cta in range(self.ctas)]
        shares.hand_out(sums, lambda cta, place, words: cluster.send(place, _bits(words), signals[cta]))
        waits.on_cluster(full, turn.parity, "the other CTAs' sums over their parts of k")
        totals = [total for block in range(shares.share) for total in shares.block(block)]
        warps.barrier(barrier, THREADS)
        for cta in range(self.ctas):
            cluster.remote_arrive(cluster.remote(empty, cta), leader)
        return totals


def _bits(words: Sequence[ir.Value]) -> ir.Value:
    """Words as a vector of i32."""
    bits = [arith.bitcast(device.i32(), x) for x in words]
    return vector.from_elements(ir.VectorType.get([SUMS], device.i32()), bits)
