"""The order of rows by an integer of each."""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

from collections.abc import Sequence
from typing import Any

from kitsune_mlir.mlir import ext, ir

from .checks import fail
from .types import Kitsune

MOST_CARRIED = 8  # bytes of a row besides its key and its number: what is written for a row is 16 bytes


class OrderOp(Kitsune.Operation, name="order", traits=[ext.Pure]):
    """The order of rows by their keys, integers from 0 to `count` - 1: `rows` are the numbers of the rows (i32), those
    of key 0 first, and `places` says for each row where its number stands there. Rows with the same key stand in their
    order, those with a key that is none behind all others. `moved` are the vectors `carried` in that order: the keys,
    and others of their type of 8 bytes a row together. There are fewer than 2^31 rows and keys."""

    keys: ext.Operand[Any]
    count: ext.Operand[ir.IndexType]
    carried: Sequence[ext.Operand[Any]]
    rows: ext.Result[Any]
    places: ext.Result[Any]
    moved: Sequence[ext.Result[Any]]

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
        carried, moved = ([value.type for value in values][2:] for values in (self.operands, self.results))
        if len(carried) != len(moved) or any(kind != keys for kind in (*carried, *moved)):
            kinds = " and ".join(", ".join(map(str, found)) or "none" for found in (carried, moved))
            return fail(self, f"carries vectors of type {keys} and gives as many, found {kinds}")
        others = [value for value in list(self.operands)[2:] if value != self.operands[0]]
        if len(others) * keys.element_type.width > 8 * MOST_CARRIED:
            return fail(self, f"carries {MOST_CARRIED} bytes a row besides the keys, found {len(others)} vectors")
        return True
