"""Queues of tiles between CTAs: rings of tiles in global memory that stay in L2, written and read by tensor copies.

    warpgroup -> swizzled boxes (shared) -> slot of the ring (global) -> swizzled boxes (shared) -> products

Tile t lies in slot t mod depth, its turn is t div depth. Of each slot `full` counts the warpgroups that stored
their rows of a turn, `empty` the warpgroups of consumers that are done with it. The stores of a warpgroup have ended
before it adds to `full` with release at GPU scope; the thread that copies the tile in acquires it, and a proxy
fence stands between that and its copies (PTX ISA, Memory Consistency Model; Async proxy). Paper: section 4.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.counters import COUNTER_BYTES, FIRST_AT
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.dialects.types import Ring
from kitsune_mlir.mlir import ir, location
from kitsune_mlir.traffic import element_bytes

from . import bulk, waits

_ALIGN = 256


@dataclass(frozen=True)
class RingPlace:
    """The queue's name, and where in the model it is; byte offsets in the workspace, slots, and how many stages take
    from the ring."""

    name: str
    location: str
    counters: int
    data: int
    slots: int
    consumers: int


def places(rings: Sequence[tuple[ir.OpView, Ring, int]]) -> tuple[dict[str, RingPlace], int, int]:
    """Where rings lie in the workspace, of operations with a label, each with its type and so many consumers: by label;
    bytes of all counters, in all (codegen/pipeline/counters.py)."""
    at, counters = FIRST_AT, {}
    for op, ring, _ in rings:
        counters[op.label] = at
        at += 2 * COUNTER_BYTES * ring.slots
    counted, found = at, {}
    for op, ring, consumers in rings:
        at = -(-at // _ALIGN) * _ALIGN
        name, where = op.label, location(op.operation.location)
        found[name] = RingPlace(name, where, counters[name], at, ring.slots, consumers)
        at += ring.slots * prod(ring.tile.shape) * element_bytes(ring.tile.element_type)
    return found, counted, at if rings else 0


def crosses(queue: kitsune.QueueOp) -> bool:
    """Whether a queue leaves the CTA."""
    return queue.transport in ("l2", "hbm")


@dataclass(frozen=True)
class TileRing:
    """A ring in a kernel; `workspace` is the address of the workspace. Each function is for one thread; `makers` of
    them publish a tile, `takers` for each consumer release it."""

    place: RingPlace
    workspace: ir.Value
    rows: int  # of a tile
    makers: int
    takers: int

    def row(self, tile: ir.Value) -> device.Int:
        """The first row of a tile's slot in the tensor of all slots."""
        return device.mul(device.mod(tile, self.place.slots), self.rows)

    def _counter(self, tile: ir.Value, which: int) -> ir.Value:
        slot = device.add(device.mul(device.mod(tile, self.place.slots), 2), which)
        at = device.add(device.mul(slot, COUNTER_BYTES), self.place.counters)
        return device.offset(self.workspace, at, ir.IntegerType.get_signless(8))

    def wait_full(self, tile: ir.Value) -> None:
        """Before the tile is copied in."""
        turn = device.add(device.div(tile, self.place.slots), 1)
        self._wait(self._counter(tile, 0), device.mul(turn, self.makers), "the tile")

    def wait_empty(self, tile: ir.Value) -> None:
        """Before a warpgroup stores into the tile's slot."""
        released = device.mul(device.div(tile, self.place.slots), self.takers * self.place.consumers)
        self._wait(self._counter(tile, 1), released, "a free slot")

    def _wait(self, counter: ir.Value, least: device.Int, awaited: str) -> None:
        waits.on_counter(counter, least, f"{awaited} of queue '{self.place.name}'", self.place.location)
        bulk.fence_global()

    def publish(self, tile: ir.Value) -> None:
        """After the warpgroup's last store: waits until they have ended."""
        bulk.wait(0)
        bulk.fence_global()
        device.signal(self._counter(tile, 0))

    def release(self, tile: ir.Value) -> None:
        """After the warpgroup's last product of the tile."""
        device.signal(self._counter(tile, 1))
