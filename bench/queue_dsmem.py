"""A queue between two CTAs of a cluster, through distributed shared memory.

Both CTAs have the ring at the same addresses. The payload is written into the sender's slot and copied into the
receiver's, completing on the receiver's full barrier, which the receiver itself told to expect it when it freed the
slot; bytes that land before that count all the same, for the phase lacks the arrival (PTX ISA, mbarrier, tx-count).
The receiver frees the slot, on both sides at once, by arriving at the sender's empty barrier: its reads come before
that, so before the next copy; and the last copy had read the sender's slot when its bytes landed. The kernel ends
with `cluster.barrier`.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.queue_sides import SlotQueue
from kitsune_mlir.codegen.hopper import cluster, mbarrier, waits
from kitsune_mlir.codegen.hopper.mbarrier import Ring, Slot
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import ir


@dataclass(frozen=True)
class ClusterQueue(SlotQueue):
    """Sender and receiver in one (queue.py). `peer` is the rank of the CTA at the other end; a payload is `nbytes`."""

    ring: Ring
    peer: Int
    nbytes: int
    wait_on = staticmethod(waits.on_cluster)

    def init(self) -> None:
        """One thread of each CTA, before mbarrier.fence_init and cluster.barrier."""
        self.ring.init(1, 1)
        for number in range(self.ring.slots):
            mbarrier.expect(self.ring.full(Slot(device.value(number), device.value(0))), self.nbytes)

    def send(self, slot: Slot, number: Int, leader: ir.Value) -> None:
        full = cluster.remote(self.ring.full(slot), self.peer)
        place = self.ring.place(slot)
        with device.when(leader):
            cluster.copy(place, cluster.remote(place, self.peer), self.nbytes, full)

    def release(self, slot: Slot, leader: ir.Value) -> None:
        with device.when(leader):
            mbarrier.expect(self.ring.full(slot), self.nbytes)
        cluster.remote_arrive(cluster.remote(self.ring.empty(slot), self.peer), leader)
