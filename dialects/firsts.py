"""The first elements of rows, in their order."""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

from typing import Any

from kitsune_mlir.mlir import ext, ir

from .checks import check_kind, fail
from .types import Kitsune

MOST = 128  # elements of a row that are found at once


class FirstsOp(Kitsune.Operation, name="firsts", traits=[ext.Pure]):
    """The first elements of rows, along the last dimension, in ascending order, or, with the unit attribute
    `descending`, in descending order: `values`, and where in their rows they stand, `places` (i64). Their number is the
    last size of the results, and rows have no fewer. Equal elements stay in their order, NaN is greater than all
    numbers, and zeros are equal, as torch has it. Elements are f32, f16, bf16 or i32."""

    keys: ext.Operand[Any]
    values: ext.Result[Any]
    places: ext.Result[Any]

    @property
    def is_descending(self) -> bool:
        """Whether the largest elements are the first."""
        return "descending" in self.operation.attributes

    def verify_region_invariants(self) -> bool:
        keys, values, places = (value.type for value in (*self.operands, *self.operation.results))
        if not isinstance(keys, ir.RankedTensorType) or not keys.rank or not fits(keys.element_type):
            return fail(self, f"takes rows of f32, f16, bf16 or i32, found {keys}")
        if not check_kind(self, "descending", ir.UnitAttr, "said without a value"):
            return False
        sizes = list(values.shape) if isinstance(values, ir.RankedTensorType) else []
        if sizes[:-1] != list(keys.shape)[:-1] or len(sizes) != keys.rank or values.element_type != keys.element_type:
            return fail(self, f"gives rows like those of {keys}, found {values}")
        most = MOST if keys.is_dynamic_dim(keys.rank - 1) else min(MOST, keys.shape[keys.rank - 1])
        if not 0 < sizes[-1] <= most:
            return fail(self, f"gives 1 to {most} elements of rows of {keys}, found {values}")
        with self.operation.location:
            wanted = ir.RankedTensorType.get(sizes, ir.IntegerType.get_signless(64))
        if places != wanted:
            return fail(self, f"gives places of type {wanted}, found {places}")
        return True


def fits(element: ir.Type) -> bool:
    """Whether elements of a type are put in order."""
    if isinstance(element, ir.IntegerType):
        return element.width == 32
    return isinstance(element, ir.F32Type | ir.F16Type | ir.BF16Type)
