"""What a row group reads and writes: the dimensions into which its rows are cut, and what its price depends on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, prod

from kitsune_mlir import example_sizes, rows
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import element_type
from kitsune_mlir.planning.open_sizes import is_open
from kitsune_mlir.planning.row_tiles import RowGroup
from kitsune_mlir.traffic import element_bytes

from .row_groups import Group, Member, Role, root
from .stage_cost import instructions_of


class RowPlan:
    """What a group reads and writes. `segments` are the dimensions into which its rows are cut, the first None where it
    is open until the call; None where operands cut them in ways that do not agree. `cuts`: the numbers of rows behind
    each, also those that are asked for; `taken` says which size one is taken to be that stands for an open one. The
    rows of a tile are neighbours `along` one of the segments, the last if nothing else is said."""

    def __init__(self, group: Group, cuts: Sequence[int] = (), taken: Callable[[int], int] = int):
        self.group, self.space, self._taken = group, group.space, taken
        self.outputs = group.outputs
        inner = {self.space.inner} - {1}
        self.cuts = sorted({*self._cuts(), *cuts, *inner}, reverse=True)
        self.segments = self._segments()
        self.behind = sum(cut < self.space.inner for cut in [*self.cuts, 1])  # segments that stand behind columns
        self.along = len(self.cuts)

    def _cuts(self) -> set[int]:
        """The numbers of rows behind each cut: where an operand has a loop and not its neighbour."""
        found = set()
        for member in self.group.ordered:
            for role in member.roles:
                for i, d in enumerate(member.row_loops[1:] if role is not None else (), 1):
                    if (d in role.rows) != (member.row_loops[i - 1] in role.rows):
                        found.add(rows_behind(member, i))
        return found

    def _segments(self) -> list[int | None] | None:
        ends = [self.space.rows, *self.cuts, 1]
        if any(a % b for a, b in zip(ends, ends[1:])):
            return None
        sizes: list[int | None] = [a // b for a, b in zip(ends, ends[1:])]
        return [None, *sizes[1:]] if self.space.is_open else sizes

    def present(self, member: Member, role: Role) -> tuple[bool, ...]:
        """Which segments an operand has."""
        own = [i for i, d in enumerate(member.row_loops) if d in role.rows]
        spans = [
            (rows_behind(member, i + 1), rows_behind(member, i) if member.row_sizes[i] is not None else inf)
            for i in own
        ]
        return tuple(any(low <= end < high for low, high in spans) for end in (*self.cuts, 1))

    def _open_rows(self) -> int:
        """The size that is open until the call, as the example has it; 1 where none is."""
        if not self.space.is_open:
            return 1
        values = (value for member in self.group.ordered for value in member.op.operands if rows.is_tensor(value))
        return next(
            example_sizes.shape_of(value)[d]
            for value in values
            for d, size in enumerate(rows.shape_of(value))
            if size == rows.DYNAMIC
        )

    @property
    def has_several_open(self) -> bool:
        """Whether several of its sizes are open until the call, perhaps of one number: how these and known ones between
        are cut their types do not say."""
        return sum(size is None or is_open(size) for size in (*(self.segments or []), self.space.columns)) > 1

    @property
    def reads_rows(self) -> bool:
        """Whether an operand from outside has rows or columns: numbers alone do not tell a kernel its size."""
        operands = ((v, role) for member in self.group.ordered for v, role in zip(member.op.operands, member.roles))
        return any(role and (role.rows or role.columns) and not self.is_inside(value) for value, role in operands)

    def is_inside(self, value: ir.Value) -> bool:
        return root(value) in self.group.members

    def counts(self) -> RowGroup:
        """For the cost model. Of a column, a register holds what is read, or two of 16 bits; another what is made. Half
        of what all rows have is loaded when it is wanted, of 16 bits, which want no registers before."""
        seen, elements, moved, shared, live = set(), [], 0.0, 0.0, 1.0
        work = row_work = 0.0
        of_rows = set[ir.Value]()
        for member in self.group.ordered:
            for value, role in zip(member.op.operands, member.roles):
                if role is not None and not role.columns and role.rows and not self.is_inside(value):
                    of_rows.add(root(value))
                if role is None or not role.columns or self.is_inside(value) or root(value) in seen:
                    continue
                seen.add(root(value))
                size = element_bytes(element_type(value))
                live += size / (8 if size == 2 and not role.rows else 4)
                if role.rows:
                    elements.append(size)
                if member.is_whole(role):
                    moved += size
                elif role.rows:
                    shared += size
            if member in self.outputs and member.has_columns:
                elements.append(element_bytes(element_type(member.op.results[0])))
                moved += elements[-1]
            own = instructions_of(member.s)
            work += own if member.kind != "rows" else 0.0
            row_work += own if member.kind == "rows" else 0.0
        space, segments = self.space, self.segments or [None]
        count, columns = self._taken(space.rows) * self._open_rows(), self._taken(space.columns)
        return RowGroup(
            rows=count,
            columns=columns,
            element_bytes=int(min(elements, default=4)),
            row_bytes=moved * columns,
            live=live,
            work=work,
            reductions=sum(member.kind == "reduction" for member in self.group.ordered),
            scans=sum(member.kind == "scan" for member in self.group.ordered),
            row_work=row_work,
            row_live=len(of_rows),
            shared_bytes=shared * columns,
            is_open=space.is_open or is_open(space.rows),
            segments=self._apart(count) if len(segments) > 1 else 1,
            turned=self.behind > 0,
        )

    def _apart(self, count: int) -> int:
        """In how many parts these rows are of which no tile has rows of two."""
        segments = self.segments or []
        if (together := segments[self.along]) is not None:
            return max(1, count // max(1, self._taken(together)))
        return prod(self._taken(size or 1) for size in segments[1:])

    def place(self, present: Sequence[bool]) -> int:
        """The dimension of the columns in a tensor that has these segments of rows."""
        return sum(present[: len(present) - self.behind])


def rows_behind(member: Member, loop: int) -> int:
    """Rows in a turn of the loop before this one."""
    return prod(size or 1 for size in member.row_sizes[loop:])
