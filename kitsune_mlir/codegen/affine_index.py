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
