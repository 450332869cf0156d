"""mbarriers: barriers in shared memory that count arrivals and bytes (PTX ISA, Parallel Synchronization, mbarrier).

A barrier's phase completes when all its arrivals have come and all bytes it expects have landed; then
the next phase begins. A wait (waits.py) ends once the phase of the given parity is complete: right after
initialisation parity 1 counts as complete, parity 0 does not. Addresses are 32-bit, of shared memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import arith, ir, nvvm

from . import waits

BYTES = 8
Wait = Callable[[Int, Int, str, Int | None], None]  # waits.on_barrier or waits.on_cluster


def init(barrier: Int, arrivals: int) -> None:
    """One thread, once; `fence_init` and a barrier of all threads follow."""
    device.assembly("mbarrier.init.shared::cta.b64 [$0], $1;", barrier, arrivals)


def fence_init() -> None:
    """Makes initialised barriers visible to the copy engine and the cluster."""
    nvvm.FenceMbarrierInitOp()


def arrive(barrier: Int, condition: ir.Value) -> None:
    """Counts an arrival of each thread in which `condition` (i1) holds."""
    device.assembly(device.where(1, "mbarrier.arrive.shared::cta.b64 _, [$0];"), barrier, condition)


def expect(barrier: Int, nbytes: Int) -> None:
    """One arrival that also announces bytes to come."""
    device.assembly("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", barrier, nbytes)


def expect_where(barrier: Int, nbytes: int, condition: ir.Value) -> None:
    """The same of each thread in which `condition` (i1) holds."""
    text = f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], {nbytes};"
    device.assembly(device.where(1, text), barrier, condition)


def complete_where(barrier: Int, nbytes: int, condition: ir.Value) -> None:
    """Counts bytes as if they had landed, which no copy brings though they are expected, of each thread in which
    `condition` (i1) holds (PTX ISA, mbarrier.complete_tx). They are those behind the box that it copied last."""
    text = f"mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [$0], {nbytes};"
    device.assembly(device.where(1, text), barrier, condition)


@dataclass(frozen=True)
class Slot:
    """A position in a ring: the slot's number and the parity of its turn, i32; the number may be known."""

    number: Int
    parity: ir.Value

    @staticmethod
    def first() -> Slot:
        """The first of its ring, in its first turn."""
        return Slot(device.value(0), device.value(0))


@dataclass(frozen=True)
class Ring:
    """`slots` buffers of `slot_bytes` at `data`, with a full and an empty barrier each at `barriers`; `holds` says of
    what, for reports. `by_warps`: consumers' warps read for themselves, and each arrives."""

    barriers: Int
    data: Int
    slots: int
    slot_bytes: int
    holds: str = "payloads"
    by_warps: bool = False

    @property
    def barrier_bytes(self) -> int:
        return 2 * BYTES * self.slots

    def advance(self, slot: Slot) -> Slot:
        following = device.add(slot.number, 1)
        if isinstance(following, int):
            parity = slot.parity if following < self.slots else device.flipped(slot.parity)
            return Slot(following % self.slots, parity)
        wraps = device.equal(following, self.slots)
        flipped = device.flipped(slot.parity)
        number = arith.select(wraps, device.value(0), following)
        return Slot(number, arith.select(wraps, flipped, slot.parity))

    def full(self, slot: Slot) -> Int:
        return device.add(device.mul(slot.number, BYTES), self.barriers)

    def empty(self, slot: Slot) -> Int:
        return device.add(self.full(slot), self.slots * BYTES)

    def place(self, slot: Slot) -> Int:
        """The slot's first byte."""
        return device.add(device.mul(slot.number, self.slot_bytes), self.data)

    def init(self, producers: int, consumers: int) -> None:
        """One thread: `producers` arrivals fill a slot, `consumers` empty it."""
        for number in range(self.slots):
            init(device.add(self.barriers, number * BYTES), producers)
            init(device.add(self.barriers, (self.slots + number) * BYTES), consumers)

    def wait_full(self, slot: Slot, wait: Wait = waits.on_barrier) -> None:
        """A wait of the CTA suffices for what other CTAs have copied here: the bytes are there once counted here."""
        wait(self.full(slot), slot.parity, f"a full slot of the ring of {self.holds}", slot.number)

    def wait_empty(self, slot: Slot, wait: Wait = waits.on_barrier) -> None:
        """The producer's: in the first turn every slot is empty."""
        barrier, before = self.empty(slot), device.flipped(slot.parity)
        wait(barrier, before, f"a free slot of the ring of {self.holds}", slot.number)

    def release(self, slot: Slot, condition: ir.Value) -> None:
        """Counts an arrival of each thread in which `condition` (i1) holds."""
        arrive(self.empty(slot), condition)
