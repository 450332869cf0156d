"""Elementwise operators behind a product, which are computed on its tiles."""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir import rows
from kitsune_mlir.dialects import schedule
from kitsune_mlir.mlir import ir, tensor

from .schedule_build import constant_index, empty_generic


def tiled(op: ir.Operation, before: ir.Value, tile: ir.Value, at: dict[str, ir.Value]) -> ir.Value:
    """An elementwise operator of (b x) m x n on a tile of rows and columns; its other inputs are read."""
    s = rows.Structured(op)
    batched = len(s.iterators) == 3
    roles = "bmn" if batched else "mn"
    place = {role: number for number, role in enumerate("mn")}
    shape = dict(zip("mn", ir.RankedTensorType(tile.type).shape))
    inputs, maps = [], []
    for i in range(s.inputs):
        value, exprs = op.operands[i], list(s.maps[i].results)
        if value == before:
            inputs.append(tile)
            maps.append(_map("mn", place))
        elif not rows.is_tensor(value):
            inputs.append(value)
            maps.append(_map("", place))
        else:
            named = [roles[e.position] if isinstance(e, ir.AffineDimExpr) else None for e in exprs]
            own = [role for role in named if role in shape]
            offsets = [constant_index(0) if role is None else at[role] for role in named]
            kind = ir.RankedTensorType.get([shape[r] for r in own], ir.RankedTensorType(value.type).element_type)
            read = schedule.ReadOp(value, offsets, kind)
            read.attributes["dims"] = ir.DenseI64ArrayAttr.get([named.index(role) for role in own])
            inputs.append(read.results[0])
            maps.append(_map(own, place))
    element = ir.RankedTensorType(op.results[0].type).element_type
    start = tensor.empty(list(shape.values()), element)
    generic = empty_generic(inputs, [start], [*maps, _map("mn", place)], ["parallel"] * 2)
    with ir.InsertionPoint(generic.regions[0].blocks[0]):
        values = dict(zip(map(hash, s.body.arguments), generic.regions[0].blocks[0].arguments))
        for inner in s.body.operations:
            clone = inner.operation.clone()
            for i, operand in enumerate(inner.operation.operands):
                clone.operands[i] = values.get(hash(operand), operand)
            values.update(zip(map(hash, inner.operation.results), clone.results))
    return generic.results[0]


def _map(roles: Sequence[str], place: dict[str, int]) -> ir.AffineMap:
    return ir.AffineMap.get(len(place), 0, [ir.AffineDimExpr.get(place[role]) for role in roles])


def is_elementwise(op: ir.Operation, value: ir.Value) -> bool:
    """Whether it computes each element of its one result from that of `value` at the same place, and of others."""
    if op.name != "linalg.generic" or len(op.results) != 1:
        return False
    s = rows.Structured(op)
    rank, index = ir.RankedTensorType(value.type).rank, [hash(v) for v in op.operands].index(hash(value))
    identity = ir.AffineMap.get_identity(rank)
    if len(s.iterators) != rank or any("parallel" not in str(kind) for kind in s.iterators) or index >= s.inputs:
        return False
    if s.maps[index] != identity or s.maps[-1] != identity or list(list(s.body.arguments)[-1].uses):
        return False
    if any(inner.operation.name == "linalg.index" or inner.operation.regions for inner in s.body.operations):
        return False
    return all(_is_readable(op.operands[i], s.maps[i]) for i in range(s.inputs) if i != index)


def _is_readable(value: ir.Value, map_: ir.AffineMap) -> bool:
    """Whether tiles of an operand can be read: each dimension a loop's of its own, or of size 1."""
    if not rows.is_tensor(value):
        return rows.producer(value) is not None and rows.producer(value).name == "arith.constant"
    dims = [e.position for e in map_.results if isinstance(e, ir.AffineDimExpr)]
    zeros = [e for e in map_.results if isinstance(e, ir.AffineConstantExpr) and e.value == 0]
    kind = ir.RankedTensorType(value.type)
    open_ = [d for d in range(kind.rank) if kind.is_dynamic_dim(d)]
    return len(set(dims)) == len(dims) and len(dims) + len(zeros) == kind.rank and open_ in ([], [0])


def is_stored(op: ir.Operation) -> bool:
    element = ir.RankedTensorType(op.results[0].type).element_type
    return isinstance(element, ir.F32Type | ir.BF16Type | ir.F16Type)
