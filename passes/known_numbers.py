"""Numbers that all agents of a CTA know alike, such as the bounds of loops: the proof takes those for equal whose texts
say that they are computed alike (schedule_events.py)."""

from __future__ import annotations

from functools import cached_property

from kitsune_mlir import mlir
from kitsune_mlir.dialects import schedule as dialect
from kitsune_mlir.dialects.captures import id_of
from kitsune_mlir.mlir import attr_int, ir

RANK = "rank#0"  # in a text of how a number is computed: a CTA's agents know it alike, the CTAs of a cluster do not
_FILL_OTHERS = ("kitsune.send", "kitsune.collect")
_FOLDED = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.ceildivui": lambda a, b: -(-a // b),
    "arith.divui": lambda a, b: a // b,
    "arith.minsi": min,
    "arith.maxsi": max,
}
_SCALAR = ("arith.", "affine.", "tensor.dim")


class KnownNumbers:
    """The numbers that the agents of a kernel know."""

    def __init__(self, kernel: dialect.KernelOp):
        self.kernel = kernel

    @cached_property
    def _rank(self) -> str | None:
        """The CTA's number in its cluster; not known where CTAs fill each other's rings (docs/proof.md)."""
        return None if mlir.walk(self.kernel, *_FILL_OTHERS) else RANK

    def bounds(self, loop: ir.Operation) -> tuple[int | str | None, ...]:
        """A loop's lower and upper bound and its step. They may depend on the turn of a loop around it."""
        return tuple(self.known(value, turns=True) for value in list(loop.operands)[:3])

    def _turn(self, value: ir.Value, loop: ir.Operation) -> str | None:
        """The number of a loop's turn, where that is its counter and its trip count is no constant: loops of constant
        trip counts are unrolled, and their turns have no number then."""
        bounds = self.bounds(loop) if loop.name == "scf.for" and ir.BlockArgument(value).arg_number == 0 else (None,)
        if None in bounds or all(isinstance(bound, int) for bound in bounds):
            return None
        return f"turn({' '.join(map(str, bounds))})"

    def known(self, value: ir.Value, turns: bool = False) -> int | str | None:
        """A number that all agents know alike in all turns: the number itself where it is a constant, or a text of how
        it is computed. With `turns`, also one that they know alike in the same turn of the loops around. None for what
        depends on the copy, on a turn, or on what is in memory."""
        owner = value.owner
        if isinstance(owner, ir.Block):
            if not self._inside(owner.owner):
                return f"%{id_of(value)}"
            return self._turn(value, owner.owner.operation) if turns else None
        op = owner.operation
        number = ir.OpResult(value).result_number
        if op.name == "arith.constant":
            attribute = op.attributes["value"]
            return attribute.value if isinstance(attribute, ir.IntegerAttr) else None
        if op.name == "kitsune.tiles":
            return f"tiles#{number}"
        if op.name == "kitsune.rank":
            return self._rank
        if op.name.startswith(_SCALAR):
            operands = [self.known(operand, turns) for operand in op.operands]
            if op.name in _FOLDED and all(isinstance(operand, int) for operand in operands) and operands[1]:
                return _FOLDED[op.name](*operands)
            if None not in operands:
                attributes = ", ".join(f"{name} = {op.attributes[name]}" for name in op.attributes)
                return f"{op.name}#{number}({', '.join(map(str, operands))}){{{attributes}}}"
        return None if self._inside(op) else f"%{id_of(value)}"

    def _inside(self, op: ir.Operation | ir.OpView | None) -> bool:
        """Whether an operation stands in the kernel."""
        while op is not None:
            if op.operation == self.kernel.operation:
                return True
            op = op.operation.parent
        return False


def folded(value: ir.Value, counters: dict[int, int]) -> int | None:
    """A number that is computed from constants and counters, where these have such values."""
    if isinstance(value.owner, ir.Block):
        return counters.get(id_of(value))
    op = value.owner.operation
    if op.name == "arith.constant":
        return attr_int(op, "value")
    operands = [folded(operand, counters) for operand in op.operands] if op.name in _FOLDED else [None]
    return None if None in operands or not operands[1] and "div" in op.name else _FOLDED[op.name](*operands)
