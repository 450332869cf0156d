"""Where the CTAs of a cluster, each of which summed a part of k, add up in distributed shared memory.

Every CTA has the same elements of the sum in the registers of its threads, blocks of 8 columns as wgmma leaves them.
CTA r of n adds the r-th share of the blocks: each thread writes the four sums of a block as one word of 16 bytes to the
shared memory of the CTA that adds them, where the same thread reads them again, all CTAs' one after another: the order
is fixed, so results do not change from run to run. `full` counts the bytes that come in, `empty` the CTAs that have
read what was sent to them last. Both turn over at each meeting.

    room of a copy in each CTA: for each CTA of the cluster, for each block of the share, a word of each thread
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kitsune_mlir.codegen.hopper import cluster, mbarrier, waits, warps
from kitsune_mlir.codegen.hopper.mbarrier import Slot
from kitsune_mlir.codegen.hopper.wgmma import THREADS
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import arith, ir

BARRIER_BYTES = 2 * mbarrier.BYTES  # of a copy
SUMS = 4  # of a thread in a block
_WORD = 4 * SUMS  # bytes
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
        room, share = device.add(self.place, device.mul(copy, self.room)), len(sums) // (SUMS * self.ctas)
        thread, rank = device.value(device.mod(warps.thread(), THREADS)), cluster.rank()

        def place(cta: Int, block: int) -> Int:
            """Where the thread's word of a block from a CTA lies."""
            at = device.mul(device.add(device.mul(cta, share), block), THREADS * _WORD)
            return device.add(device.add(room, at), device.mul(thread, _WORD))

        signals = [cluster.remote(full, cta) for cta in range(self.ctas)]
        own = place(rank, 0)
        for cta, signal in enumerate(signals):
            there = cluster.remote(own, cta)
            for block in range(share):
                words = [arith.bitcast(device.i32(), x) for x in sums[SUMS * (cta * share + block) :][:SUMS]]
                cluster.send(device.add(there, block * THREADS * _WORD), device.whole(words), signal)
        waits.on_cluster(full, turn.parity, "the other CTAs' sums over their parts of k")
        totals = [total for block in range(share) for total in _added([place(cta, block) for cta in range(self.ctas)])]
        warps.barrier(barrier, THREADS)
        for cta in range(self.ctas):
            cluster.remote_arrive(cluster.remote(empty, cta), leader)
        return totals


def _added(places: Sequence[Int]) -> list[ir.Value]:
    """The sums that stand at these places, added in their order."""
    totals: list[ir.Value] = []
    for place in places:
        parts = device.load_together(device.shared(place), SUMS, ir.F32Type.get())
        totals = [arith.addf(total, part) for total, part in zip(totals, parts)] if totals else parts
    return totals
