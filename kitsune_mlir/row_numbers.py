"""Row numbers in the bodies of gathers: which argument a number is, and whether negative ones count from the end."""

from __future__ import annotations

from dataclasses import dataclass

from . import rows
from .dialects.checks import constant
from .mlir import arith, attr_int, ir

_CASTS = ("arith.index_cast", "arith.extsi")


@dataclass(frozen=True)
class RowNumber:
    """The integer `source` of a body, cast; with `size`, where it is negative that is added to it."""

    source: ir.Value
    size: int | None = None


def row_number(value: ir.Value) -> RowNumber:
    """What an index of a tensor.extract is made from, as far as it is cast and wrapped alone."""
    size: int | None = None
    while (op := rows.producer(value)) is not None:
        if op.name in _CASTS:
            value = op.operands[0]
        elif size is None and (wrapped := _wrapped(op)) is not None:
            value, size = wrapped
        else:
            break
    return RowNumber(value, size)


def _wrapped(op: ir.Operation) -> tuple[ir.Value, int] | None:
    """x and n of `x < 0 ? x + n : x`."""
    if op.name != "arith.select":
        return None
    below, moved = (rows.producer(value) for value in list(op.operands)[:2])
    x = op.operands[2]
    if below is None or below.name != "arith.cmpi" or moved is None or moved.name != "arith.addi":
        return None
    if attr_int(below, "predicate") != int(arith.CmpIPredicate.slt) or below.operands[0] != x or moved.operands[0] != x:
        return None
    size = constant(moved.operands[1])
    return None if size is None or constant(below.operands[1]) != 0 else (x, size)
