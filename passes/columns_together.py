"""Elements that are taken from tables of few columns by numbers that take long to compute: all columns of a row are
computed together, as planes.

    %y = linalg.generic outs(%empty : tensor<?x?x3xf32>) {      // a thread for each column of a place
      %row = ...                                                // the same for all of them
      tensor.extract %table[%row, linalg.index 2]
    }
    %t = linalg.transpose %y permutation = [2, 0, 1]
  =>
    %y:3 = linalg.generic outs(... : tensor<?x?xf32>, ...) {
      %row = ...
      tensor.extract %table[%row, 0], tensor.extract %table[%row, 1], tensor.extract %table[%row, 2]
    }
    %t = %y#0, %y#1, %y#2, each stored where it belongs

So it is with tables of colours. Columns that make whole words are loaded so (codegen/gpu_words.py), unless they are
then moved apart.
"""

from __future__ import annotations

from kitsune_mlir import rows
from kitsune_mlir.generics import clone_operations, constant_index, generic, sizes_of
from kitsune_mlir.mlir import attr_int, ir, tensor, walk
from kitsune_mlir.operations import operations_of, permutation_of, users_of
from kitsune_mlir.planning.kernel_cost import DEAR

from .channel_planes import inserted
from .neighbour_arithmetic import at_known_places
from .row_groups import users

_MOST = 8  # columns
_SHARED = 8  # operations that all columns have alike, from which on they are better computed once


def compute_columns_together(main: ir.Operation) -> bool:
    """Rewrites such operators of @main; whether there were any."""
    found = [op for op in walk(main, "linalg.generic") if _is_taken(op)]
    for op in found:
        with op.location, ir.InsertionPoint(op):
            planes = _planes(rows.Structured(op))
        readers, column = users_of(op.results[0]), len(rows.shape_of(op.results[0])) - 1
        old, dim = op, column
        if len(readers) == 1 and _is_moved(readers[0]):
            old, dim = readers[0], _order(readers[0]).index(column)
        with op.location, ir.InsertionPoint(old):
            whole = inserted(old.operands[len(old.operands) - 1], planes, dim)
        old.results[0].replace_all_uses_with(whole)
        for one in dict.fromkeys((old, op)):
            one.erase()
    return bool(found)


def _is_taken(op: ir.Operation) -> bool:
    """Whether an operator takes elements of rows of few columns by numbers that take long to compute, and threads
    would each have one, or write lines of rows that are moved behind it."""
    if len(op.results) != 1 or not rows.is_tensor(op.results[0]) or op.parent.operation.name != "func.func":
        return False
    s, shape = rows.Structured(op), rows.shape_of(op.results[0])
    if len(shape) < 2 or not s.is_elementwise() or list(s.body.arguments[s.inputs].uses):
        return False
    count, column = shape[-1], len(shape) - 1
    moved = all(_is_moved(use.owner.operation) for use in op.results[0].uses)
    if not 1 < count <= _MOST or count & (count - 1) == 0 and not moved:
        return False
    if any(len(one.operation.regions) for one in s.body.operations):
        return False
    numbers = [one.results[0] for one in s.index_ops() if attr_int(one, "dim") == column]
    uses = [use for number in numbers for use in number.uses]
    takers = {use.owner.operation for use in uses}
    if any(op.name != "tensor.extract" for op in takers) or all(map(at_known_places, takers)):
        return False
    if not all(_is_moved(one) or one.name == "func.return" for one in users(op.results[0])):  # others read by number
        return False
    if any(use.operand_number != len(use.owner.operands) - 1 for use in uses):
        return False
    own = set(numbers) | {s.body.arguments[n] for n in range(s.inputs) if column in _loops(s.maps[n])}
    shared = 0
    for one in operations_of(s.body):
        if any(value in own for value in one.operands):
            own.update(one.results)
        elif one.name.startswith(("arith.", "math.")):
            shared += DEAR.get(one.name, 1)
    return shared >= _SHARED


def _loops(map_: ir.AffineMap) -> set[int]:
    return {loop for expr in map_.results for loop in rows.loops_of(expr)}


def _order(transpose: ir.Operation) -> list[int]:
    return permutation_of(transpose)


def _is_moved(op: ir.Operation) -> bool:
    """Whether a transpose moves the last dimension alone."""
    order = _order(op) if op.name == "linalg.transpose" else [0]
    others = [d for d in order if d != len(order) - 1]
    return len(order) > 1 and others == sorted(others)


def _planes(s: rows.Structured) -> list[ir.Value]:
    """What an operator gives for each column, as results of one, at the insertion point."""
    kind, rank = ir.RankedTensorType(s.op.results[0].type), len(s.iterators) - 1
    loops = [ir.AffineDimExpr.get(d) for d in range(rank)]
    inputs, maps, given = list[ir.Value](), list[ir.AffineMap](), list[list[int]]()
    for column in range(kind.shape[rank]):
        at = ir.AffineMap.get(rank, 0, [*loops, ir.AffineConstantExpr.get(column)])
        own = []
        for value, map_ in zip(s.given, s.maps):
            read = ir.AffineMap.get(rank, 0, [expr.compose(at) for expr in map_.results])
            known = [n for n, other in enumerate(inputs) if other == value and maps[n] == read]
            if not known:
                inputs.append(value)
                maps.append(read)
            own.append(known[0] if known else len(inputs) - 1)
        given.append(own)

    def body(*arguments: ir.Value) -> list[ir.Value]:
        *inner, end = operations_of(s.body)
        found = []
        for column, own in enumerate(given):
            values: dict[ir.Value, ir.Value | None] = {
                argument: arguments[n] for argument, n in zip(s.body.arguments, own)
            }
            values |= {op.results[0]: constant_index(column) for op in s.index_ops() if attr_int(op, "dim") == rank}
            clone_operations([op for op in inner if op.results[0] not in values], values)
            found.append(values.get(end.operands[0], end.operands[0]))
        return found

    sizes = sizes_of(s.op.operands[s.inputs], range(rank))
    starts = [tensor.empty(sizes, kind.element_type) for _ in given]
    out = [ir.AffineMap.get_identity(rank)] * len(starts)
    return list(generic(inputs, starts, [*maps, *out], ["parallel"] * rank, body).results)
