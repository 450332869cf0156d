"""Windows of a tensor whose dimensions are split behind them are windows of the split tensor.

    %p = tensor.pad %x low[0, 3] high[0, 3] ... : tensor<256x28xbf16> to tensor<256x34xbf16>
    %w = linalg.generic {maps = [(c, k, x) -> (c, x + k), ...]} ins(%p) ... tensor<256x7x28xbf16>
    %y = tensor.expand_shape %w [[0, 1], [2], [3]] ... into tensor<16x16x7x28xbf16>
      =>
    %s = tensor.expand_shape %x [[0, 1], [2]] ... into tensor<16x16x28xbf16>
    %p = tensor.pad %s low[0, 0, 3] high[0, 0, 3] ...
    %y = linalg.generic {maps = [(g, c, k, x) -> (g, c, x + k), ...]} ins(%p) ...

MLIR's fusion moves reshapes past operators whose maps permute dimensions alone, and what reads windows behind a reshape
would not read the tensor.
"""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir import rows
from kitsune_mlir.generics import generic
from kitsune_mlir.mlir import ir, replace_op, tensor, walk
from kitsune_mlir.operations import element_type, filler_of, made_by, padding_of

from .padded_reads import is_window


def split_windows(main: ir.Operation) -> bool:
    """Rewrites such reshapes of @main; whether there were any."""
    found = False
    for expand in walk(main, "tensor.expand_shape"):
        windows = rows.producer(expand.operands[0])
        if windows is not None and reads_windows(windows) and len(list(windows.results[0].uses)) == 1:
            found |= _split(expand, windows)
    return found


def reads_windows(op: ir.Operation) -> bool:
    """Whether an operator is the windows of one tensor, each element as it is or computed of it alone."""
    if op.name != "linalg.generic" or len(op.operands) != 2:
        return False
    s = rows.Structured(op)
    identity = s.maps[1] == ir.AffineMap.get_identity(len(s.iterators))
    return is_window(s.maps[0]) and identity and "reduction" not in s.iterators


def _split(expand: ir.Operation, windows: ir.Operation) -> bool:
    s, groups = rows.Structured(windows), rows.groups_of(expand)
    shape = rows.shape_of(expand.results[0])
    split = [d for d, group in enumerate(groups) if len(group) > 1]
    read = [groups[e.position] if isinstance(e, ir.AffineDimExpr) else [] for e in s.maps[0].results]  # loops, then
    moved = any(
        not own and loops_of(expr).intersection(split) for own, expr in zip(read, s.maps[0].results, strict=True)
    )
    if moved or rows.DYNAMIC in [shape[d] for at in split for d in groups[at]]:
        return False
    with expand.location, ir.InsertionPoint(expand):
        value = _source(windows.operands[0], [[shape[d] for d in loops] if len(loops) > 1 else [] for loops in read])
        if value is None:
            return False
        firsts = ir.AffineMap.get(len(shape), 0, [ir.AffineExpr.get_dim(group[0]) for group in groups])
        results: list[ir.AffineExpr] = []
        for expr, loops in zip(s.maps[0].results, read, strict=True):
            results += [ir.AffineExpr.get_dim(d) for d in loops] or [expr.compose(firsts)]
        maps = [ir.AffineMap.get(len(shape), 0, results), ir.AffineMap.get_identity(len(shape))]
        start = tensor.empty(_sizes(windows, groups, shape), element_type(expand.results[0]))
        made = generic([value], [start], maps, ["parallel"] * len(shape), s.body)
    replace_op(expand, *made.results)
    windows.erase()
    return True


def loops_of(expr: ir.AffineExpr) -> set[int]:
    """The loops that an expression is of."""
    if isinstance(expr, ir.AffineDimExpr):
        return {expr.position}
    return loops_of(expr.lhs) | loops_of(expr.rhs) if isinstance(expr, ir.AffineBinaryExpr) else set()


def _sizes(windows: ir.Operation, groups: list[list[int]], shape: list[int]) -> list[int | ir.Value]:
    """Those of the split result, of which no open one is split."""
    own = {group[0]: d for d, group in enumerate(groups)}
    open_ = {d: rows.size_of(windows.operands[1], own[d]) for d in own if shape[d] == rows.DYNAMIC}
    return [open_.get(d, size) for d, size in enumerate(shape)]


def _source(value: ir.Value, parts: Sequence[Sequence[int]]) -> ir.Value | None:
    """A tensor of which each dimension is split into these parts, if there are any; what is put around it is put
    around the split one."""
    pad = made_by(value, "tensor.pad")
    if pad is None:
        return _expanded(value, parts)
    low, high = padding_of(pad)
    if len(pad.operands) != 1 or any(own and (low[d] or high[d]) for d, own in enumerate(parts)):
        return None
    filler = filler_of(pad)
    if isinstance(filler.owner, ir.Block) or filler.owner.operation.block == pad.regions[0].blocks[0]:
        return None
    source = _expanded(pad.operands[0], parts)
    sides = ([side[d] for d, own in enumerate(parts) for _ in own or [0]] for side in (low, high))
    shape = [size for d, size in enumerate(rows.shape_of(value)) for size in parts[d] or [size]]
    kind = ir.RankedTensorType.get(shape, element_type(value))
    made = tensor.PadOp(kind, source, [], [], *sides)
    places = [ir.IndexType.get()] * len(shape)
    with ir.InsertionPoint(made.regions[0].blocks.append(*places, arg_locs=[made.location] * len(shape))):
        tensor.YieldOp(filler)
    return made.result


def _expanded(value: ir.Value, parts: Sequence[Sequence[int]]) -> ir.Value:
    shape = rows.shape_of(value)
    groups, sizes = list[list[int]](), list[int]()
    for size, own in zip(shape, parts, strict=True):
        groups.append([*range(len(sizes), len(sizes) + (len(own) or 1))])
        sizes += own or [size]
    if len(sizes) == len(shape):
        return value
    open_ = [rows.size_of(value, d) for d, size in enumerate(shape) if size == rows.DYNAMIC]
    kind = ir.RankedTensorType.get(sizes, element_type(value))
    return tensor.ExpandShapeOp(kind, value, groups, open_, sizes).result
