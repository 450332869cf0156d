"""A queue between two agents of one CTA: the slots are shared by both, a send is an arrival."""

from __future__ import annotations

from dataclasses import dataclass

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import arith, ir

from . import mbarrier, waits
from .mbarrier import Ring, Slot
from .waits import Watchdog


@dataclass(frozen=True)
class SharedQueue:
    """Sender and receiver in one; see queue.py. Releases of `consumers` threads free a slot."""

    ring: Ring
    consumers: int = 1
    watchdog: Watchdog | None = None
    fetches = False

    def init(self) -> None:
        """One thread, before mbarrier.fence_init and a barrier."""
        self.ring.init(1, self.consumers)

    def wait_free(self, slot: Slot) -> None:
        waits.on_barrier(self.ring.empty(slot), arith.xori(slot.parity, device.value(1)), self.watchdog)

    def place(self, slot: Slot) -> Int:
        return self.ring.place(slot)

    def send(self, slot: Slot, number: Int, leader: ir.Value) -> None:
        mbarrier.arrive(self.ring.full(slot), leader)

    def finish(self, count: Int) -> None:
        """Nothing is under way."""

    def state(self) -> list[ir.Value]:
        return []

    def resume(self, state: list[ir.Value]) -> None:
        """Nothing is remembered."""

    def fetch(self, count: Int) -> None:
        """Payloads are where they were written."""

    def wait(self, slot: Slot) -> None:
        waits.on_barrier(self.ring.full(slot), slot.parity, self.watchdog)

    def release(self, slot: Slot, leader: ir.Value) -> None:
        mbarrier.arrive(self.ring.empty(slot), leader)
