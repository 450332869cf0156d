"""A queue between two agents of one CTA: the slots are shared by both, a send is an arrival."""

from __future__ import annotations

from dataclasses import dataclass

from bench.queue_sides import SlotQueue
from kitsune_mlir.codegen.hopper import mbarrier
from kitsune_mlir.codegen.hopper.mbarrier import Ring, Slot
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import ir


@dataclass(frozen=True)
class SharedQueue(SlotQueue):
    """Sender and receiver in one; see queue.py. Releases of `consumers` threads free a slot."""

    ring: Ring
    consumers: int = 1

    def init(self) -> None:
        """One thread, before mbarrier.fence_init and a barrier."""
        self.ring.init(1, self.consumers)

    def send(self, slot: Slot, number: Int, leader: ir.Value) -> None:
        mbarrier.arrive(self.ring.full(slot), leader)

    def release(self, slot: Slot, leader: ir.Value) -> None:
        mbarrier.arrive(self.ring.empty(slot), leader)
