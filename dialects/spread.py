"""Columns of a tile that all threads of a row have."""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

from typing import Any

from kitsune_mlir.mlir import ext, ir

from .checks import fail
from .kernels import AgentOp, inside
from .types import Kitsune

WORD_BITS = 32


class SpreadOp(Kitsune.Operation, name="spread", traits=[ext.Pure]):
    """The same tile in a warpgroup's registers, of which all threads that have a row together have these `columns`.
    A thread has some of a row's columns: an operator may read others all over the row, a gate say, only if they were
    spread. Elements are of 32 bits or fewer."""

    tile: ext.Operand[Any]
    spread: ext.Result[Any]

    @property
    def columns(self) -> list[int]:
        return list(ir.DenseI64ArrayAttr(self.attributes["columns"]))

    def verify_region_invariants(self) -> bool:
        type_ = self.operands[0].type
        if self.results[0].type != type_ or not isinstance(type_, ir.RankedTensorType) or type_.rank != 2:
            return fail(self, f"gives the tile of two dimensions that it takes, found {type_}, {self.results[0].type}")
        if not isinstance(type_.element_type, ir.FloatType | ir.IntegerType) or type_.element_type.width > WORD_BITS:
            return fail(self, f"spreads elements of {WORD_BITS} bits or fewer, found {type_.element_type}")
        if "columns" not in self.attributes or not isinstance(self.attributes["columns"], ir.DenseI64ArrayAttr):
            return fail(self, "has an attribute columns, an array of i64")
        if not self.columns or not all(0 <= column < type_.shape[1] for column in self.columns):
            return fail(self, f"spreads columns of {type_}, found {self.columns}")
        return inside(self, AgentOp.OPERATION_NAME)
