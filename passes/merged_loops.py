"""Loops that run through neighbouring dimensions of all that an operator has are one loop, where its kernel wants it.

    %s = linalg.generic {iterator_types = ["parallel", "reduction", "reduction", "parallel"]} ins(%x : 8x56x56x256) ...
  =>
    %r = tensor.collapse_shape %x [[0], [1, 2], [3]] : tensor<8x56x56x256xbf16> into tensor<8x3136x256xbf16>
    %s = linalg.generic {iterator_types = ["parallel", "reduction", "parallel"]} ins(%r) ...

A kernel shares one reduced loop among threads; of two, each thread would go through the other alone, though there are
threads enough for both. So it is with averages over images whose channels are their last dimension. And a transpose is
done by blocks of elements (codegen/gpu_turned.py) where lines have whole sectors: those of small images together have.
"""

from __future__ import annotations

from math import prod

from kitsune_mlir import rows
from kitsune_mlir.generics import generic
from kitsune_mlir.mlir import ir, linalg, tensor, walk
from kitsune_mlir.operations import made_by, slice_of
from kitsune_mlir.planning.kernel_cost import SECTOR
from kitsune_mlir.traffic import line_bytes

from .reshapes import reshaped
from .row_groups import root


def merge_loops(main: ir.Operation) -> None:
    """Rewrites such operators of @main."""
    for op in walk(main, "linalg.generic", "linalg.transpose"):
        while op is not None:
            op = _merged(op)


def _merged(op: ir.Operation) -> ir.Operation | None:
    """The operator with a pair of its loops as one, in its place; None where it has no such pair."""
    s = rows.Structured(op)
    if s.iterators.count("reduction") == 1 or s.index_ops() or s.tables():
        return None
    if any(not isinstance(expr, ir.AffineDimExpr | ir.AffineConstantExpr) for map_ in s.maps for expr in map_.results):
        return None
    dims = [[rows.dim_of(expr) for expr in map_.results] for map_ in s.maps]  # None of one element, and of a number
    for first in range(len(s.iterators) - 1):
        pair = [first, first + 1]
        reduced = [s.iterators[loop] for loop in pair] == ["reduction"] * 2
        wanted = reduced or _is_short_line(s, dims, pair)
        if wanted and all(_may_merge(value, own, pair, reduced) for value, own in zip(op.operands, dims, strict=True)):
            return _merge(s, dims, first)
    return None


def _is_short_line(s: rows.Structured, dims: list[list[int | None]], pair: list[int]) -> bool:
    """Whether an elementwise operator reads a tensor along another loop than its result, and one of the pair is the
    loop of lines of either that are shorter than a sector."""
    own = [(value, found) for value, found in zip(s.op.operands, dims) if rows.is_tensor(value) and found]
    if "reduction" in s.iterators or len(s.op.results) != 1 or len(own) < 2:
        return False
    *inputs, (out, along) = own
    turned = [
        (value, found) for value, found in inputs if None not in (found[-1], along[-1]) and found[-1] != along[-1]
    ]
    lines = [*turned, (out, along)] if turned else []
    return any(found[-1] == pair[1] and 0 < line_bytes(value) < SECTOR for value, found in lines)


def _may_merge(value: ir.Value, dims: list[int | None], pair: list[int], reduced: bool) -> bool:
    """Whether an operand has both loops as neighbouring dimensions, or neither. Their sizes are known, or they are
    reduced: of sums of all elements one may be open, or both."""
    places = [place for place, loop in enumerate(dims) if loop in pair]
    if not places:
        return True
    first = places[0]
    return (
        _lie_together(value, first)
        and dims[first : first + 2] == pair == [dims[place] for place in places]
        and (reduced or all(rows.shape_of(value)[place] != rows.DYNAMIC for place in places))
    )


def _lie_together(value: ir.Value, first: int) -> bool:
    """Whether the elements along a dimension and the next one lie as those of one would: rows of a slice that lie apart
    make no longer ones."""
    made = made_by(root(value), "tensor.extract_slice")
    if made is None:
        return True
    _, sizes, steps = slice_of(made)
    whole = rows.shape_of(made.operands[0])
    if made.results[0] != value or len(sizes) != value.type.rank:
        return False
    return steps[first : first + 2] == [1, 1] and rows.DYNAMIC != sizes[first + 1] == whole[first + 1]


def _merge(s: rows.Structured, dims: list[list[int | None]], first: int) -> ir.Operation:
    """The operator with its loop `first` and the next one as one."""
    op, loops, operands, maps = s.op, len(s.iterators) - 1, list[ir.Value](), list[ir.AffineMap]()
    with op.location, ir.InsertionPoint(op):
        for value, own, map_ in zip(op.operands, dims, s.maps, strict=True):
            found = [
                expr if loop is None else ir.AffineExpr.get_dim(loop - (loop > first))
                for loop, expr in zip(own, map_.results)
            ]
            if first in own:
                at = own.index(first)
                value, found = _joined(value, at), [*found[: at + 1], *found[at + 2 :]]
            operands.append(value)
            maps.append(ir.AffineMap.get(loops, 0, found))
        if op.name == "linalg.transpose":
            order = [rows.dim_of(expr) for expr in maps[0].results]
            permutation = [order.index(loop) for loop in range(loops)]
            made = linalg.transpose(operands[0], outs=operands[1:], permutation=permutation).results[0].owner.operation
        else:
            iterators = [*s.iterators[:first], *s.iterators[first + 1 :]]
            made = generic(operands[: s.inputs], operands[s.inputs :], maps, iterators, s.body)
        for old, new in zip(op.results, made.results, strict=True):
            sizes = rows.known_sizes(old)
            old.replace_all_uses_with(reshaped(new, sizes))
    op.erase()
    return made


def _joined(value: ir.Value, at: int) -> ir.Value:
    """A tensor with dimension `at` and the next one as one."""
    sizes, kind = rows.shape_of(value), ir.RankedTensorType(value.type)
    pair, made = sizes[at : at + 2], rows.producer(value)
    size = rows.DYNAMIC if rows.DYNAMIC in pair else prod(pair)
    joined = [*sizes[:at], size, *sizes[at + 2 :]]
    if made is not None and made.name == "tensor.empty" and rows.DYNAMIC not in joined:
        return tensor.empty(joined, kind.element_type)
    places = [[d] if d < at else [d + 1] if d > at else [d, d + 1] for d in range(len(joined))]
    return tensor.CollapseShapeOp(ir.RankedTensorType.get(joined, kind.element_type), value, places).result
