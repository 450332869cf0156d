"""Operators' bodies that threads compute on elements in registers: arithmetic on arguments and constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kitsune_mlir import rows
from kitsune_mlir.mlir import attr_int, ir
from kitsune_mlir.operations import element_type

from .open_lengths import may_be_of_lengths

_CASTS = ("arith.extf", "arith.truncf")


def is_plain(
    op: ir.Operation,
    of_lengths: bool = False,
    places: Sequence[int] = (),
    taken: Mapping[ir.Value, int] | None = None,
) -> bool:
    """Whether a body is arithmetic on its arguments and constants, or, if asked for, on what is computed of sizes, on
    the numbers of these of its loops, and on elements `taken` of tensors, of which so many indices are known to be
    other loops' numbers."""
    block = op.regions[0].blocks[0]
    inside = {hash(argument) for argument in block.arguments}
    for inner in block.operations:
        inner = inner.operation
        if inner.name == "linalg.index":
            if attr_int(inner, "dim") in places:
                inside.add(hash(inner.results[0]))
            elif not taken:
                return False
            continue
        if taken and len(inner.results) and inner.results[0] in taken:
            computed = list(inner.operands)[1 + taken[inner.results[0]] :]
            if not all(hash(place) in inside or is_constant(place) for place in computed):
                return False
            inside.add(hash(inner.results[0]))
            continue
        if not inner.name.startswith(("arith.", "math.", "linalg.yield")) or len(inner.regions):
            return False
        around = [value for value in inner.operands if hash(value) not in inside and not is_constant(value)]
        if not all(of_lengths and may_be_of_lengths(value) for value in around):
            return False
        inside |= {hash(value) for value in inner.results}
    return True


def is_constant(value: ir.Value) -> bool:
    """Whether a scalar is a constant, perhaps in another type."""
    op = rows.producer(value)
    if op is not None and op.name in _CASTS:
        return is_constant(op.operands[0])
    return op is not None and op.name == "arith.constant" and not rows.is_tensor(value)


def is_brought(value: ir.Value) -> bool:
    """Whether threads can load elements of an operand."""
    element = element_type(value) if rows.is_tensor(value) else value.type
    if isinstance(element, ir.IntegerType):
        return element.width in (1, 8, 16, 32, 64)
    return isinstance(element, ir.F32Type | ir.BF16Type | ir.F16Type)
