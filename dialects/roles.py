"""Kernels whose CTAs differ in what they do: roles, and the rings in L2 between them."""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

from typing import Any

from kitsune_mlir.mlir import ext, ir
from kitsune_mlir.traffic import element_bytes

from .checks import check_integer, constant, fail, integer, parent_of, stands_in, string
from .kernels import ALLOC, BOX_BYTES, AgentOp, KernelOp, TilesOp, standing_in, verify_part
from .rings import SMEM, AllocRingOp, ring_of
from .tiles import RingEffect
from .types import Kitsune, Slot, tile_of


class RoleOp(Kitsune.Operation, name="role", traits=[ir.NoTerminatorTrait]):
    """What some CTAs of a kernel do, `replicas` of them, behind those of the roles that stand before: tiles, rings and
    agents as of a kernel whose CTAs are all alike. All roles have the same tiles, dealt out among each one's CTAs."""

    sym_name: ir.StringAttr
    replicas: ir.IntegerAttr
    body: ext.Region

    @property
    def label(self) -> str:
        return string(self, "sym_name")

    @property
    def cta_count(self) -> int:
        return integer(self, "replicas")

    @property
    def block(self) -> ir.Block:
        return self.regions[0].blocks[0]

    @property
    def agents(self) -> list[AgentOp]:
        return standing_in(self, AgentOp.OPERATION_NAME)

    @property
    def rings(self) -> list[AllocRingOp]:
        return standing_in(self, ALLOC)

    @property
    def tiles(self) -> TilesOp:
        return standing_in(self, TilesOp.OPERATION_NAME)[0]

    def verify_region_invariants(self) -> bool:
        return check_integer(self, "replicas", 1) and stands_in(self, KernelOp.OPERATION_NAME) and verify_part(self)


class FillOp(Kitsune.Operation, name="fill", traits=[RingEffect]):
    """Stores columns of a tile in registers, from `column` on, in the copy's rows of a slot. Of one in "l2" it begins
    to, by way of the copy's boxes in shared memory: whole boxes, or up to the end of the slot's columns. A slot in
    shared memory, whose tile lies in boxes along its rows, is filled whole by an agent of one copy."""

    slot: ext.Operand[Slot]
    tile: ext.Operand[Any]
    column: ext.Operand[ir.IndexType]

    @property
    def is_between_roles(self) -> bool:
        """Whether the slot lies in "l2"."""
        ring = ring_of(self.operands[0])
        return ring is not None and ring.is_between_roles

    def verify_region_invariants(self) -> bool:
        agent, ring = parent_of(self, AgentOp.OPERATION_NAME), ring_of(self.operands[0])
        if agent is None:
            return fail(self, f"stands in no {AgentOp.OPERATION_NAME}")
        whole, tile = tile_of(self.operands[0]), self.operands[1].type
        if ring is not None and ring.layout != "rows":
            return fail(self, f"fills rows of slots, ring '{ring.label}' has {ring.layout}")
        if not isinstance(tile, ir.RankedTensorType) or tile.rank != 2 or tile.element_type != whole.element_type:
            return fail(self, f"stores numbers as those of {whole}, found {tile}")
        rows, columns = tile.shape
        if rows * agent.opview.count != whole.shape[0] or columns > whole.shape[1]:
            return fail(self, f"stores {tile} in a slot of {whole}, of {agent.opview.count} copies")
        first, nbytes = constant(self.operands[2]), element_bytes(tile.element_type)
        if not self.is_between_roles:
            alone = tile == whole and first == 0 and nbytes == 2
            return alone or fail(
                self, f"fills a slot of 16-bit elements in {SMEM} whole, found {tile} from column {first} for {whole}"
            )
        if columns < whole.shape[1] and columns * nbytes % BOX_BYTES:
            return fail(self, f"stores boxes of {BOX_BYTES} bytes of each row, found {tile} for {whole}")
        if first is not None and (first * nbytes % BOX_BYTES or not 0 <= first < whole.shape[1]):
            return fail(self, f"stores whole boxes of {BOX_BYTES} bytes of a slot's columns, found column {first}")
        return True
