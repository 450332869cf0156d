"""Numbers that tensors hold, as places where boxes are copied."""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

from typing import Any

from kitsune_mlir.mlir import ext, ir
from kitsune_mlir.operations import users_of

from .boxes import CopyOp
from .checks import check_integer, check_kind, fail, integer
from .kernels import AgentOp, inside
from .types import Kitsune

_SOURCE = 1  # the operand of a copy whose offsets follow


class LookUpOp(Kitsune.Operation, name="look_up", traits=[ext.Pure]):
    """Number `at` of a tensor of integers in global memory, as the place where a `kitsune.copy` finds its box along a
    dimension of `size` elements: which matrix a product of a batch is multiplied with. A number that is no such place
    is reported as that of a gather is, and place 0 is copied. With the unit attribute `wrapped` negative numbers are
    counted from the end."""

    numbers: ext.Operand[Any]
    at: ext.Operand[ir.IndexType]
    size: ir.IntegerAttr
    place: ext.Result[ir.IndexType]

    @property
    def count(self) -> int:
        return integer(self, "size")

    @property
    def is_wrapped(self) -> bool:
        """Whether negative numbers are counted from the end."""
        return "wrapped" in self.attributes

    @property
    def copies(self) -> list[ir.Operation]:
        """The copies whose boxes are found so."""
        return users_of(self.results[0])

    def verify_region_invariants(self) -> bool:
        kind = self.operands[0].type
        if not isinstance(kind, ir.RankedTensorType) or kind.rank != 1:
            return fail(self, f"takes a number of a tensor of one dimension, found {kind}")
        if not isinstance(kind.element_type, ir.IntegerType) or kind.element_type.width not in (32, 64):
            return fail(self, f"takes integers of 32 or 64 bits, found {kind}")
        if not check_integer(self, "size", 1) or not check_kind(self, "wrapped", ir.UnitAttr, "said without a value"):
            return False
        return inside(self, AgentOp.OPERATION_NAME) and all(self._verify_use(use) for use in self.results[0].uses)

    def _verify_use(self, use: ir.OpOperand) -> bool:
        op, dimension = use.owner.operation, use.operand_number - _SOURCE - 1
        if op.name != CopyOp.OPERATION_NAME or dimension < 0:
            return fail(self, f"says where a {CopyOp.OPERATION_NAME} finds its box, and nothing else, found {op.name}")
        source = op.operands[_SOURCE].type
        sizes = list(source.shape) if isinstance(source, ir.RankedTensorType) else []
        if sizes[dimension : dimension + 1] != [self.count]:
            return fail(self, f"gives one of {self.count} places along dimension {dimension} of {source}")
        if dimension in op.opview.axes:
            return fail(self, f"gives a place along dimension {dimension} of {source}, along which a box has several")
        return True
