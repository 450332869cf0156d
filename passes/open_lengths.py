"""Numbers that are computed of how long rows are, where that is open until the call: what a mean divides by.

    %n = tensor.dim %x, %c1
    %f = arith.sitofp (arith.index_cast %n)
    %d = arith.divf %one, %f
    %m = linalg.generic ins(%sum) { arith.mulf %in, (arith.truncf %d) }

A kernel that goes through such rows computes them from the length that it is told.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from kitsune_mlir import rows
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.mlir import clone_on, ir

_ARITHMETIC = {
    f"arith.{name}"
    for name in ("index_cast", "sitofp", "uitofp", "extf", "truncf", "divf", "mulf", "addf", "subf")
    + ("muli", "addi", "subi", "maximumf", "maxsi")
}


def may_be_of_lengths(value: ir.Value) -> bool:
    """Whether a scalar from around an operator's body is computed of constants and indices alone."""
    op = rows.producer(value)
    if op is None or isinstance(value.type, ir.IndexType) or op.name == "arith.constant":
        return op is not None
    return op.name in _ARITHMETIC and all(map(may_be_of_lengths, op.operands))


def lengths_in(op: ir.Operation, is_length: Callable[[ir.Value], bool]) -> list[ir.Value] | None:
    """Which of the numbers that the scalars around an operator's body are computed of are the length; None where these
    are computed of others too."""
    found: list[ir.Value] = []
    waiting = [value for value in kitsune.captures(op) if not rows.is_tensor(value)]
    while waiting:
        value = waiting.pop()
        made = rows.producer(value)
        if made is None:
            return None
        if made.name == "arith.constant":
            continue
        if isinstance(value.type, ir.IndexType | ir.IntegerType) and is_length(value):
            found.append(value)
        elif made.name not in _ARITHMETIC:
            return None
        else:
            waiting += made.operands
    return found


def computed_of(
    value: ir.Value, length: ir.Value, lengths: Collection[ir.Value], values: dict[ir.Value, ir.Value | None]
) -> None:
    """Computes a scalar again at the insertion point, where `lengths` are `length`, and puts it into `values`."""
    made = rows.producer(value)
    if value in values or made is None or made.name == "arith.constant":
        return
    if value in lengths:
        values[value] = length if isinstance(value.type, ir.IndexType) else _cast(length, value.type)
        return
    for operand in made.operands:
        computed_of(operand, length, lengths, values)
    clone_on(made, values)


def _cast(index: ir.Value, kind: ir.Type) -> ir.Value:
    return ir.Operation.create("arith.index_cast", [kind], [index]).results[0]
