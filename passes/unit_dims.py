"""Operands' dimensions of one element, which broadcasts make, are dropped beside elements that are read by number, or
through windows, and beside reshapes between elementwise operators.

    %e = tensor.expand_shape %m [[0], [1, 2]] ... : tensor<3x128xi1> into tensor<3x128x1xi1>
    linalg.generic {(k, y, x) -> (k, y, 0), ...} ins(%e, ...) { ... tensor.extract %v[...] ... }
      =>
    linalg.generic {(k, y, x) -> (k, y), ...} ins(%m, ...) ...

MLIR moves reshapes past operators, so that these can be fused with others, only where maps permute dimensions. So what
multiplies windows of an image by weights that all channels share reads the image itself, and what scales an image's
channels is fused with the norm of groups of them.

Loops of one turn, as of images that are made larger a dimension at a time, are dropped once all is fused where memory
is turned: how threads lie in it is told by the loops that are last.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.generics import constant_index, generic, map_of, set_maps, sizes_of
from kitsune_mlir.mlir import attr_int, i64, ir, linalg, replace_op, tensor, walk
from kitsune_mlir.operations import made_by, only_user, permutation_of

from .row_groups import root
from .split_windows import reads_windows


def drop_unit_dims(main: ir.Operation) -> bool:
    """Rewrites such operands of the operators of @main; whether there were any."""
    found = False
    for op in walk(main, "linalg.generic"):
        if not _reads_by_number(op) and not any(map(_is_of_gathered, op.operands)) and not _is_beside_reshaped(op):
            continue
        s = rows.Structured(op)
        maps = list(s.maps)
        for number in range(s.inputs):
            value, map_ = op.operands[number], maps[number]
            if not rows.is_tensor(value):
                continue
            sizes = rows.shape_of(value)
            kept = [d for d, expr in enumerate(map_.results) if sizes[d] != 1 or not _is_zero(expr)]
            if kept and len(kept) < len(map_.results):
                with op.location, ir.InsertionPoint(op):
                    op.operands[number] = _collapsed(value, kept)
                maps[number] = ir.AffineMap.get(len(s.iterators), 0, [map_.results[d] for d in kept])
                found = True
        set_maps(op, maps)
    return found


def drop_unit_loops(main: ir.Operation) -> None:
    """Rewrites the elementwise operators of @main that have such loops and turn what they read, and transposes."""
    for op in walk(main, "linalg.transpose"):
        if 1 in rows.shape_of(op.results[0]) and prod(rows.shape_of(op.results[0])) != 1:
            with op.location, ir.InsertionPoint(op):
                _turn_without(op)
    for op in walk(main, "linalg.generic"):
        s = rows.Structured(op)
        if len(op.results) != 1 or "reduction" in s.iterators or not all(map(_is_of_loops, s.maps)):
            continue
        sizes = rows.shape_of(op.results[0])
        units = {rows.dim_of(expr) for expr, size in zip(s.maps[-1].results, sizes) if size == 1}
        kept = [loop for loop in range(len(s.iterators)) if loop not in units]
        if (
            units
            and kept
            and _is_turned(s, units)
            and len({rows.dim_of(expr) for expr in s.maps[-1].results} - {None}) == len(s.iterators)
        ):
            with op.location, ir.InsertionPoint(op):
                _replace_without(op, s, kept)


def _is_turned(s: rows.Structured, units: set[int | None]) -> bool:
    """Whether an operand has the other loops in another order than the result."""
    places = {rows.dim_of(expr): place for place, expr in enumerate(s.maps[-1].results)}
    own = [[rows.dim_of(expr) for expr in map_.results] for map_ in s.maps[: s.inputs]]
    orders = [[places[loop] for loop in dims if loop is not None and loop not in units] for dims in own]
    return any(order != sorted(order) for order in orders)


def _turn_without(op: ir.Operation) -> None:
    """The same of a transpose."""
    value, start = op.operands
    order, sizes = permutation_of(op), rows.shape_of(value)
    kept = [d for d, size in enumerate(sizes) if size != 1]
    places = [d for d in order if d in kept]
    into = _collapsed(start, [order.index(d) for d in places])
    turned = linalg.transpose(_collapsed(value, kept), outs=[into], permutation=[kept.index(d) for d in places])
    made = turned.results[0]
    replace_op(op, _expanded(made, op.results[0], [d in kept for d in order]))


def _is_of_loops(map_: ir.AffineMap) -> bool:
    """Whether an operand is read, or a result written, by loops alone, or at the first place."""
    return all(rows.dim_of(expr) is not None or _is_zero(expr) for expr in map_.results)


def _replace_without(op: ir.Operation, s: rows.Structured, kept: list[int]) -> None:
    """The operator on those of its loops, in its place."""
    operands, maps = [], []
    for value, map_ in zip(op.operands, s.maps, strict=True):
        found = [rows.dim_of(expr) for expr in map_.results]
        dims = [d for d, loop in enumerate(found) if loop in kept]
        own = [kept.index(found[d]) for d in dims]
        whole = len(dims) == len(found) or not rows.is_tensor(value)
        operands.append(value if whole else _collapsed(value, dims))
        maps.append(map_of(len(kept), own))
    made = generic(operands[: s.inputs], operands[s.inputs :], maps, ["parallel"] * len(kept), s.body)
    for index in walk(made, "linalg.index"):
        loop = attr_int(index, "dim")
        if loop in kept:
            index.attributes["dim"] = i64(kept.index(loop))
        else:
            with ir.InsertionPoint(index):
                index.results[0].replace_all_uses_with(constant_index(0))
            index.erase()
    replace_op(op, _expanded(made.results[0], op.results[0], [rows.dim_of(e) in kept for e in s.maps[-1].results]))


def _expanded(value: ir.Value, like: ir.Value, is_kept: list[bool]) -> ir.Value:
    """A tensor with dimensions of one element beside those that are kept."""
    ends = [0, *[d for d, kept in enumerate(is_kept) if kept][1:], len(is_kept)]
    groups = [list(range(first, last)) for first, last in pairwise(ends)]
    kind, sizes = ir.RankedTensorType(like.type), iter(sizes_of(value))
    shape = [next(sizes) if kept else 1 for kept in is_kept]
    dynamic = [size for size in shape if isinstance(size, ir.Value)]
    return tensor.ExpandShapeOp(kind, value, groups, dynamic, kind.shape).result


def _reads_by_number(op: ir.Operation) -> bool:
    return op.name == "linalg.generic" and bool(walk(op, "tensor.extract"))


def _is_of_gathered(value: ir.Value) -> bool:
    """Whether a value is joined dimensions of what an operator reads by number, or through windows, for it alone."""
    made = made_by(value, *rows.RESHAPES)
    if made is None or len(list(value.uses)) > 1:
        return False
    source = rows.producer(made.operands[0])
    return source is not None and (
        _reads_by_number(source) or reads_windows(source) or _is_of_gathered(made.operands[0])
    )


def _is_beside_reshaped(op: ir.Operation) -> bool:
    """Whether an elementwise operator makes for another, or for a sum, alone what that has in other dimensions, or has
    what another elementwise one makes so."""
    if not _is_elementwise(op):
        return False
    made = (_made(value) for value in op.operands)
    if any(found is not None and _is_elementwise(found) for found in made):
        return True
    reader = _reader(op.results[0]) if len(op.results) == 1 else None
    if reader is None or reader.name != "linalg.generic":
        return False
    return _is_elementwise(reader) or not any(map(_is_sum, op.operands))


def _is_sum(value: ir.Value) -> bool:
    """Whether a value is a reduction, whose kernel computes what follows."""
    op = made_by(root(value), "linalg.generic")
    return op is not None and "reduction" in rows.Structured(op).iterators


def _is_elementwise(op: ir.Operation) -> bool:
    return op.name == "linalg.generic" and rows.Structured(op).is_of_elements()


def _made(value: ir.Value) -> ir.Operation | None:
    """The operator the result of which a value is in other dimensions, for its reader alone."""
    made, is_reshaped = rows.producer(value), False
    while made is not None and made.name in rows.RESHAPES and len(list(value.uses)) == 1:
        value, is_reshaped = made.operands[0], True
        made = rows.producer(value)
    return made if is_reshaped and len(list(value.uses)) == 1 else None


def _reader(value: ir.Value) -> ir.Operation | None:
    """The one operator that reads a value in other dimensions."""
    first = reader = only_user(value)
    while reader is not None and reader.name in rows.RESHAPES:
        reader = only_user(reader.results[0])
    return reader if reader is not first else None


def _collapsed(value: ir.Value, kept: list[int]) -> ir.Value:
    """A tensor without its other dimensions, which have one element each."""
    rank = ir.RankedTensorType(value.type).rank
    ends = [0, *kept[1:], rank] if kept else []
    groups = [list(range(first, last)) for first, last in pairwise(ends)]
    kind = ir.RankedTensorType(value.type)
    return tensor.collapse_shape(
        ir.RankedTensorType.get([kind.shape[d] for d in kept], kind.element_type), value, groups
    )


def _is_zero(expr: ir.AffineExpr) -> bool:
    return isinstance(expr, ir.AffineConstantExpr) and expr.value == 0
