"""A long reduction to few elements, with all that is computed for it, is one to columns and one of these.

    %s = linalg.generic {iterator_types = ["reduction"]} ins(%x, %y : tensor<5898240xbf16>) ...
  =>
    %r = tensor.expand_shape %x ... into tensor<23040x256xbf16>
    %c = linalg.generic {iterator_types = ["reduction", "parallel"]} ins(%r, ...) ...    // 256
    %s = linalg.generic {iterator_types = ["reduction"]} ins(%c) ...

Warps that have parts of such a reduction (codegen/gpu_linalg.py) read an element a thread, and are too few to hide how
long that takes. Sums over rows are done by blocks that fill the GPU, in words (codegen/gpu_columns.py).
"""

from __future__ import annotations

from math import prod

from kitsune_mlir import rows
from kitsune_mlir.codegen.gpu_reduction import combiners
from kitsune_mlir.generics import generic, map_of
from kitsune_mlir.mlir import ir, linalg, replace_op, tensor, walk
from kitsune_mlir.operations import element_type

from .reshapes import reshaped

_COLUMNS = 256  # words of 16 bytes of a warp, or of eight
_LEAST = 1 << 19  # elements that are reduced to one: fewer keep as many warps as there are busy for a few turns
_MOST_RESULTS = 7  # of more there are warps enough


def sum_in_columns(main: ir.Operation) -> None:
    """Rewrites such reductions of @main."""
    for op in walk(main, "linalg.generic"):
        s = rows.Structured(op)
        if s.iterators.count("reduction") == 1 and s.iterators[-1] == "reduction" and _is_long(s):
            _split(s)


def _is_long(s: rows.Structured) -> bool:
    """Whether a reduction along memory of few results is to be rewritten."""
    last, sizes = len(s.iterators) - 1, _sizes(s)
    if len(s.op.results) != 1 or s.index_ops() or s.tables() or s.gathers() or None in sizes.values():
        return False
    *outer, length = (sizes[loop] for loop in range(len(s.iterators)))
    if prod(outer) > _MOST_RESULTS or length < _LEAST or length % _COLUMNS:
        return False
    return all(_lies_along(map_, last) for map_ in s.maps)


def _sizes(s: rows.Structured) -> dict[int, int | None]:
    found: dict[int, int | None] = dict.fromkeys(range(len(s.iterators)))
    for value, map_ in zip(s.op.operands, s.maps):
        for size, expr in zip(rows.known_sizes(value), map_.results) if rows.is_tensor(value) else ():
            if isinstance(expr, ir.AffineDimExpr):
                found[expr.position] = size
    return found


def _lies_along(map_: ir.AffineMap, last: int) -> bool:
    """Whether an operand's indices are loops, the last of all at its end, or not at all."""
    if not all(isinstance(expr, ir.AffineDimExpr) for expr in map_.results):
        return False
    found = [rows.dim_of(expr) for expr in map_.results]
    return last not in found[:-1]


def _split(s: rows.Structured) -> None:
    joined = combiners(s.body, s.inputs, other=True)
    if joined is None:
        return
    (combiner,), last, sizes = joined, len(s.iterators) - 1, _sizes(s)
    outer = [sizes[loop] for loop in range(last)]
    with s.op.location, ir.InsertionPoint(s.op):
        inputs, maps = list[ir.Value](), list[ir.AffineMap]()
        for value, map_ in zip(s.given, s.maps):
            own = [rows.dim_of(expr) for expr in map_.results]
            if last in own:
                value = reshaped(value, [*rows.known_sizes(value)[:-1], sizes[last] // _COLUMNS, _COLUMNS])
                own = [*own, last + 1]
            inputs.append(value)
            maps.append(map_of(last + 2, own))
        kind = element_type(s.op.results[0])
        start = linalg.fill(combiner.neutral(), outs=[tensor.empty([*outer, _COLUMNS], kind)])
        maps.append(map_of(last + 2, [*range(last), last + 1]))
        columns = generic(inputs, [start], maps, [*s.iterators, "parallel"], s.body)
        own = [map_of(last + 1, range(last + 1)), map_of(last + 1, [rows.dim_of(expr) for expr in s.maps[-1].results])]
        found = generic(columns.results, [s.op.operands[s.inputs]], own, s.iterators, combiner.join)
    replace_op(s.op, found.results[0])
