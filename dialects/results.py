"""What takes outputs of pipelines and kernels out as tensors."""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

from collections.abc import Sequence
from typing import Any

from kitsune_mlir.mlir import ext, ir

from .checks import check_integer, defined_by, fail, integer
from .types import Kitsune, Outputs


class ResultOp(Kitsune.Operation, name="result", traits=[ext.Pure]):
    """Output `index` of a pipeline or a kernel as a whole tensor. Where a kernel's tensors have several sizes that are
    open until the call, `sizes` are those of the result, in the order of its dimensions, each a tensor.dim of a tensor
    that the kernel uses; without them all open sizes of the kernel are the same one."""

    pipeline: ext.Operand[Outputs]
    sizes: Sequence[ext.Operand[ir.IndexType]]
    index: ir.IntegerAttr
    whole: ext.Result[Any]

    @property
    def position(self) -> int:
        return integer(self, "index")

    @property
    def size_operands(self) -> list[ir.Value]:
        """Its open sizes, in the order of its dimensions; none where the kernel has one alone."""
        return list(self.operands)[1:]

    @property
    def store(self) -> Any:
        """What writes this output."""
        stores = self.operands[0].owner.operation.opview.stores
        return next((store for store in stores if store.position == self.position), None)

    def verify_region_invariants(self) -> bool:
        if not defined_by(self.operands[0], "kitsune.pipeline", "kitsune.kernel"):
            return fail(self, "takes its operand straight from a kitsune.pipeline or a kitsune.kernel")
        wanted = self.results[0].type.shape.count(ir.ShapedType.get_dynamic_size()) if self.size_operands else 0
        if len(self.size_operands) != wanted:
            return fail(
                self, f"has {len(self.size_operands)} sizes for the {wanted} open ones of {self.results[0].type}"
            )
        return check_integer(self, "index", 0)


def result(outputs: ir.Value, number: int, kind: ir.Type, sizes: Sequence[ir.Value] = ()) -> ir.Value:
    """Output `number` of a pipeline or a kernel as a whole tensor of this type, at the insertion point; `sizes` as a
    kitsune.result has them."""
    index = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)
    made = ResultOp(outputs, sizes, index, kind)
    del made.operation.attributes["operandSegmentSizes"]  # the first operand is one
    return made.results[0]
