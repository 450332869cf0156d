"""Tiles that wait in shared memory for a product, so that they take no registers meanwhile."""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

from typing import Any

from kitsune_mlir.mlir import ext, ir

from .checks import defined_by, fail, parent_of
from .kernels import AgentOp
from .rings import AllocRingOp
from .tiles import RingEffect
from .types import Kitsune, Ring, Slot, tile_of


class StowOp(Kitsune.Operation, name="stow", traits=[RingEffect]):
    """Lays a tile in registers out in the copy's own part of the next slot of a ring that is shared as "own", and gives
    the slot, open for products to read, and for a `release`. The slot must be empty by then: nobody else empties it. A
    tile may have fewer columns than the ring's; the slot's type has as many."""

    ring: ext.Operand[Ring]
    tile: ext.Operand[Any]
    slot: ext.Result[Slot]

    def verify_region_invariants(self) -> bool:
        if not defined_by(self.operands[0], AllocRingOp.OPERATION_NAME):
            return fail(self, "takes its ring straight from a kitsune.alloc_ring")
        ring, agent = self.operands[0].owner.operation.opview, parent_of(self, AgentOp.OPERATION_NAME)
        if agent is None:
            return fail(self, f"stands in no {AgentOp.OPERATION_NAME}")
        if ring.sharing != "own" or ring.layout != "rows":
            return fail(self, f"wants rows of a ring that is each copy's own, ring '{ring.label}' is not")
        tile, slot = self.operands[1].type, tile_of(self.results[0])
        if not isinstance(tile, ir.RankedTensorType) or tile.rank != 2 or tile.element_type != ring.tile.element_type:
            return fail(self, f"stows a tile of numbers as those of {ring.tile}, found {tile}")
        shape = [tile.shape[0] * agent.opview.count, tile.shape[1]]
        slot = ir.RankedTensorType(slot)
        if list(slot.shape) != shape or slot.element_type != tile.element_type:
            return fail(self, f"stows {tile} as a slot of {slot}, of {agent.opview.count} copies")
        if shape[0] != ring.tile.shape[0] or shape[1] > ring.tile.shape[1]:
            return fail(self, f"stows {tile} in a slot of {ring.tile}, of {agent.opview.count} copies")
        return True
