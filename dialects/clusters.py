"""What the CTAs of a kernel's cluster do together, each of which works on a part of one tile: of its sums, or of its
columns."""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

from collections.abc import Sequence
from typing import Any

from kitsune_mlir.mlir import ext, ir

from .checks import defined_by, fail, parent_of, string
from .kernels import AgentOp, KernelOp, inside
from .products import BLOCK
from .rings import DSMEM, AllocRingOp
from .tiles import RingEffect
from .types import Kitsune, Ring

WARP_ROWS = 16  # of a tile that each of a copy's warps has
JOINS = ("arith.addf", "arith.mulf", "arith.maximumf", "arith.maxnumf", "arith.minimumf", "arith.minnumf")


class RankOp(Kitsune.Operation, name="rank", traits=[ext.Pure]):
    """The number of the CTA in its cluster, from 0 on. The CTAs of a cluster have the same tiles."""

    number: ext.Result[ir.IndexType]

    def verify_region_invariants(self) -> bool:
        return inside(self, AgentOp.OPERATION_NAME)


class MeetOp(Kitsune.Operation, name="meet", traits=[RingEffect]):
    """Adds up the tile that each CTA of the cluster has, by way of the shared memory of the others, in their order. CTA
    r of n gets the r-th of n equal shares of the columns. A copy of the agent meets the same copy of the others, which
    all come here equally often."""

    tile: ext.Operand[Any]
    share: ext.Result[Any]

    def verify_region_invariants(self) -> bool:
        if (around := _around(self)) is None:
            return False
        kernel, agent = around
        count = kernel.cluster
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


class SendOp(Kitsune.Operation, name="send", traits=[RingEffect]):
    """Lays a tile in registers out in the shared memory of the other CTAs of the cluster, where it fills the next slot
    of a ring in "dsmem", as soon as they have released what was there. The first of the rings has what the next CTA
    sends, the second what the one behind that does, and so on: CTA r sends to ring i of CTA r - 1 - i, modulo their
    number. A copy of the agent sends to the same copy of the others, which all come here equally often; it takes their
    tiles by `wait`. A tile may have fewer columns than the rings'."""

    rings: Sequence[ext.Operand[Ring]]
    tile: ext.Operand[Any]

    def verify_region_invariants(self) -> bool:
        *rings, tile = self.operands
        if not all(defined_by(ring, AllocRingOp.OPERATION_NAME) for ring in rings):
            return fail(self, "takes its rings straight from kitsune.alloc_rings")
        if (around := _around(self)) is None:
            return False
        kernel, agent = around
        if len(rings) != (others := kernel.cluster - 1) or not others:
            return fail(self, f"fills a ring of each of the {others} other CTAs, found {len(rings)}")
        for ring in (ring.owner.operation.opview for ring in rings):
            if ring.memory != DSMEM:
                return fail(self, f"fills rings in {DSMEM}, ring '{ring.label}' is not")
            kind, shape = tile.type, ring.tile.shape
            if not isinstance(kind, ir.RankedTensorType) or kind.element_type != ring.tile.element_type:
                return fail(self, f"sends a tile of numbers as those of {ring.tile}, found {kind}")
            if kind.rank != 2 or kind.shape[0] * agent.count != shape[0] or kind.shape[1] > shape[1]:
                return fail(self, f"sends {kind} to a slot of {ring.tile}, of {agent.count} copies")
        return True


class CollectOp(Kitsune.Operation, name="collect", traits=[RingEffect]):
    """Lays the columns that each CTA of the cluster has of a tile side by side, those of CTA 0 first, in the shared
    memory of all of them, the own included. They fill all slots of a ring in "dsmem", one after another, as soon as all
    CTAs have released what was there. A copy of the agent gives its tile to the same copy of the others, which all come
    here equally often; each takes the whole by as many `wait`s as the ring has slots. A slot holds the columns of
    one or several CTAs, whole blocks of 8 of each. Of an agent of one copy a tile may be the first 16, 32 or 48 rows of
    the ring's, at both ends."""

    ring: ext.Operand[Ring]
    tile: ext.Operand[Any]

    def verify_region_invariants(self) -> bool:
        ring, tile = self.operands
        if not defined_by(ring, AllocRingOp.OPERATION_NAME):
            return fail(self, "takes its ring straight from a kitsune.alloc_ring")
        if (around := _around(self)) is None:
            return False
        kernel, agent = around
        count, ring, kind = kernel.cluster, ring.owner.operation.opview, tile.type
        if count < 2:
            return fail(self, f"stands in a {KernelOp.OPERATION_NAME} whose CTAs work alone")
        if ring.memory != DSMEM:
            return fail(self, f"fills a ring in {DSMEM}, ring '{ring.label}' is not")
        if not isinstance(kind, ir.RankedTensorType) or kind.element_type != ring.tile.element_type:
            return fail(self, f"collects numbers as those of {ring.tile}, found {kind}")
        if ring.tile.element_type.width != 16:
            return fail(self, f"collects numbers of 16 bits, found {ring.tile}")
        rows, columns, copies = *ring.tile.shape, agent.count
        fewer = copies == 1 and kind.rank == 2 and kind.shape[0] < rows and kind.shape[0] % WARP_ROWS == 0
        if kind.rank != 2 or kind.shape[1] % BLOCK or not fewer and kind.shape[0] * copies != rows:
            return fail(
                self, f"collects blocks of {BLOCK} columns of a slot of {ring.tile}, of {copies} copies, found {kind}"
            )
        if columns % kind.shape[1] or kind.shape[1] * count != columns * ring.slots:
            return fail(self, f"fills {ring.slots} slots of {ring.tile} with {kind} of each of {count} CTAs")
        return True


class TotalOp(Kitsune.Operation, name="total", traits=[RingEffect]):
    """Joins one number a row (f32) that each CTA of the cluster has, by way of the shared memory of the others; each
    gets the same, but for the order of sums. `join` names the operation of arith. A copy of the agent meets the same
    copy of the others, which all come here equally often."""

    part: ext.Operand[Any]
    join: ir.StringAttr
    total: ext.Result[Any]

    @property
    def join_name(self) -> str:
        return string(self, "join")

    def verify_region_invariants(self) -> bool:
        if (around := _around(self)) is None:
            return False
        kernel, agent = around
        if kernel.cluster < 2:
            return fail(self, f"stands in a {KernelOp.OPERATION_NAME} whose CTAs work alone")
        if self.join_name not in JOINS:
            return fail(self, f"join must be one of {', '.join(JOINS)}, found {self.attributes['join']}")
        part, total = (value.type for value in (self.operands[0], self.results[0]))
        numbers = isinstance(part, ir.RankedTensorType) and isinstance(part.element_type, ir.F32Type)
        if not numbers or list(part.shape[1:]) not in ([], [1]) or part != total:
            return fail(self, f"joins one f32 a row, found {part} and {total}")
        return True


def _around(op: Kitsune.Operation) -> tuple[KernelOp, AgentOp] | None:
    """The kernel and the agent that an operation stands in; without them an error says so."""
    if not inside(op, AgentOp.OPERATION_NAME) or not inside(op, KernelOp.OPERATION_NAME):
        return None
    return parent_of(op, KernelOp.OPERATION_NAME).opview, parent_of(op, AgentOp.OPERATION_NAME).opview
