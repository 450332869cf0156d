"""Rings in L2 between roles: the slot of the tile that an agent works on (codegen/hopper/tile_ring.py has the
protocol). A warpgroup fills its rows of it by tensor copies out of its boxes; a thread that feeds copies out of it."""

from __future__ import annotations

from dataclasses import dataclass

from kitsune_mlir.codegen.hopper import waits, warps, wgmma
from kitsune_mlir.codegen.hopper.fragments import Fragment
from kitsune_mlir.codegen.hopper.mbarrier import Ring, Slot
from kitsune_mlir.codegen.hopper.stores import Boxes
from kitsune_mlir.codegen.hopper.tile_ring import TileRing
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.dialects import schedule
from kitsune_mlir.mlir import arith, ir
from kitsune_mlir.operations import users_of

from .around import Surroundings
from .exchanges import ExchangeCode


@dataclass(frozen=True)
class TileSlot:
    """The open slot of the turn's tile."""

    ring: TileRing
    tile: ir.Value


@dataclass(kw_only=True)
class BetweenCode(ExchangeCode):
    """An agent's way to rings between roles."""

    around: Surroundings

    def _open_between(self, op: ir.Operation) -> None:
        """Acquires or waits for the slot of the turn's tile; a thread that fills none of the rings that the slot is
        copied to does without."""
        ring, tile = self.around.queues[op.operands[0].owner.operation.opview.label], self.tile
        assert tile is not None
        slot = TileSlot(ring, tile)
        if op.name == schedule.AcquireOp.OPERATION_NAME:
            with device.when(self._leader()):
                ring.wait_empty(tile)
            waits.leave_if_reported()
            warps.barrier(self._own_boxes().barrier, wgmma.THREADS)  # products want all threads
        elif self._filled_from(op.results[0]):
            ring.wait_full(tile)
        self.values[hash(op.results[0])] = slot

    def _filled_from(self, slot: ir.Value) -> list[Ring]:
        """The rings that the thread fills out of a slot."""
        copies = users_of(slot, "kitsune.copy")
        labels = dict.fromkeys(schedule.ring_of(copy.operands[0]).label for copy in copies)
        return [self.around.rings[label] for label in labels if label in self.turns]

    def _commit_between(self, slot: TileSlot) -> None:
        with device.when(self._leader()):
            slot.ring.publish(slot.tile)

    def _release_between(self, op: ir.Operation, slot: TileSlot) -> None:
        """Behind the last copies into the rings: those into slots that have been filled again since have landed."""
        rings = self._filled_from(op.operands[0])
        for ring in rings:
            following = self.turns[ring.holds]
            for number in range(ring.slots):
                ring.wait_full(Slot(number, _parity_of(number, following)))
        if rings:
            slot.ring.release(slot.tile)

    def _fill(self, op: ir.Operation) -> None:
        if not op.opview.is_between_roles:
            self._fill_boxes(op)
            return
        slot, tile, column = self.values[hash(op.operands[0])], op.operands[1], self.number(op.operands[2])
        self.may_send = False
        found = self._leaving(tile)
        row = device.add(slot.ring.row(slot.tile), Boxes.of(device.thread(), self._leader()).first_row)
        self._depart(self.around.map_of[op], found, (column, row))

    def _depart(self, map_: int, tile: Fragment, at: tuple[device.Int, ...]) -> None:
        """Sends a tile by tensor copies to a column, a row, and places along further dimensions."""
        if self.products.are_pending:
            self.sent = self._outbox().send(map_, tile, at, self.sent)
        else:
            self._outbox().store(map_, tile, tile.width, at)
            self.sent = 0


def _parity_of(number: int, following: Slot) -> ir.Value:
    """The parity of the turn in which a slot was filled last, where a ring's next slot is that one."""
    if isinstance(following.number, int):
        return following.parity if number < following.number else device.flipped(following.parity)
    before = device.flipped(following.parity)
    return arith.select(device.less(number, following.number), following.parity, before)
