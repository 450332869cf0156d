"""Where elements lie of tensors that a pipeline on a GPU sees otherwise than they are stored: slices, reshapes,
transpositions, concatenations, and what affine maps say."""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir import rows
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import permutation_of, slice_of

from . import device
from .device import Int
from .memory import shape_of


def affine(expr: ir.AffineExpr, loops: Sequence[Int]) -> Int:
    if isinstance(expr, ir.AffineDimExpr):
        return loops[expr.position]
    if isinstance(expr, ir.AffineConstantExpr):
        return expr.value
    if isinstance(expr, ir.AffineAddExpr):
        return device.add(affine(expr.lhs, loops), affine(expr.rhs, loops))
    if isinstance(expr, ir.AffineMulExpr):
        return device.mul(affine(expr.lhs, loops), affine(expr.rhs, loops))
    if isinstance(expr, ir.AffineFloorDivExpr | ir.AffineModExpr) and isinstance(expr.rhs, ir.AffineConstantExpr):
        divide = device.div if isinstance(expr, ir.AffineFloorDivExpr) else device.mod
        return divide(affine(expr.lhs, loops), expr.rhs.value)
    raise UnsupportedError(f"index {expr} is not computed in pipelines on a GPU")


def moved(op: ir.Operation, value: ir.Value, index: Sequence[Int]) -> list[Int] | None:
    """Where the element of a slice, a reshape or a transpose at `index` is in its operand; None for other operators."""
    if op.name == "tensor.extract_slice":
        offsets, _, strides = slice_of(op)
        return [device.add(device.mul(i, s), o) for i, s, o in zip(index, strides, offsets)]
    if op.name in rows.RESHAPES:
        return _reshaped(index, shape_of(value), shape_of(op.operands[0]))
    if op.name == "linalg.transpose":
        permutation = permutation_of(op)
        return [index[permutation.index(d)] for d in range(len(index))]
    return None


def _reshaped(index: Sequence[Int], shape: Sequence[int], source: Sequence[int]) -> list[Int]:
    """The index in `source` of the element at `index` in `shape`: same rows, same place in the row."""
    return [index[0], *device.unflattened(device.flattened(index[1:], shape[1:]), source[1:])]


def part_at(op: ir.Operation, index: Sequence[Int]) -> tuple[ir.Value, list[Int]] | None:
    """The operand of a concatenation that holds an element, and where; None where the place is known to code alone."""
    dim = ir.IntegerAttr(op.attributes["dim"]).value
    place = index[dim]
    for part in op.operands:
        is_last = part == op.operands[len(op.operands) - 1]
        is_here = isinstance(place, int) and (is_last or device.is_less(place, shape_of(part)[dim]))
        if is_here:
            return part, [*index[:dim], place, *index[dim + 1 :]]
        if is_here is None or not isinstance(place, int):
            return None
        place -= shape_of(part)[dim]
    return None
