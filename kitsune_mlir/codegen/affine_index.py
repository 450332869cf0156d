"""Affine maps as index arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir.mlir import arith, ir


def evaluate(map_: ir.AffineMap, dims: Sequence[ir.Value]) -> list[ir.Value]:
    """The results of a map without symbols at the given dimensions."""
    return [_expression(result, dims) for result in map_.results]


def _expression(expression: ir.AffineExpr, dims: Sequence[ir.Value]) -> ir.Value:
    match expression:
        case ir.AffineDimExpr():
            return dims[expression.position]
        case ir.AffineConstantExpr():
            return arith.ConstantOp.create_index(expression.value).result
    left, right = _expression(expression.lhs, dims), _expression(expression.rhs, dims)
    match expression:
        case ir.AffineAddExpr():
            return arith.addi(left, right)
        case ir.AffineMulExpr():
            return arith.muli(left, right)
        case ir.AffineModExpr():  # of indices, which are not negative
            return arith.remui(left, right)
        case ir.AffineFloorDivExpr():
            return arith.divui(left, right)
    return arith.ceildivui(left, right)


def linear(expression: ir.AffineExpr, rank: int) -> tuple[int, list[int]] | None:
    """A constant, and the coefficient of each dimension; None for what is not linear."""
    if isinstance(expression, ir.AffineConstantExpr):
        return expression.value, [0] * rank
    if isinstance(expression, ir.AffineDimExpr):
        return 0, [int(d == expression.position) for d in range(rank)]
    if not isinstance(expression, ir.AffineAddExpr | ir.AffineMulExpr):
        return None
    left, right = linear(expression.lhs, rank), linear(expression.rhs, rank)
    if left is None or right is None:
        return None
    if isinstance(expression, ir.AffineAddExpr):
        return left[0] + right[0], [a + b for a, b in zip(left[1], right[1], strict=True)]
    return None if any(right[1]) else (left[0] * right[0], [a * right[0] for a in left[1]])
