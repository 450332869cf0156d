"""Numbers of f32 that threads make pieces of 16 bits of, in shared memory."""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

from collections.abc import Sequence

from kitsune_mlir.mlir import ext, ir

from .checks import fail, parent_of
from .kernels import SPLIT, AgentOp
from .rings import SMEM, ring_of
from .tiles import RingEffect
from .types import Kitsune, Slot


class SplitOp(Kitsune.Operation, name=SPLIT.removeprefix("kitsune."), traits=[RingEffect]):
    """Stores the numbers of f32 in a slot as pieces of bf16, whose sum they are, in others: the first have each
    number's upper 8 bits, the next those of what is left, and the last what then is left, rounded. An agent of one copy
    fills them whole. All are in shared memory and lie in boxes of one order."""

    source: ext.Operand[Slot]
    pieces: Sequence[ext.Operand[Slot]]

    def verify_region_invariants(self) -> bool:
        agent = parent_of(self, AgentOp.OPERATION_NAME)
        if agent is None:
            return fail(self, f"stands in no {AgentOp.OPERATION_NAME}")
        if agent.opview.count != 1:
            return fail(self, f"is done by an agent of one copy, found {agent.opview.count}")
        source, *pieces = [ir.RankedTensorType(ir.TypeAttr(slot.type.elem).value) for slot in self.operands]
        same = all(piece.shape == source.shape and isinstance(piece.element_type, ir.BF16Type) for piece in pieces)
        if not isinstance(source.element_type, ir.F32Type) or not pieces or not same:
            return fail(self, f"makes pieces of bf16 of f32, found {', '.join(map(str, pieces))} of {source}")
        rings = [ring for slot in self.operands if (ring := ring_of(slot)) is not None]
        if any(ring.memory != SMEM or ring.layout != rings[0].layout for ring in rings):
            return fail(self, f"takes and fills slots in {SMEM}, in boxes of one order")
        return True
