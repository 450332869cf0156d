"""Rows of a table that are asked for before they are read."""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

from typing import Any

from kitsune_mlir.mlir import ext, ir

from .checks import fail
from .kernels import AgentOp, inside
from .rings import ring_of
from .tiles import RingEffect
from .types import Kitsune, Slot


class PrefetchOp(Kitsune.Operation, name="prefetch", traits=[RingEffect]):
    """Asks for rows of a table in global memory, so that L2 has them when they are read: those that `rows` names, for
    each row of a tile an integer. The tile's first row is number `first` of `count`; nothing is asked for rows beyond,
    and row 0 for numbers that the table does not have. The slot, of a ring without elements, says that this was done:
    it is full once all threads of the agent have asked. Rows have multiples of 16 bytes."""

    slot: ext.Operand[Slot]
    table: ext.Operand[Any]
    rows: ext.Operand[Any]
    first: ext.Operand[ir.IndexType]
    count: ext.Operand[ir.IndexType]

    def verify_region_invariants(self) -> bool:
        if not inside(self, AgentOp.OPERATION_NAME):
            return False
        table, rows, ring = self.operands[1].type, self.operands[2].type, ring_of(self.operands[0])
        if ring is not None and ring.has_elements:
            return fail(self, f"fills slots of rings without elements, ring '{ring.label}' has tiles of {ring.tile}")
        if not isinstance(table, ir.RankedTensorType) or table.rank != 2 or table.is_dynamic_dim(1):
            return fail(self, f"asks for rows of a tensor of two dimensions, found {table}")
        if table.shape[1] * table.element_type.width % 128:
            return fail(self, f"asks for rows of multiples of 16 bytes, found {table}")
        integers = isinstance(rows, ir.RankedTensorType) and isinstance(rows.element_type, ir.IntegerType)
        return integers and rows.rank == 1 or fail(self, f"wants an integer for each row of a tile, found {rows}")
