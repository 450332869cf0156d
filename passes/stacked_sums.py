"""Reductions of tensors that are stacked are elementwise, while linalg is prepared.

    %s = tensor.concat dim(0) %a, %b, %c : ... -> tensor<3x4096x1024xf32>      // of one each
    %y = linalg.generic {(d, i, j), sum over d} ins(%s) { addf }
  =>
    %y = linalg.generic {(i, j)} ins(%a, %b, %c) { a + b + c }

So a mean of what several networks, or heads, give is computed with what makes these, of which nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from kitsune_mlir import rows
from kitsune_mlir.generics import cloned, generic, sizes_of
from kitsune_mlir.mlir import attr_int, func, ir, replace_op, tensor, walk

from .tensor_sizes import TensorSizes

MOST = 16  # tensors that are stacked


def add_up_stacks(main: func.FuncOp) -> None:
    """Rewrites such reductions of @main."""
    sizes: TensorSizes | None = None
    for op in walk(main, "linalg.generic"):
        if (along := _reduced(op)) is None:
            continue
        sizes = sizes or TensorSizes(main.regions[0].blocks[0])
        if (parts := _parts(op.operands[0], along, sizes)) is not None:
            with op.location, ir.InsertionPoint(op):
                replace_op(op, _added(op, [_without(part, along, rows.shape_of(op.operands[0])) for part in parts]))
            sizes.forget_erased()


def _reduced(op: ir.Operation) -> int | None:
    """The one dimension of a tensor that an operator reduces, beginning with a number, if it does nothing else."""
    if len(op.operands) != 2 or len(op.results) != 1:
        return None
    s, started = rows.Structured(op), rows.producer(op.operands[1])
    if s.iterators.count("reduction") != 1 or started is None or started.name != "linalg.fill":
        return None
    rank, along = len(s.iterators), s.iterators.index("reduction")
    if rank < 2 or s.maps[0] != ir.AffineMap.get_identity(rank) or s.index_ops() or s.tables():
        return None
    found = [rows.dim_of(expr) for expr in s.maps[1].results]  # None of a dimension that is kept as one element
    kept = [d for d in range(rank) if d != along]
    return along if found in (kept, [*kept[:along], None, *kept[along:]]) else None


def _parts(value: ir.Value, along: int, known: TensorSizes) -> list[ir.Value] | None:
    """The tensors that are stacked along a dimension: concatenated, of one element there, or of as many as the next
    dimension has, of which the stack's is split."""
    count, op = rows.shape_of(value)[along], rows.producer(value)
    if op is not None and op.name == "tensor.expand_shape":
        groups = rows.groups_of(op)
        if [group for group in groups if len(group) > 1] != [[along, along + 1]]:
            return None
        size = known.shape(value)[along + 1]
        op = rows.producer(op.operands[0])
    else:
        size = 1
    if op is None or op.name != "tensor.concat" or attr_int(op, "dim") != along or len(op.operands) > MOST:
        return None
    fits = len(op.operands) == count and all(known.shape(part)[along] == size for part in op.operands)
    return list(op.operands) if fits else None


def _added(op: ir.Operation, parts: Sequence[ir.Value]) -> ir.Value:
    fill, body = rows.producer(op.operands[1]), rows.Structured(op).body
    assert fill is not None
    kind, rank = ir.RankedTensorType(op.results[0].type), ir.RankedTensorType(parts[0].type).rank

    def total(*given: ir.Value) -> ir.Value:
        return reduce(lambda so_far, x: cloned(body, [x, so_far])[0], given[:-1], fill.operands[0])

    start = tensor.empty(sizes_of(parts[0]), kind.element_type)
    maps = [ir.AffineMap.get_identity(rank)] * (len(parts) + 1)
    found = generic(parts, [start], maps, ["parallel"] * rank, total).results[0]
    if kind.rank == rank:
        return found
    open_ = [size for size in sizes_of(found) if isinstance(size, ir.Value)]
    groups = _groups(rank, rows.Structured(op).iterators.index("reduction"))
    return tensor.ExpandShapeOp(kind, found, groups, open_, list(kind.shape)).result


def _groups(rank: int, along: int) -> list[list[int]]:
    """Which dimensions of a tensor become each of so many, when one of a single element goes."""
    first = max(0, along - 1)
    return [[d] for d in range(first)] + [[first, first + 1]] + [[d + 1] for d in range(first + 1, rank)]


def _without(part: ir.Value, along: int, stacked: Sequence[int]) -> ir.Value:
    """A stacked tensor without the dimension of the stack."""
    kind = ir.RankedTensorType(part.type)
    if kind.rank < len(stacked):
        return part
    shape = [size for d, size in enumerate(kind.shape) if d != along]
    type_ = ir.RankedTensorType.get(shape, kind.element_type)
    return tensor.CollapseShapeOp(type_, part, _groups(kind.rank - 1, along)).result
