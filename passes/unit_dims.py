"""Operands' dimensions of one element, which broadcasts make, are dropped beside elements that are read by number, or
through windows.

    %e = tensor.expand_shape %m [[0], [1, 2]] ... : tensor<3x128xi1> into tensor<3x128x1xi1>
    linalg.generic {(k, y, x) -> (k, y, 0), ...} ins(%e, ...) { ... tensor.extract %v[...] ... }
      =>
    linalg.generic {(k, y, x) -> (k, y), ...} ins(%m, ...) ...

MLIR moves reshapes past operators, so that these can be fused with others, only where maps permute dimensions. So what
multiplies windows of an image by weights that all channels share reads the image itself.
"""

from __future__ import annotations

from itertools import pairwise

from kitsune_mlir import rows
from kitsune_mlir.mlir import ir, tensor, walk

from .generic_operands import set_maps
from .split_windows import reads_windows


def drop_unit_dims(main: ir.Operation) -> bool:
    """Rewrites such operands of the operators of @main; whether there were any."""
    found = False
    for op in walk(main, "linalg.generic"):
        if not _reads_by_number(op) and not any(map(_is_of_gathered, op.operands)):
            continue
        s = rows.Structured(op)
        maps = list(s.maps)
        for number in range(s.inputs):
            value, map_ = op.operands[number], maps[number]
            kept = [d for d, expr in enumerate(map_.results) if not _is_zero(expr)]
            if rows.is_tensor(value) and kept and len(kept) < len(map_.results):
                with op.location, ir.InsertionPoint(op):
                    op.operands[number] = _collapsed(value, kept)
                maps[number] = ir.AffineMap.get(len(s.iterators), 0, [map_.results[d] for d in kept])
                found = True
        set_maps(op, maps)
    return found


def _reads_by_number(op: ir.Operation) -> bool:
    return op.name == "linalg.generic" and bool(walk(op, "tensor.extract"))


def _is_of_gathered(value: ir.Value) -> bool:
    """Whether a value is joined dimensions of what an operator reads by number, or through windows, for it alone."""
    made = rows.producer(value)
    if made is None or made.name not in rows.RESHAPES or len(list(value.uses)) > 1:
        return False
    source = rows.producer(made.operands[0])
    return source is not None and (
        _reads_by_number(source) or reads_windows(source) or _is_of_gathered(made.operands[0])
    )


def _collapsed(value: ir.Value, kept: list[int]) -> ir.Value:
    """A tensor without its other dimensions, which have one element each."""
    rank = ir.RankedTensorType(value.type).rank
    ends = [0, *kept[1:], rank]
    groups = [list(range(first, last)) for first, last in pairwise(ends)]
    kind = ir.RankedTensorType(value.type)
    return tensor.collapse_shape(
        ir.RankedTensorType.get([kind.shape[d] for d in kept], kind.element_type), value, groups
    )


def _is_zero(expr: ir.AffineExpr) -> bool:
    return isinstance(expr, ir.AffineConstantExpr) and expr.value == 0
