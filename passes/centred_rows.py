"""A mean that is taken off is taken off twice: what its rounding left has a mean of its own.

Sums of n numbers, and a mean times the rounded 1 / n, are off by a few units in the last place of the mean. Where the
numbers of a row are nearly one another's, what is left when the mean is taken off is as small as that, and a norm
magnifies it: by up to 316 for an eps of 1e-5. The second mean is that error.

    %s = sum of %x over its rows;  %m = %s * (1 / n);  %c = %x - %m

becomes

    ... %c = %x - %m;  %s2 = sum of %c over its rows;  %m2 = %s2 * (1 / n);  %d = %c - %m2

with %d for %c. For f32 alone: 16-bit numbers have larger errors of their own.
"""

from __future__ import annotations

from math import prod

from kitsune_mlir import rows
from kitsune_mlir.mlir import clone_on, ir
from kitsune_mlir.operations import element_type, operations_of

from .scalar_bodies import constant_of

TOLERANCE = 1e-6  # of the factor, beside 1 / n


def centre_again(sub: ir.Operation) -> None:
    """Takes off what is left of a mean, where `sub` takes a row's mean off the row. Idempotent."""
    found = _mean_of(sub)
    if found is None or _mean_of(rows.producer(sub.operands[0])) is not None:
        return
    if any(_mean_of(use.owner.operation) is not None and use.operand_number == 0 for use in sub.results[0].uses):
        return
    total, scale = found
    centred = sub.results[0]
    users = [(use.owner.operation, use.operand_number) for use in centred.uses]
    with ir.InsertionPoint.after(sub), sub.location:
        values = {sub.operands[0]: centred}
        for op in (total, scale, sub):
            again = clone_on(op, values)
    for user, number in users:
        user.operands[number] = again.results[0]


def _mean_of(sub: ir.Operation | None) -> tuple[ir.Operation, ir.Operation] | None:
    """The sum and the operation that scales it, where `sub` takes the mean of rows of its first operand off them."""
    if not _is_generic(sub, "arith.subf", 2) or _arguments(sub) != [0, 1]:
        return None
    x, mean = list(sub.operands)[:2]
    scale = rows.producer(mean)
    if not isinstance(element_type(x), ir.F32Type) or not _is_generic(scale, "arith.mulf", 1):
        return None
    total = rows.producer(scale.operands[0])
    if not _is_generic(total, "arith.addf", 1) or sorted(_arguments(total)) != [0, 1] or total.operands[0] != x:
        return None
    s, (whole, of_mean) = rows.Structured(total), rows.Structured(sub).maps[:2]
    plain = [whole, s.maps[0], *rows.Structured(scale).maps]
    if any(map_ != ir.AffineMap.get_identity(map_.n_dims) for map_ in plain) or s.maps[1] != of_mean:
        return None
    sizes = [size for size, kind in zip(ir.RankedTensorType(x.type).shape, s.iterators) if kind == "reduction"]
    factors = [
        factor
        for value in operations_of(scale.regions[0].blocks[0])[0].operands
        if (factor := constant_of(value)) is not None
    ]
    is_mean = min(sizes, default=0) > 0 and factors and abs(factors[0] * prod(sizes) - 1) < TOLERANCE
    return (total, scale) if is_mean and rows.init_of(total.operands[1]).tensor is None else None


def _is_generic(op: ir.Operation | None, name: str, inputs: int) -> bool:
    """Whether an operation is a generic of so many inputs whose body is one operation of this name."""
    if op is None or op.name != "linalg.generic" or rows.Structured(op).inputs != inputs or len(op.results) != 1:
        return False
    return [inner.name for inner in operations_of(op.regions[0].blocks[0])] == [name, "linalg.yield"]


def _arguments(generic: ir.Operation) -> list[int]:
    """The numbers of the arguments that the first operation of a body takes."""
    body = generic.regions[0].blocks[0]
    arguments = list(body.arguments)
    return [arguments.index(value) for value in operations_of(body)[0].operands if value in arguments]
