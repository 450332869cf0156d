"""Queues of payloads between two agents (groups of warps), the same to them on every transport.

The sender writes a payload into its shared memory, the receiver reads it in its own; both see a ring of slots and go
through it with `mbarrier.Slot`; `leader` (i1) holds in one thread of an agent, always the same:

    sender, for each payload             receiver, for each payload
        wait_free(slot)                      wait(slot)
        write at place(slot)                 read at place(slot)
        tma.fence(), barrier of the agent    barrier of the agent
        send(slot, number, leader)           release(slot, leader)
    the leader: finish(count)            a thread beside the readers, if `fetches`: fetch(count)

Transports, a file each: queue_smem (one CTA), queue_dsmem (two CTAs of a cluster), queue_l2 (any two CTAs); registers,
where the agents are the same threads, are in queue_kernels. A queue lives for one launch; counters in global memory
are zero before and after it, so launches need nothing between them and can be captured into a graph.
"""

from __future__ import annotations

from typing import Protocol

from kitsune_mlir.codegen.hopper import waits
from kitsune_mlir.codegen.hopper.mbarrier import Ring, Slot
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import ir


class Sender(Protocol):
    """The sending end. `state` and `resume` carry what it remembers through loops."""

    def wait_free(self, slot: Slot) -> None:
        """Each writing thread: until the slot may be written."""

    def place(self, slot: Slot) -> Int:
        """The slot's first byte in the sender's shared memory."""

    def send(self, slot: Slot, number: Int, leader: ir.Value) -> None:
        """After the last write: hands payload `number` over."""

    def finish(self, count: Int) -> None:
        """The leader, after `count` payloads: returns when nothing is under way that needs the sender."""

    def state(self) -> list[ir.Value]:
        """What threads carry from payload to payload."""

    def resume(self, state: list[ir.Value]) -> None:
        """Takes `state` up in a loop's body."""


class Receiver(Protocol):
    """The receiving end."""

    fetches: bool

    def fetch(self, count: Int) -> None:
        """One thread of its own: brings `count` payloads in. Nothing to do where the sender does it."""

    def wait(self, slot: Slot) -> None:
        """Each reading thread: until the slot's payload is there."""

    def place(self, slot: Slot) -> Int:
        """The payload's first byte in the receiver's shared memory."""

    def release(self, slot: Slot, leader: ir.Value) -> None:
        """After the last read: the slot may be written again."""


class SlotQueue:
    """What the queues have in common whose two ends see one ring of slots in shared memory: sender and receiver in
    one, nothing remembered, nothing to fetch, nothing under way when the last payload is released."""

    ring: Ring
    fetches = False
    wait_on = staticmethod(waits.on_barrier)

    def wait_free(self, slot: Slot) -> None:
        self.ring.wait_empty(slot, self.wait_on)

    def place(self, slot: Slot) -> Int:
        return self.ring.place(slot)

    def finish(self, count: Int) -> None:
        """Nothing to do: the last barrier of a cluster's kernel waits for the receiver, and so for every copy."""

    def state(self) -> list[ir.Value]:
        return []

    def resume(self, state: list[ir.Value]) -> None:
        """Nothing is remembered."""

    def fetch(self, count: Int) -> None:
        """Payloads come by themselves."""

    def wait(self, slot: Slot) -> None:
        self.ring.wait_full(slot, self.wait_on)
