"""What the CTAs of a kernel's cluster do together, each of which works on a part of the sums of one tile."""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

from typing import Any

from kitsune_mlir.mlir import ext, ir

from .checks import fail, parent_of
from .schedule import BLOCK, AgentOp, KernelOp
from .tiles import RingEffect
from .types import Kitsune


class RankOp(Kitsune.Operation, name="rank", traits=[ext.Pure]):
    """The number of the CTA in its cluster, from 0 on. The CTAs of a cluster have the same tiles."""

    number: ext.Result[ir.IndexType]

    def verify_region_invariants(self) -> bool:
        return parent_of(self, AgentOp.OPERATION_NAME) is not None or fail(
            self, f"stands in no {AgentOp.OPERATION_NAME}"
        )


class MeetOp(Kitsune.Operation, name="meet", traits=[RingEffect]):
    """Adds up the tile that each CTA of the cluster has, by way of the shared memory of the others, in their order. CTA
    r of n gets the r-th of n equal shares of the columns. A copy of the agent meets the same copy of the others, which
    all come here equally often."""

    tile: ext.Operand[Any]
    share: ext.Result[Any]

    def verify_region_invariants(self) -> bool:
        kernel, agent = (parent_of(self, op.OPERATION_NAME) for op in (KernelOp, AgentOp))
        if kernel is None or agent is None:
            return fail(self, f"stands in no {AgentOp.OPERATION_NAME}")
        count = kernel.opview.cluster
        if count < 2:
            return fail(self, f"stands in a {KernelOp.OPERATION_NAME} whose CTAs work alone")
        kinds = [value.type for value in (*self.operands, *self.results)]
        if not all(isinstance(kind, ir.RankedTensorType) and kind.rank == 2 for kind in kinds):
            return fail(self, f"adds up tiles of two dimensions, found {kinds[0]} and {kinds[1]}")
        whole, share = map(ir.RankedTensorType, kinds)
        if not all(isinstance(kind.element_type, ir.F32Type) for kind in (whole, share)):
            return fail(self, f"adds up tiles of f32, found {whole} and {share}")
        wanted = [whole.shape[0], whole.shape[1] // count]
        if list(share.shape) != wanted or whole.shape[1] % (count * BLOCK):
            return fail(self, f"gives whole blocks of {BLOCK} columns, one of {count} shares of {whole}, found {share}")
        return True
