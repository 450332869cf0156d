"""Transposes of what is spread over more dimensions than it is read of, such as one-hot codes of classes, which torch
makes with classes last: it is computed in the order in which it is wanted (by prepare-linalg).

    %h = linalg.generic ins(%label, %class) -> tensor<8x64x64x21xi1>   // (b, h, w, c) -> (b, h, w) and (c): equal?
    %t = linalg.transpose ins(%h) permutation = [0, 3, 1, 2]
  =>
    %t = linalg.generic ins(%label, %class) -> tensor<8x21x64x64xi1>   // (b, c, h, w) -> (b, h, w) and (c): equal?

It then is a part of what reads it, where a transpose would have all of it written first.
"""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir import rows
from kitsune_mlir.generics import generic, map_of, sizes_of
from kitsune_mlir.mlir import ir, replace_op, tensor, walk
from kitsune_mlir.operations import made_by, permutation_of


def turn_broadcasts(module: ir.Module) -> None:
    """Rewrites such transposes of a module."""
    for op in walk(module, "linalg.transpose"):
        if _is_spread(op.operands[0]):
            order = permutation_of(op)
            with op.location, ir.InsertionPoint(op):
                replace_op(op, _turned(op.operands[0], order))


def _is_spread(value: ir.Value) -> bool:
    """Whether a tensor is computed one by one, for one reader, of tensors that have some of its dimensions, or of such
    as are spread themselves."""
    op = made_by(value, "linalg.generic")
    if op is None or len(op.results) != 1 or len(list(value.uses)) != 1:
        return False
    s = rows.Structured(op)
    if not s.is_of_elements() or not s.inputs:
        return False
    for operand, map_ in zip(s.given, s.maps):
        if not all(rows.dim_of(expr) is not None or rows.is_first(expr) for expr in map_.results):
            return False
        whole = len({rows.dim_of(expr) for expr in map_.results} - {None}) == len(s.iterators)
        if whole and not (map_ == s.maps[-1] and _is_spread(operand)):
            return False
    return True


def _turned(value: ir.Value, order: Sequence[int]) -> ir.Value:
    """A tensor that is spread with its dimensions in this order."""
    op = rows.producer(value)
    assert op is not None
    s, kind = rows.Structured(op), ir.RankedTensorType(value.type)
    inputs, maps = list[ir.Value](), list[ir.AffineMap]()
    for operand, map_ in zip(s.given, s.maps):
        dims = [rows.dim_of(expr) for expr in map_.results]
        if map_ == s.maps[-1]:
            operand, dims = _turned(operand, order), list(order)
        inputs.append(operand)
        maps.append(map_of(kind.rank, [None if d is None else order.index(d) for d in dims]))
    maps.append(map_of(kind.rank, range(kind.rank)))
    start = tensor.empty(sizes_of(value, order), kind.element_type)
    return generic(inputs, [start], maps, s.iterators, s.body).results[0]
