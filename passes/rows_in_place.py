"""Operators on rows between a transpose and the one back, where the tensor lies in memory:

    %t = linalg.transpose %x permutation = [0, 2, 3, 1]            // channels last
    %m = linalg.generic {... "reduction"} ins(%t)                  // sums over channels
    %c = linalg.generic ins(%t, %m)
    %y = linalg.transpose %c permutation = [0, 3, 1, 2]            // and back
  =>
    %m = linalg.generic {..., "reduction", "parallel", "parallel"} ins(%x)
    %y = linalg.generic ins(%x, %m)

So a norm of channels is written that moves them last. A kernel on rows has the threads for either (row_groups.py). What
is moved is one block of dimensions to the end, and back; operators are elementwise or reduce those, and all that is
between is theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.generics import generic, sizes_of
from kitsune_mlir.mlir import ir, replace_op, tensor
from kitsune_mlir.operations import element_type, erase_unused, is_generic, operations_of, permutation_of, users_of
from kitsune_mlir.planning.row_tiles import LEAST_INNER, MOST_TURNED

from .product_follows import is_elementwise


def take_rows_in_place(block: ir.Block) -> None:
    """Rewrites such operators of a block."""
    taken: list[ir.Operation] = []
    found = []
    for op in operations_of(block, "linalg.transpose"):
        if op not in taken and (moved := _moved(op)) is not None:
            region = _Region(moved, rows.shape_of(op.results[0]))
            if region.grow(op) and not any(one in taken for one in region.all) and region.pays():
                taken += region.all
                found.append(region)
    for region in found:
        region.rewrite()


def _moved(transpose: ir.Operation) -> range | None:
    """The dimensions of its operand that a transpose moves to the end, if they are neighbours and it moves no more."""
    permutation = permutation_of(transpose)
    first = next((i for i, d in enumerate(permutation) if i != d), None)
    if first is None:
        return None
    count = len(permutation) - permutation.index(first)
    moved = range(first, first + count)
    wanted = [d for d in range(len(permutation)) if d not in moved] + list(moved)
    return moved if permutation == wanted else None


class _Region:
    """What is computed between transposes that move these dimensions to the end, and back: values of this shape."""

    def __init__(self, moved: range, shape: list[int]):
        self.moved, self.shape = moved, shape
        self.before: list[ir.Operation] = []  # transposes
        self.behind: list[ir.Operation] = []
        self.members: list[ir.Operation] = []
        rank = len(shape)
        self.columns = range(rank - len(moved), rank)  # loops of them
        self.order = [*range(moved.start), *self.columns, *range(moved.start, self.columns.start)]  # as they lie

    @property
    def all(self) -> list[ir.Operation]:
        return [*self.before, *self.members, *self.behind]

    def grow(self, start: ir.Operation) -> bool:
        """Takes all that is computed from a transpose, and with that; says whether it may, and ends in others back."""
        return self._take(start) and bool(self.members) and bool(self.behind)

    def _take(self, start: ir.Operation) -> bool:
        waiting: list[ir.Operation | None] = [start]
        while waiting:
            op = waiting.pop()
            if op is not None and op in self.all:
                continue
            if op is None:
                return False
            if op.name == "linalg.transpose":
                if list(rows.shape_of(op.results[0])) == self.shape and _moved(op) == self.moved:
                    self.before.append(op)
                    waiting += [user for user in users_of(op.results[0]) if self._fits(user)]
                    continue
                if not self._is_back(op):
                    return False
                self.behind.append(op)
                continue
            if not self._fits(op):
                return False
            self.members.append(op)
            waiting += [rows.producer(value) for value in self._wide(op)]
            if self._is_wide(op.results[0]):
                waiting += users_of(op.results[0])
        return True

    def _is_back(self, op: ir.Operation) -> bool:
        permutation = permutation_of(op)
        return list(rows.shape_of(op.operands[0])) == self.shape and permutation == self.order

    def _is_wide(self, value: ir.Value) -> bool:
        return rows.is_tensor(value) and list(rows.shape_of(value)) == self.shape

    def _wide(self, op: ir.Operation) -> list[ir.Value]:
        """The operands that have all of the dimensions."""
        return [value for value in rows.Structured(op).given if self._is_wide(value)]

    def _fits(self, op: ir.Operation) -> bool:
        """Whether an operator is elementwise on such values, or reduces the dimensions that are moved: what it reads
        besides has some of the loops only, that are neighbours as they are and as they lie."""
        if not is_generic(op):
            return False
        s, rank = rows.Structured(op), len(self.shape)
        if len(s.iterators) != rank or s.index_ops() or not self._wide(op):
            return False
        if is_elementwise(op, []):
            if not self._is_wide(op.results[0]):
                return False
        elif s.iterators != ["parallel"] * self.columns.start + ["reduction"] * len(self.columns):
            return False
        return all(self._lies(value, map_) for value, map_ in zip(op.operands, s.maps))

    def _lies(self, value: ir.Value, map_: ir.AffineMap) -> bool:
        if not rows.is_tensor(value):
            return True
        found = [d for d in map(rows.dim_of, map_.results) if d is not None]
        plain = [d for d in found if self.shape[d] != 1]
        if found != sorted(set(found)):
            return False
        return self._is_wide(value) or [d for d in self.order if d in plain] == plain

    def pays(self) -> bool:
        """Whether kernels on rows do the reductions as they lie."""
        if all(is_elementwise(op, []) for op in self.members):
            return True
        inner = [self.shape[d] for d in range(self.moved.start, self.columns.start)]
        columns = prod(self.shape[d] for d in self.columns)
        return min(inner) > 0 and prod(inner) >= LEAST_INNER and 0 < columns <= MOST_TURNED

    def rewrite(self) -> None:
        """Puts the operators in the places of those that there are."""
        made = {op.results[0]: op.operands[0] for op in self.before}
        members = sorted(self.members, key=_place(self.members[0].block))
        for op in members:
            with op.location, ir.InsertionPoint(op):
                made[op.results[0]] = self._on(op, made)
        for op in self.behind:
            replace_op(op, made[op.operands[0]])
        for op in reversed(members):
            if not self._is_wide(op.results[0]):
                op.results[0].replace_all_uses_with(made[op.results[0]])
            op.erase()
        for op in self.before:
            erase_unused(op)

    def _on(self, op: ir.Operation, made: dict[ir.Value, ir.Value]) -> ir.Value:
        """An operator in loops as the dimensions lie."""
        s, wide = rows.Structured(op), self._is_wide(op.results[0])
        inputs, maps = [], []
        for value, map_ in zip(op.operands, s.maps[: s.inputs]):
            whole = self._is_wide(value)
            inputs.append(made[value] if whole else made.get(value, value))
            maps.append(ir.AffineMap.get_identity(len(self.order)) if whole else self._renamed(map_))
        start = op.operands[s.inputs]
        if wide:
            like = next(value for value, given in zip(inputs, op.operands) if self._is_wide(given))
            start = tensor.empty(sizes_of(like), element_type(start))
            maps.append(ir.AffineMap.get_identity(len(self.order)))
        else:
            maps.append(self._renamed(s.maps[-1]))
        return generic(inputs, [start], maps, [s.iterators[d] for d in self.order], s.body).results[0]

    def _renamed(self, map_: ir.AffineMap) -> ir.AffineMap:
        """A map of loops in the order in which dimensions lie."""
        dims = [ir.AffineDimExpr.get(self.order.index(d)) for d in range(len(self.order))]
        found = [expr if (d := rows.dim_of(expr)) is None else dims[d] for expr in map_.results]
        return ir.AffineMap.get(len(self.order), 0, found)


def _place(block: ir.Block) -> Callable[[ir.Operation], int]:
    places = {op.operation: number for number, op in enumerate(block.operations)}
    return lambda op: places[op]
