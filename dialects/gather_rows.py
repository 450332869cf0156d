"""Rows of a table that threads gather into slots."""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

from typing import Any

from kitsune_mlir.mlir import ext, ir

from .checks import fail
from .kernels import BOX_BYTES, AgentOp, inside
from .rings import SMEM, ring_of
from .tiles import RingEffect
from .types import Kitsune, Slot, Token, tile_of

GRANULE = 16  # bytes that a thread copies at once


class GatherRowsOp(Kitsune.Operation, name="gather_rows", traits=[RingEffect]):
    """Begins to copy columns of rows of a table in global memory into a slot, from column `column` on: the rows that
    `rows` names, for each row of the tile an integer. The tile's first row is number `first` of `count`; rows beyond
    are zero, and so are columns that the table does not have. A number that is no row of the table is reported as that
    of a gather is, and row 0 is copied. The threads of the agent copy 16 bytes each at a time (PTX ISA, cp.async):
    whoever commits the slot waits until what it has copied is there, while copies that began later go on."""

    slot: ext.Operand[Slot]
    table: ext.Operand[Any]
    rows: ext.Operand[Any]
    first: ext.Operand[ir.IndexType]
    count: ext.Operand[ir.IndexType]
    column: ext.Operand[ir.IndexType]
    done: ext.Result[Token]

    def verify_region_invariants(self) -> bool:
        if not inside(self, AgentOp.OPERATION_NAME):
            return False
        table, rows, ring = self.operands[1].type, self.operands[2].type, ring_of(self.operands[0])
        tile = tile_of(self.operands[0])
        if not isinstance(table, ir.RankedTensorType) or table.rank != 2 or table.is_dynamic_dim(1):
            return fail(self, f"copies rows of a tensor of two dimensions, found {table}")
        if table.element_type != tile.element_type:
            return fail(self, f"moves elements of {table} as those of {tile}")
        if table.shape[1] * table.element_type.width // 8 % GRANULE:
            return fail(self, f"copies rows of multiples of {GRANULE} bytes, found {table}")
        if tile.shape[1] * tile.element_type.width // 8 != BOX_BYTES:
            return fail(self, f"fills slots of rows of {BOX_BYTES} bytes, found {tile}")
        if ring is not None and (ring.layout != "rows" or ring.memory != SMEM):
            return fail(self, f"fills boxes along rows in {SMEM}, ring '{ring.label}' has {ring.layout}")
        integers = isinstance(rows, ir.RankedTensorType) and isinstance(rows.element_type, ir.IntegerType)
        if not integers or list(rows.shape) != list(tile.shape)[:1]:
            return fail(self, f"wants an integer for each row of {tile}, found {rows}")
        return True
