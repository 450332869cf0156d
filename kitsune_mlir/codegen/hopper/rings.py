"""The rings that a role's warps go through, each with the slot it comes to next: producer and consumers alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.mlir import arith, ir

from .exchange import Exchange
from .mbarrier import Ring, Slot
from .stores import Boxes

Used = tuple[Slot, Slot | None]  # of weights, of tiles


@dataclass
class Rings:
    """A ring of weights, perhaps one of streamed tiles, a warpgroup's end of the cluster's exchange."""

    weights: Ring
    tiles: Ring | None
    weight: Slot
    tile: Slot | None
    exchange: Exchange | None = None

    def state(self) -> list[ir.Value]:
        slots = [self.weight] if self.tile is None else [self.weight, self.tile]
        counted = self.exchange.state() if self.exchange is not None else []
        return [*(x for slot in slots for x in (slot.number, slot.parity)), *counted]

    def resume(self, state: list[ir.Value]) -> list[ir.Value]:
        """Takes up `state` in a loop; gives back what follows it."""
        self.weight, rest = Slot(*state[:2]), state[2:]
        if self.tile is not None:
            self.tile, rest = Slot(*rest[:2]), rest[2:]
        if self.exchange is not None:
            count = len(self.exchange.state())
            self.exchange.resume(rest[:count])
            rest = rest[count:]
        return rest

    def step_on(self, streamed: bool) -> Used:
        """Goes to the next slots, of tiles too when one was `streamed`; gives those just used."""
        used = self.weight, self.tile if streamed else None
        self.weight = self.weights.advance(self.weight)
        if streamed:
            assert self.tiles is not None and self.tile is not None
            self.tile = self.tiles.advance(self.tile)
        return used

    def release(self, used: Used, boxes: Boxes, unless: ir.Value | None = None) -> None:
        """The warpgroup of a thread at `boxes` is done with these slots, but for when `unless` (i1) holds."""
        for ring, slot in zip((self.weights, self.tiles), used):
            if slot is not None:
                assert ring is not None
                condition = device.equal(boxes.lane, 0) if ring.by_warps else boxes.leader
                if unless is not None:
                    condition = arith.andi(condition, arith.xori(unless, arith.constant(unless.type, 1)))
                ring.release(slot, condition)


def numbers_of(used: Used) -> list[ir.Value]:
    """Slots as they go around a loop."""
    return [x for slot in used if slot is not None for x in (slot.number, slot.parity)]


def slots_of(numbers: Sequence[ir.Value]) -> Used:
    """Slots of weights and of tiles from such numbers."""
    return Slot(*numbers[:2]), Slot(*numbers[2:4])
