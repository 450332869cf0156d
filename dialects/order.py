"""The order of rows by an integer of each."""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

from typing import Any

from kitsune_mlir.mlir import ext, ir

from .checks import fail
from .types import Kitsune


class OrderOp(Kitsune.Operation, name="order", traits=[ext.Pure]):
    """The order of rows by their keys, integers from 0 to `count` - 1: `rows` are the numbers of the rows (i32), those
    of key 0 first, and `places` says for each row where its number stands there. Rows with the same key stand in any
    order, those with a key that is none behind all others. There are fewer than 2^31 rows and keys."""

    keys: ext.Operand[Any]
    count: ext.Operand[ir.IndexType]
    rows: ext.Result[Any]
    places: ext.Result[Any]

    def verify_region_invariants(self) -> bool:
        keys, rows, places = self.operands[0].type, self.results[0].type, self.results[1].type
        if not isinstance(keys, ir.RankedTensorType) or keys.rank != 1:
            return fail(self, f"takes a tensor of one dimension, found {keys}")
        if not isinstance(keys.element_type, ir.IntegerType) or keys.element_type.width not in (32, 64):
            return fail(self, f"takes keys of 32 or 64 bits, found {keys}")
        with self.operation.location:
            wanted = ir.RankedTensorType.get(keys.shape, ir.IntegerType.get_signless(32))
        if rows != wanted or places != wanted:
            return fail(self, f"makes two tensors of type {wanted}, found {rows} and {places}")
        return True
