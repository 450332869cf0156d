"""Reductions over the same loops that read a tensor at all of their points, neither of which waits for the other: one
operator of several results, which reads it once.

    %a = linalg.generic {... "reduction"} ins(%x, %y)         %s:2 = linalg.generic {... "reduction"} ins(%x, %y) {
    %b = linalg.generic {... "reduction"} ins(%x)        =>     ...
                                                                linalg.yield %0, %1
                                                              }

So the sums of a metric, such as a mean and a mean of squares, are one pass over memory, and what is computed of its
elements for several of them stands in their kernel, by fusion, which then finds a single reader.
"""

from __future__ import annotations

from kitsune_mlir import rows
from kitsune_mlir.codegen.gpu_buffers import ancestor_in, behind
from kitsune_mlir.codegen.gpu_reduction import combiners
from kitsune_mlir.generics import cloned, generic
from kitsune_mlir.mlir import ir, walk

from .neighbour_arithmetic import at_known_places

_MOST = 8  # results, whose sums are in registers


def share_sums(main: ir.Operation) -> bool:
    """Joins such operators of @main; whether there were any."""
    waiting = [op for op in walk(main, "linalg.generic") if _is_sum(op)]
    found = False
    while waiting:
        first = waiting.pop(0)
        later = [
            op for op in waiting if first.is_before_in_block(op)
        ]  # what waited for a joined one was moved behind it
        second = next((op for op in later if _are_alike(first, op) and op not in _dependent(first, op)), None)
        if second is not None:
            place = waiting.index(second)
            waiting[place] = _join(first, second)
            found = True
    return found


def _is_sum(op: ir.Operation) -> bool:
    """Whether an operator of @main's own block is a reduction whose elements may be joined in any order."""
    s = rows.Structured(op)
    plain = op.parent.operation.name == "func.func" and all(at_known_places(one.operation) for one in s.body.operations)
    return plain and "reduction" in s.iterators and combiners(s.body, s.inputs, other=True) is not None


def _are_alike(first: ir.Operation, second: ir.Operation) -> bool:
    """Whether both have the same loops, as a tensor says that both read everywhere, and results of one shape."""
    a, b = rows.Structured(first), rows.Structured(second)
    if a.iterators != b.iterators or len(first.results) + len(second.results) > _MOST:
        return False
    if {*a.maps[a.inputs :]} != {*b.maps[b.inputs :]} or len({*a.maps[a.inputs :]}) > 1:
        return False
    return any(pair in _read(b) and _has_all_loops(pair[1], len(a.iterators)) for pair in _read(a))


def _read(s: rows.Structured) -> list[tuple[ir.Value, ir.AffineMap]]:
    return list(zip(s.given, s.maps))


def _has_all_loops(map_: ir.AffineMap, loops: int) -> bool:
    return {rows.dim_of(result) for result in map_.results} >= {*range(loops)}


def _dependent(first: ir.Operation, last: ir.Operation) -> list[ir.Operation]:
    """What waits for an operation, up to another one behind it in its block, that one too."""
    found, between = list[ir.Operation](), [*behind(first, last), last]
    places = {op: number for number, op in enumerate(between)}
    waiting = [first]
    while waiting:
        for result in waiting.pop().results:
            users = [ancestor_in(first.block, use.owner.operation) for use in result.uses]
            new = [op for op in users if op in places and op not in found]
            found += new
            waiting += new
    return sorted(found, key=lambda op: places[op])


def _join(first: ir.Operation, second: ir.Operation) -> ir.Operation:
    """Both as one operator, in the place of the second; what waits for the first comes behind it."""
    a, b, later = rows.Structured(first), rows.Structured(second), _dependent(first, second)
    inputs = list(dict.fromkeys([*_read(a), *_read(b)]))
    own, given = ([inputs.index(pair) for pair in _read(s)] for s in (a, b))
    results = len(first.results)

    def body(*arguments: ir.Value) -> list[ir.Value]:
        outs = arguments[len(inputs) :]
        return [
            *cloned(a.body, [*(arguments[n] for n in own), *outs[:results]]),
            *cloned(b.body, [*(arguments[n] for n in given), *outs[results:]]),
        ]

    starts = [*list(first.operands)[a.inputs :], *list(second.operands)[b.inputs :]]
    maps = [*(map_ for _, map_ in inputs), *a.maps[a.inputs :], *b.maps[b.inputs :]]
    with second.location, ir.InsertionPoint(second):
        joined = generic([value for value, _ in inputs], starts, maps, a.iterators, body).operation
    for op in reversed(later):
        op.move_after(joined)
    for old, new in zip([*first.results, *second.results], joined.results, strict=True):
        old.replace_all_uses_with(new)
    first.erase()
    second.erase()
    return joined
