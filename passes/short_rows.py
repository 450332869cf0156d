"""Tensors of many rows of few numbers, and the operators that make such rows of such rows, each of the one in its place
(thread_rows.py). Whose dimensions a row's numbers have does not count: reshapes do not move them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.mlir import attr_int, ir
from kitsune_mlir.operations import made_by, permutation_of, slice_of, users_of
from kitsune_mlir.planning.open_sizes import is_open

from .padded_reads import around_of
from .plain_bodies import is_brought, is_plain
from .row_groups import root, scalar_of, users
from .tensor_sizes import TensorSizes

EXTRACT = "tensor.extract"
MOST = 64  # numbers of a row of one tensor
_MOST_TAKEN = 16  # numbers of a row of which one is taken by its place: a choice for each


def is_few(shape: Sequence[int]) -> bool:
    """Whether tensors of these sizes have few numbers, one at least."""
    return not any(map(is_open, shape)) and 0 < prod(shape) <= MOST


@dataclass(frozen=True)
class Cut:
    """What a slice takes of a tensor, dimension by dimension of that."""

    source: ir.Value
    offsets: Sequence[int]
    sizes: Sequence[int]
    strides: Sequence[int]


def cut_of(op: ir.Operation) -> Cut | None:
    """What a tensor.extract_slice takes. Of a transposed tensor it takes what it takes of that one where no numbers
    change their order; None where they do."""
    cut, source = slice_of(op), op.operands[0]
    maker = made_by(source, "linalg.transpose")
    if maker is None:
        return Cut(source, cut.offsets, cut.sizes, cut.strides)
    permutation = permutation_of(maker)
    longer = [d for d, size in zip(permutation, cut.sizes, strict=True) if size != 1]
    if longer != sorted(longer):
        return None
    back = [permutation.index(d) for d in range(len(permutation))]
    return Cut(maker.operands[0], *([part[i] for i in back] for part in (cut.offsets, cut.sizes, cut.strides)))


def extracts_of(op: ir.Operation) -> list[ir.Operation]:
    """The elements that a generic operator takes by number, in the order of its body."""
    block = op.regions[0].blocks[0]
    return [inner.operation for inner in block.operations if inner.operation.name == EXTRACT]


def read_by(op: ir.Operation) -> list[ir.Value]:
    """What an operator reads: a slice of a transposed tensor that tensor, a generic operator its inputs and then what
    it takes elements of."""
    if op.name == "linalg.generic":
        return [*rows.Structured(op).given, *(taken.operands[0] for taken in extracts_of(op))]
    if op.name == "tensor.pad":
        return [op.operands[0]]
    cut = cut_of(op) if op.name == "tensor.extract_slice" else None
    return list(op.operands) if cut is None else [cut.source]


def readers(value: ir.Value) -> Iterator[ir.Operation]:
    """The operations that read a value, a reshape of it, or a transposed one where nothing but slices does that."""
    for op in users(value):
        behind = _slices_behind(op)
        yield from behind or [op.parent.operation if op.name == EXTRACT else op]


def transposes(value: ir.Value) -> list[ir.Operation]:
    """The transposes of a value that are there for slices alone."""
    return [op for op in users(value) if _slices_behind(op)]


def _slices_behind(op: ir.Operation) -> list[ir.Operation]:
    """The readers of a transpose, all of which are slices that keep the order of numbers; none where one is not."""
    if op.name != "linalg.transpose":
        return []
    found = users_of(op.results[0])
    return found if all(one.name == "tensor.extract_slice" and cut_of(one) for one in found) else []


def scalar(value: ir.Value) -> ir.Value | None:
    """The constant that an operand is everywhere, if it is one."""
    return scalar_of(root(value)) if rows.is_tensor(value) else scalar_of(value)


@dataclass(frozen=True)
class ShortRows:
    """Tensors of so many rows, more than one."""

    count: int
    sizes: TensorSizes
    _columns: dict[ir.Value, list[int] | None] = field(default_factory=dict, repr=False)  # those asked for

    def columns(self, value: ir.Value) -> list[int] | None:
        """The sizes of a tensor's rows; None where it has not so many rows of few numbers."""
        if value not in self._columns:
            shape = self.sizes.shape(value)
            found = (k for k in range(len(shape) + 1) if prod(shape[:k]) == self.count and is_few(shape[k:]))
            k = next(found, None)
            self._columns[value] = None if k is None else shape[k:]
        return self._columns[value]

    def base(self, value: ir.Value) -> ir.Value:
        """The first tensor of such rows that a value is a reshape of, or the value: others on the way may have rows
        that are several of these, or parts."""
        found = root(value)
        while self.columns(found) is None and (maker := rows.producer(value)) is not None:
            if maker.name not in rows.RESHAPES or self.columns(maker.operands[0]) is None:
                return value
            value = maker.operands[0]
        return found

    def outer(self, value: ir.Value) -> int:
        """How many of its dimensions are those of rows."""
        return ir.RankedTensorType(value.type).rank - len(self.columns(value) or [])

    def fits(self, op: ir.Operation) -> bool:
        """Whether an operator makes rows of rows, each of those in its place."""
        if len(op.results) != 1 or not rows.is_tensor(op.results[0]) or self.columns(op.results[0]) is None:
            return False
        if not is_brought(op.results[0]):
            return False
        if op.name == "tensor.concat":
            of_rows = all(self.columns(value) is not None and is_brought(value) for value in op.operands)
            return of_rows and attr_int(op, "dim") >= self.outer(op.results[0])
        if op.name == "tensor.extract_slice":
            return self._fits_slice(op)
        if op.name == "tensor.pad":
            return self._fits_pad(op)
        return op.name == "linalg.generic" and self._fits_generic(RowLoops(op, self))

    def _fits_slice(self, op: ir.Operation) -> bool:
        cut = cut_of(op)
        if cut is None or self.columns(cut.source) is None:
            return False
        k, before = self.outer(cut.source), self.sizes.shape(cut.source)
        sizes = [before[d] if size == rows.DYNAMIC else size for d, size in enumerate(cut.sizes)]
        whole = sizes[:k] == before[:k] and prod(self.sizes.shape(op.results[0])) == prod(sizes)
        return whole and rows.DYNAMIC not in (*cut.offsets, *cut.strides)

    def _fits_pad(self, op: ir.Operation) -> bool:
        source, around = op.operands[0], around_of(op)
        if around is None or len(op.operands) > 1 or self.columns(source) is None or not is_brought(source):
            return False
        k, (low, high, _) = self.outer(op.results[0]), around
        return k == self.outer(source) and not any((*low[:k], *high[:k]))

    def _fits_generic(self, loops: RowLoops) -> bool:
        if loops.outer is None or not all(map(loops.takes_own, extracts_of(loops.op))):
            return False
        taken = {one.results[0]: self.outer(one.operands[0]) for one in extracts_of(loops.op)}
        if not is_plain(loops.op, places=loops.inner, taken=taken):
            return False
        if not all(map(is_brought, loops.op.operands)) or not is_few([loops.sizes.get(d, 0) for d in loops.inner]):
            return False
        if loops.along:
            fits = scalar(loops.op.operands[-1]) is not None and not set(loops.along) & set(loops.outer)
        else:
            fits = not loops.s.reads_start
        return fits and all(loops.place(i) is not None for i in range(loops.s.inputs))


@dataclass(frozen=True)
class RowLoops:
    """The loops of a generic operator that makes rows."""

    op: ir.Operation
    space: ShortRows

    @cached_property
    def s(self) -> rows.Structured:
        return rows.Structured(self.op)

    @cached_property
    def sizes(self) -> dict[int, int]:
        """How many turns each has."""
        found: dict[int, int] = {}
        for value, map_ in zip(self.op.operands, self.s.maps):
            if rows.is_tensor(value):
                for size, expr in zip(self.space.sizes.shape(value), map_.results, strict=True):
                    if (d := rows.dim_of(expr)) is not None:
                        found[d] = size
        return found

    @cached_property
    def outer(self) -> list[int] | None:
        """Those over rows; None where the place of a result is computed."""
        result = self.op.results[0]
        places = [rows.dim_of(expr) for expr in self.s.maps[-1].results]
        known = [d for d, size in zip(places, self.space.sizes.shape(result)) if d is not None or size != 1]
        if None in known or len(set(known)) < len(known):
            return None
        return [d for d in places[: self.space.outer(result)] if d is not None]

    @cached_property
    def inner(self) -> list[int]:
        """Those over the numbers of a row."""
        return [d for d in range(len(self.s.iterators)) if d not in (self.outer or [])]

    @cached_property
    def along(self) -> list[int]:
        """Those of a reduction."""
        return self.s.reductions

    @cached_property
    def across(self) -> list[int | None]:
        """Those over the dimensions of the result's rows; None for one of a single number."""
        exprs = list(self.s.maps[-1].results)[self.space.outer(self.op.results[0]) :]
        return [rows.dim_of(expr) for expr in exprs]

    def place(self, number: int) -> list[ir.AffineExpr] | None:
        """Where an operand is read: in its row, or, where all rows share it, in all of it. None where other rows are
        read as well, [] of a number."""
        value, exprs = self.op.operands[number], list(self.s.maps[number].results)
        if scalar(value) is not None:
            return []
        if not rows.is_tensor(value):
            return None
        loops, shape = self.outer or [], self.space.sizes.shape(value)
        if self.space.columns(value) is not None:
            k = self.space.outer(value)
            own = [rows.dim_of(expr) for expr, size in zip(exprs[:k], shape) if size != 1]
            wanted = [d for d in loops if self.sizes[d] != 1]
            if own == wanted and not any(rows.loops_of(expr) & set(loops) for expr in exprs[k:]):
                return exprs[k:]
        if any(rows.loops_of(expr) & set(loops) for expr in exprs) or not is_few(shape):
            return None
        return exprs

    def read_along(self, number: int) -> list[tuple[int, bool]]:
        """Of each loop over the numbers of a row its turns, and whether an operand has elements for them."""
        found = {loop for expr in self.place(number) or [] for loop in rows.loops_of(expr)}
        return [(self.sizes[d], d in found) for d in self.inner if self.sizes[d] != 1]

    def takes_own(self, extract: ir.Operation) -> bool:
        """Whether an element that is taken by number is one of a row's own, and of few numbers."""
        table, *places = extract.operands
        columns, loops = self.space.columns(table), self.outer or []
        if columns is None or prod(columns) > _MOST_TAKEN or not is_brought(table):
            return False
        k, shape = self.space.outer(table), self.space.sizes.shape(table)
        found = [_loop_of(place) for place, size in zip(places[:k], shape) if size != 1]
        return found == [d for d in loops if self.sizes[d] != 1]

    def is_shared(self, number: int) -> bool:
        """Whether all rows share an operand, or a tensor that elements are taken of, which none do."""
        if number >= self.s.inputs:
            return False
        place, of_number = self.place(number), scalar(self.op.operands[number]) is not None
        return not of_number and place is not None and len(place) == len(self.s.maps[number].results)


def _loop_of(place: ir.Value) -> int | None:
    """The loop whose number an index in a body is."""
    op = rows.producer(place)
    return attr_int(op, "dim") if op is not None and op.name == "linalg.index" else None
