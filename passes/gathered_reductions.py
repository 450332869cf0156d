"""Reductions of elements that are read by number read them themselves.

    %w = linalg.generic {iterator_types = ["parallel", "parallel"]} outs(%e : tensor<7x16xf32>) {
      ... tensor.extract %x[linalg.index 0 * 5 + linalg.index 1]
    }
    %y = linalg.generic {iterator_types = ["parallel", "reduction"]} ins(%w) ...
      =>
    %y = linalg.generic {iterator_types = ["parallel", "reduction"]} ins(%n : tensor<16xf32>) ... // and extract

MLIR's fusion declines where no operand of what it would make says how long the reduction is: %n does, of which nothing
is read, as the windows of linalg's pooling operators do.
"""

from __future__ import annotations

from kitsune_mlir import rows
from kitsune_mlir.generics import cloned, generic, map_of
from kitsune_mlir.mlir import ir, replace_op, tensor, walk
from kitsune_mlir.operations import element_type


def size_reductions(main: ir.Operation) -> bool:
    """Gives such reductions of @main that operand; whether there were any, which MLIR's fusion then takes."""
    found = [op for op in walk(main, "linalg.generic") if _sums_gathered(op)]
    for op in found:
        s = rows.Structured(op)
        rank, loops = len(s.iterators), s.reductions
        sizes = [rows.shape_of(op.operands[0])[[*map(rows.dim_of, s.maps[0].results)].index(d)] for d in loops]
        with op.location, ir.InsertionPoint(op):
            sized = tensor.empty(sizes, element_type(op.operands[0]))
            maps = [s.maps[0], map_of(rank, loops), *s.maps[1:]]
            operands, starts = [op.operands[0], sized], list(op.operands)[1:]
            made = generic(operands, starts, maps, s.iterators, lambda x, _, *found, s=s: cloned(s.body, [x, *found]))
            replace_op(op, *made.results)
    return bool(found)


def _sums_gathered(op: ir.Operation) -> bool:
    """Whether an operator reduces, over loops of known lengths, what another reads by number for it alone."""
    s, made = rows.Structured(op), rows.producer(op.operands[0])
    if "reduction" not in s.iterators or s.inputs != 1:
        return False
    if made is None or made.name != "linalg.generic" or not walk(made, "tensor.extract"):
        return False
    dims = [*map(rows.dim_of, s.maps[0].results)]
    if sorted(d for d in dims if d is not None) != [*range(len(s.iterators))] or len(list(op.operands[0].uses)) > 1:
        return False
    lengths = [rows.shape_of(op.operands[0])[dims.index(d)] for d in dims if s.iterators[d] == "reduction"]
    return rows.DYNAMIC not in lengths
