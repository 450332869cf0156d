"""Vectors of few coordinates that pairs have become a tensor for each coordinate, while linalg is prepared.

    %r = linalg.generic {(b, i, j, c)} ins(%x by (b, j, c), %x by (b, i, c)) { subf }         // tensor<4x1024x1024x3>
    %s = linalg.generic {(b, i, j), sum over c} ins(%r) { a * a + s }
    %f = linalg.generic {(b, i, j, c)} ins(%r, %s by (b, i, j)) { mulf }
    %y = linalg.generic {(b, i, c), sum over j} ins(%f) { addf }
  =>
    %r0, %r1, %r2 = linalg.generic {(b, i, j)} ins(%x[.., 0] by (b, j), %x[.., 0] by (b, i)) { subf } ...
    %s = linalg.generic {(b, i, j)} ins(%r0, %r1, %r2) ...
    %f0, %f1, %f2 = ...;  %y0, %y1, %y2 = linalg.generic {(b, i), sum over j} ...
    %y = tensor.concat dim(2) %y0, %y1, %y2

So forces between bodies are: what is summed over the others depends on the distance, a sum over coordinates, so that as
vectors they are written for all pairs, and read again. Apart, all is elementwise but for the sums over j, which one
kernel computes of what the bodies have.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from kitsune_mlir import rows
from kitsune_mlir.mlir import ir, linalg, tensor, walk

from .schedule_build import cloned, generic, sizes_of, slice_at

COUNTS = (2, 3, 4)  # coordinates of a vector
LEAST_RANK = 3  # of the vectors of pairs


def take_coordinates_apart(function: ir.Operation) -> None:
    """Rewrites what @function computes of vectors of pairs that are summed over one of the two."""
    for members in _groups(function):
        _Apart(members).build()


def _groups(function: ir.Operation) -> list[list[ir.Operation]]:
    """Operators on vectors of pairs, in their order: those that read each other are one group. Nothing but these and
    sums reads the vectors, and some are summed over one of the two."""
    inside = {op: None for op in walk(function, "linalg.generic") if _is_of_vectors(op)}
    while left := [op for op in inside if not _may_stay(op, inside)]:
        for op in left:
            del inside[op]
    groups: list[set[ir.Operation]] = []
    for op in inside:
        beside = {made for value in op.operands if (made := rows.producer(value)) in inside}
        own = {op}.union(*(group for group in groups if group & beside))
        groups = [group for group in groups if not group & beside] + [own]
    ordered = [[op for op in inside if op in group] for group in groups]
    return [ops for ops in ordered if any(_is_over_others(user) for op in ops for user in _users(op))]


def _is_of_vectors(op: ir.Operation) -> bool:
    """Whether an operator computes vectors of few coordinates, element by element."""
    if len(op.results) != 1 or not _is_plain_start(op.operands[-1]):
        return False
    shape = rows.shape_of(op.results[0])
    return len(shape) >= LEAST_RANK and shape[-1] in COUNTS and rows.Structured(op).is_of_elements()


def _is_plain_start(value: ir.Value) -> bool:
    made = rows.producer(value)
    return made is not None and made.name == "tensor.empty"


def _may_stay(op: ir.Operation, inside: dict[ir.Operation, None]) -> bool:
    """Whether an operator's vectors are read by others inside, or summed, and are not there already: coordinates of
    vectors in memory lie side by side."""
    s = rows.Structured(op)
    last, whole = len(s.iterators) - 1, len(s.iterators)
    for value, map_ in zip(op.operands, s.maps[: s.inputs]):
        loops = [rows.dim_of(expr) for expr in map_.results]
        if last in loops and rows.producer(value) not in inside and len([d for d in loops if d is not None]) == whole:
            return False
        if any(loop is None and last in rows.loops_of(expr) for loop, expr in zip(loops, map_.results)):
            return False
    users = list(_users(op))
    return bool(users) and all(user in inside or _is_over_others(user) or _is_over_all(user) for user in users)


def _users(op: ir.Operation) -> list[ir.Operation]:
    return [use.owner.operation for use in op.results[0].uses if use.owner.name != "tensor.dim"]


def _is_sum(op: ir.Operation) -> bool:
    """Whether it reduces one tensor, which it reads as it lies, beginning with a number."""
    if op.name != "linalg.generic" or len(op.operands) != 2 or len(op.results) != 1:
        return False
    s = rows.Structured(op)
    started = rows.producer(op.operands[1])
    plain = s.maps[0] == ir.AffineMap.get_identity(len(s.iterators)) and not s.index_ops() and not s.tables()
    filled = started is not None and started.name == "linalg.fill" and _is_plain_start(started.operands[1])
    return plain and filled and "reduction" in s.iterators and None not in map(rows.dim_of, s.maps[1].results)


def _is_over_others(op: ir.Operation) -> bool:
    """Whether it sums over one of the two, for each coordinate."""
    if not _is_sum(op):
        return False
    s = rows.Structured(op)
    last = len(s.iterators) - 1
    return s.iterators[last] == "parallel" and rows.dim_of(list(s.maps[1].results)[-1]) == last


def _is_over_all(op: ir.Operation) -> bool:
    """Whether it sums over the coordinates alone."""
    if not _is_sum(op):
        return False
    s = rows.Structured(op)
    last = len(s.iterators) - 1
    kept = [rows.dim_of(expr) for expr in s.maps[1].results]
    return s.iterators == ["parallel"] * last + ["reduction"] and kept == list(range(last))


class _Apart:
    """Takes the coordinates of a group's vectors apart."""

    def __init__(self, members: Sequence[ir.Operation]):
        self.members = members
        self.parts: dict[ir.Value, list[ir.Value]] = {}  # the coordinates of a vector

    def build(self) -> None:
        sums = {user: None for op in self.members for user in _users(op) if user not in self.members}
        for op in self.members:
            with op.location, ir.InsertionPoint(op):
                count = rows.shape_of(op.results[0])[-1]
                self.parts[op.results[0]] = [self._elements(op, number) for number in range(count)]
        for op in sums:
            with op.location, ir.InsertionPoint(op):
                made = self._over_all(op) if _is_over_all(op) else self._over_others(op)
            op.results[0].replace_all_uses_with(made)

    def _elements(self, op: ir.Operation, number: int) -> ir.Value:
        """One coordinate of what an operator computes."""
        s = rows.Structured(op)
        last = len(s.iterators) - 1
        operands, maps = [], []
        for value, map_ in zip(op.operands, s.maps[: s.inputs]):
            loops = [rows.dim_of(expr) for expr in map_.results]
            results = list(map_.results)
            if value in self.parts:
                value, results = self.parts[value][number], results[:-1]
            elif last in loops:
                at = loops.index(last)
                value, results = slice_at(value, {at: number}), [*results[:at], *results[at + 1 :]]
            operands.append(value)
            maps.append(ir.AffineMap.get(last, 0, results))
        maps.append(ir.AffineMap.get_identity(last))
        return generic(operands, [_shorter(op.operands[-1])], maps, ["parallel"] * last, s.body).results[0]

    def _over_all(self, op: ir.Operation) -> ir.Value:
        """The sum over the coordinates, of their tensors."""
        parts, fill = self.parts[op.operands[0]], rows.producer(op.operands[1])
        assert fill is not None
        rank, body = len(rows.shape_of(op.results[0])), rows.Structured(op).body
        identity = ir.AffineMap.get_identity(rank)

        def total(*given: ir.Value) -> ir.Value:
            return reduce(lambda so_far, x: cloned(body, [x, so_far])[0], given[:-1], fill.operands[0])

        maps, start = [identity] * (len(parts) + 1), fill.operands[1]
        return generic(parts, [start], maps, ["parallel"] * rank, total).results[0]

    def _over_others(self, op: ir.Operation) -> ir.Value:
        """The sums of each coordinate, beside each other."""
        s, fill = rows.Structured(op), rows.producer(op.operands[1])
        assert fill is not None
        last = len(s.iterators) - 1
        maps = [ir.AffineMap.get_identity(last), ir.AffineMap.get(last, 0, list(s.maps[1].results)[:-1])]
        found, kind = [], ir.RankedTensorType(op.results[0].type)
        rank = kind.rank
        for part in self.parts[op.operands[0]]:
            start = linalg.fill(fill.operands[0], outs=[_shorter(fill.operands[1])])
            total = generic([part], [start], maps, s.iterators[:last], s.body).results[0]
            one = ir.RankedTensorType.get([*kind.shape[:-1], 1], kind.element_type)
            groups = [[d] for d in range(rank - 2)] + [[rank - 2, rank - 1]]
            open_ = [size for size in sizes_of(total) if isinstance(size, ir.Value)]
            found.append(tensor.ExpandShapeOp(one, total, groups, open_, list(one.shape)).result)
        return tensor.ConcatOp(kind, rank - 1, found).result


def _shorter(start: ir.Value) -> ir.Value:
    """An empty tensor without the last dimension of another."""
    made, kind = rows.producer(start), ir.RankedTensorType(start.type)
    assert made is not None
    open_ = iter(made.operands)
    sizes = [next(open_) if kind.is_dynamic_dim(d) else kind.shape[d] for d in range(kind.rank - 1)]
    return tensor.empty(sizes, kind.element_type)
