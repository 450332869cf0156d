"""Reductions that may be split: an associative operation that joins partial results, of any width."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kitsune_mlir.mlir import arith, gpu, ir
from kitsune_mlir.operations import made_by, producer, users_of

from .gpu_kernel import WARP, shuffled

FLOATS = {
    "arith.addf": 0.0,
    "arith.mulf": 1.0,
    "arith.maximumf": -math.inf,
    "arith.maxnumf": -math.inf,
    "arith.minimumf": math.inf,
    "arith.minnumf": math.inf,
}
_INTEGER = ("arith.addi", "arith.muli", "arith.maxsi", "arith.minsi", "arith.andi", "arith.ori", "arith.xori")
_ONE_OF_TWO = tuple(name for name in FLOATS if "max" in name or "min" in name)
WORD = 32  # bits
JOINS = (*FLOATS, *_INTEGER)


@dataclass(frozen=True)
class Combiner:
    """`name` joins two values of `kind`: an integer, a float of 32 or 64 bits, or for what is one of the two one of
    16."""

    name: str
    kind: ir.Type

    def neutral(self) -> ir.Value:
        """Joined with x it gives x."""
        return arith.constant(self.kind, self.neutral_number())

    def neutral_number(self) -> float | int:
        """The same as a number."""
        if self.name in FLOATS:
            return FLOATS[self.name]
        most = 2 ** (self.kind.width - 1)
        numbers = {"muli": 1, "maxsi": -most, "minsi": most - 1, "andi": -1}
        return numbers.get(self.name.removeprefix("arith."), 0)

    def join(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """a joined with b."""
        if not _is_narrow(self.kind):
            return ir.Operation.create(self.name, results=[self.kind], operands=[a, b]).result
        wide = [arith.extf(ir.F32Type.get(), x) for x in (a, b)]
        return arith.truncf(self.kind, ir.Operation.create(self.name, results=[wide[0].type], operands=wide).result)

    def across_warp(self, value: ir.Value, lanes: int = WARP) -> ir.Value:
        """The values of `lanes` neighbouring lanes joined, in each of them. All 32 lanes must be here."""
        for distance in (d for d in (16, 8, 4, 2, 1) if d < lanes):
            value = self.join(value, self.moved(distance, value))
        return value

    def moved(self, distance: int | ir.Value, value: ir.Value, mode: gpu.ShuffleMode = gpu.ShuffleMode.XOR) -> ir.Value:
        """What the lane so far away has, or, by IDX, that of such a number. All 32 lanes must be here."""
        if self.kind.width == WORD:
            return _moved(distance, value, mode)
        if _is_narrow(self.kind):
            return arith.truncf(self.kind, _moved(distance, arith.extf(ir.F32Type.get(), value), mode))
        i32, i64 = (ir.IntegerType.get_signless(width) for width in (WORD, 2 * WORD))
        if self.kind.width < WORD:
            return arith.trunci(self.kind, _moved(distance, arith.extui(i32, value), mode))
        bits, far = value if self.kind == i64 else arith.bitcast(i64, value), arith.constant(i64, WORD)
        parts = [_moved(distance, arith.trunci(i32, x), mode) for x in (bits, arith.shrui(bits, far))]
        low, high = (arith.extui(i64, part) for part in parts)
        found = arith.ori(low, arith.shli(high, far))
        return found if self.kind == i64 else arith.bitcast(self.kind, found)


def _moved(distance: int | ir.Value, word: ir.Value, mode: gpu.ShuffleMode) -> ir.Value:
    if isinstance(distance, int):
        distance = arith.constant(ir.IntegerType.get_signless(WORD), distance)
    return shuffled(word, distance, mode)


def combiners(block: ir.Block, inputs: int, other: bool = False) -> list[Combiner] | None:
    """For each output of a linalg body, how it is accumulated; None unless each is joined, by an associative 32-bit
    operation and nothing else, with a value that no output goes into. Where asked for also `other` types: integers,
    f64, and the larger, or smaller, of two floats of 16 bits: one of the two, in whatever type they are compared."""
    *_, terminator = block.operations
    outs = list(block.arguments)[inputs:]
    found = []
    for value, argument in zip(terminator.operands, outs, strict=True):
        owner, used = producer(value), argument
        if other and _is_narrow(argument.type):
            if owner is None or owner.name != "arith.truncf" or (used := _widened(argument)) is None:
                return None
            owner = producer(owner.operands[0])
        uses = list(used.uses)
        if owner is None or owner.name not in JOINS or len(uses) != 1 or len(list(owner.results[0].uses)) != 1:
            return None
        if uses[0].owner.operation != owner or not _is_word(used.type, other):
            return None
        if used != argument and owner.name not in _ONE_OF_TWO:
            return None
        found.append(Combiner(owner.name, argument.type))
    return found


def add_negatives(block: ir.Block, inputs: int) -> None:
    """Has what a linalg body takes off its outputs added to them, with the other sign: a sum's parts can be joined."""
    *_, terminator = block.operations
    for value, argument in zip(terminator.operands, list(block.arguments)[inputs:], strict=True):
        owner = made_by(value, "arith.subf")
        if owner is None or owner.operands[0] != argument:
            continue
        with owner.location, ir.InsertionPoint(owner):
            value.replace_all_uses_with(arith.addf(argument, arith.negf(owner.operands[1])))
        owner.erase()


def _widened(argument: ir.Value) -> ir.Value | None:
    """A 16-bit float as f32, if nothing else is made of it."""
    uses = users_of(argument)
    return uses[0].results[0] if [op.name for op in uses] == ["arith.extf"] else None


def _is_narrow(kind: ir.Type) -> bool:
    return isinstance(kind, ir.BF16Type | ir.F16Type)


def _is_word(kind: ir.Type, other: bool) -> bool:
    """Whether a type has 32 bits, or is one of `other` widths."""
    if isinstance(kind, ir.IntegerType):
        return other or kind.width == WORD
    return isinstance(kind, (ir.F32Type, ir.F64Type) if other else ir.F32Type)
