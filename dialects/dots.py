"""Products of a warp alone: operands and sums are tiles in registers, and rings have no part in it."""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

from typing import Any

from kitsune_mlir.mlir import ext, ir

from .checks import fail, parent_of
from .kernels import AgentOp
from .types import Kitsune


class DotsOp(Kitsune.Operation, name="dots", traits=[ext.Pure]):
    """The product of left (m x k) and right (n x k), transposed, tiles in the registers of an agent of one warp: the
    dots of their rows, by mma.sync. Operands are rows of tensors, which `kitsune.read` reads, or a gather, a
    linalg.generic that takes rows of a table by number, and tiles of such rows one behind the other
    (`tensor.concat`)."""

    left: ext.Operand[Any]
    right: ext.Operand[Any]
    sums: ext.Result[Any]

    def verify_region_invariants(self) -> bool:
        kinds = [value.type for value in (*self.operands, *self.results)]
        if not all(isinstance(kind, ir.RankedTensorType) and kind.rank == 2 for kind in kinds):
            return fail(self, "multiplies tiles of two dimensions")
        left, right, sums = map(ir.RankedTensorType, kinds)
        if left.shape[1] != right.shape[1] or left.element_type != right.element_type:
            return fail(self, f"multiplies tiles of one type and width, found {left} and {right}")
        if list(sums.shape) != [left.shape[0], right.shape[0]] or not isinstance(sums.element_type, ir.F32Type):
            return fail(self, f"gives sums of f32, a row for each of {left} and a column for each of {right}'s")
        return _in_a_warp(self)


class StashOp(Kitsune.Operation, name="stash", traits=[ext.Pure]):
    """A tile in the registers of an agent of one warp, put into shared memory, from where each of its threads reads any
    element of it."""

    tile: ext.Operand[Any]
    stashed: ext.Result[Any]

    def verify_region_invariants(self) -> bool:
        if self.results[0].type != self.operands[0].type or not isinstance(self.results[0].type, ir.RankedTensorType):
            return fail(self, f"gives the tile that it takes, found {self.operands[0].type}, {self.results[0].type}")
        return _in_a_warp(self)


def _in_a_warp(op: Any) -> bool:
    agent = parent_of(op, AgentOp.OPERATION_NAME)
    if agent is None:
        return fail(op, f"stands in no {AgentOp.OPERATION_NAME}")
    if agent.opview.warp_count != 1 or agent.opview.count != 1 or agent.opview.lanes is not None:
        return fail(op, "wants an agent of one copy and one warp, whose tiles do not lie by rows")
    return True
