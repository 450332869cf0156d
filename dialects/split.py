"""Numbers of f32 that threads turn, or make pieces of 16 bits of, in shared memory."""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

from collections.abc import Sequence

from kitsune_mlir.mlir import ext, ir

from .checks import fail, parent_of
from .kernels import SPLIT, AgentOp
from .rings import SMEM, ring_of
from .tiles import RingEffect
from .types import Kitsune, Slot, tile_of

TURNED = 32  # numbers of f32 in a row of a box


class SplitOp(Kitsune.Operation, name=SPLIT.removeprefix("kitsune."), traits=[RingEffect]):
    """Stores the numbers of f32 in a slot as pieces of bf16, whose sum they are, in others: the first have each
    number's upper 8 bits, the next those of what is left, and the last what then is left, rounded. These lie in
    boxes of the order that the source has. Or it stores them as they are in one other slot, in boxes of the other
    order: rows of 32 numbers along k, as products in tf32 take them. An agent of one copy fills the slots whole, all in
    shared memory."""

    source: ext.Operand[Slot]
    pieces: Sequence[ext.Operand[Slot]]

    def verify_region_invariants(self) -> bool:
        agent = parent_of(self, AgentOp.OPERATION_NAME)
        if agent is None:
            return fail(self, f"stands in no {AgentOp.OPERATION_NAME}")
        if agent.opview.count != 1:
            return fail(self, f"is done by an agent of one copy, found {agent.opview.count}")
        source, *pieces = [tile_of(slot) for slot in self.operands]
        kind = ir.F32Type if self.is_turned else ir.BF16Type
        same = all(piece.shape == source.shape and isinstance(piece.element_type, kind) for piece in pieces)
        if not isinstance(source.element_type, ir.F32Type) or not pieces or not same:
            return fail(self, f"makes pieces of bf16 of f32, found {', '.join(map(str, pieces))} of {source}")
        if self.is_turned and (source.shape[0] % TURNED or source.shape[1] != TURNED):
            return fail(self, f"turns blocks of {TURNED} by {TURNED} numbers, found {source}")
        first, *others = [ring for slot in self.operands if (ring := ring_of(slot)) is not None]
        as_they_lie = all((ring.layout == first.layout) != self.is_turned for ring in others)
        if any(ring.memory != SMEM for ring in (first, *others)) or not as_they_lie:
            order = "the other order" if self.is_turned else "one order"
            return fail(self, f"takes and fills slots in {SMEM}, in boxes of {order}")
        return True

    @property
    def is_turned(self) -> bool:
        """Whether the numbers stay f32, in boxes of the other order."""
        pieces = [tile_of(slot) for slot in list(self.operands)[1:]]
        return [str(piece.element_type) for piece in pieces] == ["f32"]
