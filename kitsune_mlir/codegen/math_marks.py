"""Which f32 operations of an operator are only rounded to 16 bits: theirs may be the short forms of functions.

torch computes an elementary function of bf16 in f32 and rounds. Where nothing but such a rounding reads what an
operation gives, through others of which that is true, more than the 8 bits of bf16 are lost with it. What is compared
or rounded to a whole number is exact: the other side of a limit is another value.
"""

from __future__ import annotations

from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import operations_of

from .math_simplify import FAST, ROUNDING, SHORT


def mark_narrowed(block: ir.Block) -> None:
    """Marks (math_simplify.py) the f32 operations of a linalg.generic's body that only reach roundings: to bf16
    `kitsune.fast_math`, to f16, or to both, `kitsune.short_math`."""
    marks: dict[int, str | None] = {}  # by an operation's result
    for op in reversed(operations_of(block)):
        if len(op.results) != 1 or not isinstance(op.results[0].type, ir.F32Type):
            continue
        found = [_mark_of_use(use.owner.operation, marks) for use in op.results[0].uses]
        mark = None if None in found or not found else SHORT if SHORT in found else FAST
        marks[hash(op.results[0])] = mark
        if mark is not None:
            op.attributes[mark] = ir.UnitAttr.get(op.context)


def _mark_of_use(user: ir.Operation, marks: dict[int, str | None]) -> str | None:
    if user.name in ROUNDING:
        return None
    if user.name == "arith.truncf":
        kind = user.results[0].type
        return FAST if isinstance(kind, ir.BF16Type) else SHORT if isinstance(kind, ir.F16Type) else None
    return marks.get(hash(user.results[0])) if len(user.results) == 1 else None
