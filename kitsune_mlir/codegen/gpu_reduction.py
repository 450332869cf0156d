"""Reductions that may be split: an associative operation that joins partial results."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kitsune_mlir.mlir import arith, gpu, ir

_FLOAT = {
    "arith.addf": 0.0,
    "arith.mulf": 1.0,
    "arith.maximumf": -math.inf,
    "arith.maxnumf": -math.inf,
    "arith.minimumf": math.inf,
    "arith.minnumf": math.inf,
}
_INTEGER = ("arith.addi", "arith.muli", "arith.maxsi", "arith.minsi", "arith.andi", "arith.ori", "arith.xori")
_ONE_OF_TWO = tuple(name for name in _FLOAT if "max" in name or "min" in name)
WORD = 32  # bits
JOINS = (*_FLOAT, *_INTEGER)


@dataclass(frozen=True)
class Combiner:
    """`name` joins two values of `kind`: a 32-bit type, or for what is one of the two a float of 16 bits."""

    name: str
    kind: ir.Type

    def neutral(self) -> ir.Value:
        """Joined with x it gives x."""
        if self.name in _FLOAT:
            return arith.constant(self.kind, _FLOAT[self.name])
        numbers = {"muli": 1, "maxsi": -(2**31), "minsi": 2**31 - 1, "andi": -1}
        return arith.constant(self.kind, numbers.get(self.name.removeprefix("arith."), 0))

    def join(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """a joined with b."""
        if self.kind.width == WORD:
            return ir.Operation.create(self.name, results=[self.kind], operands=[a, b]).result
        wide = [arith.extf(ir.F32Type.get(), x) for x in (a, b)]
        return arith.truncf(self.kind, ir.Operation.create(self.name, results=[wide[0].type], operands=wide).result)

    def across_warp(self, value: ir.Value, lanes: int = 32) -> ir.Value:
        """The values of `lanes` neighbouring lanes joined, in each of them. All 32 lanes must be here."""
        i32 = ir.IntegerType.get_signless(32)
        width = arith.constant(i32, 32)
        for distance in (d for d in (16, 8, 4, 2, 1) if d < lanes):
            word = value if self.kind.width == WORD else arith.extf(ir.F32Type.get(), value)
            other = gpu.shuffle(word, arith.constant(i32, distance), width, gpu.ShuffleMode.XOR)[0]
            value = self.join(value, other if self.kind.width == WORD else arith.truncf(self.kind, other))
        return value


def combiners(block: ir.Block, inputs: int, narrow: bool = False) -> list[Combiner] | None:
    """For each output of a linalg body, how it is accumulated; None unless each is joined, by an associative 32-bit
    operation and nothing else, with a value that no output goes into. Where asked for also the larger, or smaller, of
    two `narrow` floats, of 16 bits: one of the two, in whatever type they are compared."""
    *_, terminator = block.operations
    outs = list(block.arguments)[inputs:]
    found = []
    for value, argument in zip(terminator.operands, outs, strict=True):
        owner, used = _maker(value), argument
        if narrow and _is_narrow(argument.type):
            if owner is None or owner.name != "arith.truncf" or (used := _widened(argument)) is None:
                return None
            owner = _maker(owner.operands[0])
        uses = list(used.uses)
        if owner is None or owner.name not in JOINS or len(uses) != 1 or len(list(owner.results[0].uses)) != 1:
            return None
        if uses[0].owner.operation != owner or not _is_word(used.type):
            return None
        if used != argument and owner.name not in _ONE_OF_TWO:
            return None
        found.append(Combiner(owner.name, argument.type))
    return found


def _maker(value: ir.Value) -> ir.Operation | None:
    return None if isinstance(value.owner, ir.Block) else value.owner.operation


def _widened(argument: ir.Value) -> ir.Value | None:
    """A 16-bit float as f32, if nothing else is made of it."""
    uses = [use.owner.operation for use in argument.uses]
    return uses[0].results[0] if [op.name for op in uses] == ["arith.extf"] else None


def _is_narrow(kind: ir.Type) -> bool:
    return isinstance(kind, ir.BF16Type | ir.F16Type)


def _is_word(kind: ir.Type) -> bool:
    return isinstance(kind, ir.F32Type) or (isinstance(kind, ir.IntegerType) and kind.width == WORD)
