"""A row group as a program on tiles: what is read of which tensors, the operators on tiles, what is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kitsune_mlir import rows
from kitsune_mlir.codegen.gpu_buffers import ancestor_in
from kitsune_mlir.dialects import kitsune, schedule
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.generics import constant_index, elementwise, empty_generic, generic, map_of
from kitsune_mlir.mlir import arith, clone_on, in_block_order, ir, linalg, tensor
from kitsune_mlir.operations import element_type
from kitsune_mlir.planning.open_sizes import is_open

from .kernel_build import read_box, write_box
from .reshapes import cut_for, reshaped, reshaped_as
from .row_columns import column_of
from .row_groups import Member, joined, root, scalar_of
from .row_plan import RowPlan
from .row_scans import on_tile
from .tensor_sizes import TensorSizes, or_none

Key = tuple[ir.Value, tuple[bool, ...], bool]


@dataclass
class RowBody:
    """A group on tiles of so many rows and all columns. `given` are tiles that are there, by what they are of. Where
    several sizes are open until the call, `several` knows those of tensors. What has all rows and columns is `streamed`
    where an agent has whole rows."""

    plan: RowPlan
    rows: int
    given: dict[ir.Value, ir.Value] = field(default_factory=dict)
    several: TensorSizes | None = None
    streamed: bool = False
    inputs: dict[Key, ir.Value] = field(default_factory=dict)
    places: dict[Key, int] = field(default_factory=dict)  # of inputs that are columns of tensors, which
    values: dict[ir.Value, ir.Value] = field(default_factory=dict)  # what is on tiles, by what it is of

    @property
    def columns(self) -> int:
        """The columns of a tile."""
        return self.plan.space.columns

    def bring(self) -> None:
        """Makes, around the kernel, what is read of the shapes that it is read in."""
        for member in self.plan.group.ordered:
            for key in self._keys(member):
                if key is not None and key not in self.inputs:
                    self.inputs[key] = self._input(key)

    def _keys(self, member: Member) -> list[Key | None]:
        """What an operator reads from outside of the group: a tensor, which segments of rows it has, and whether it
        has columns. None for its other operands."""
        return [
            None
            if role is None or self.plan.is_inside(value) or root(value) in self.given
            else (root(value), self.plan.present(member, role), role.columns)
            for value, role in zip(member.op.operands, member.roles)
        ]

    def _sizes(self, present: Sequence[bool], columns: bool) -> list[int | None]:
        """Those of a tensor that has these segments of rows, and columns or not; open ones as the plan has them."""
        own = [size for size, here in zip(self.plan.segments, present) if here]
        if columns:
            own.insert(self.plan.place(present), self.plan.space.columns)
        return own

    def _shape(self, present: Sequence[bool], columns: bool) -> list[int | None]:
        return [None if size is None else or_none(size) for size in self._sizes(present, columns)]

    def _input(self, key: Key) -> ir.Value:
        value, present, columns = key
        if not columns and sum(present) == 1 and present[self.plan.along] and (column := column_of(value)) is not None:
            self.places[key] = column.place
            return column.source
        if self.several is not None:
            wanted = [size or 1 for size in self._sizes(present, columns)]
            return reshaped_as(value, self.several.shape(value), wanted, self.several.as_value)
        return reshaped(value, self._shape(present, columns))

    def check(self) -> None:
        """Raises UnsupportedError where what is read has no such shape, of several open sizes."""
        assert self.several is not None
        for value, present, columns in filter(None, (key for m in self.plan.group.ordered for key in self._keys(m))):
            own = self.several.shape(value)
            parts = cut_for(own, [size or 1 for size in self._sizes(present, columns)])
            if not all(size in own or self.several.is_computed(size) for size in filter(is_open, parts)):
                raise UnsupportedError("a size that no argument has is a part of another one")

    def extent(self, size: int | None) -> ir.Value:
        """A size of the plan: a number, or one that is open until the call, of a tensor that has it."""
        if size is not None and not is_open(size):
            return constant_index(size)
        if self.several is None:
            value = next(value for value in self.inputs.values() if rows.DYNAMIC in rows.shape_of(value))
            return tensor.dim(value, constant_index(rows.shape_of(value).index(rows.DYNAMIC)))
        sizes = ((value, self._sizes(present, columns)) for (_, present, columns), value in self.inputs.items())
        value, d = next((value, own.index(size)) for value, own in sizes if size in own)
        return tensor.dim(value, constant_index(d))

    def results(self, kernel: schedule.KernelOp) -> list[ir.Value]:
        """What takes the place of the group's outputs."""
        return [self._result(kernel, number, member) for number, member in enumerate(self.plan.outputs)]

    def _result(self, kernel: schedule.KernelOp, number: int, member: Member) -> ir.Value:
        kind = ir.RankedTensorType(member.op.results[0].type)
        sizes = self._shape([True] * len(self.plan.segments), member.has_columns)
        type_ = ir.RankedTensorType.get([rows.DYNAMIC if size is None else size for size in sizes], kind.element_type)
        if self.several is not None:
            return self._of_several(kernel, number, member, type_)
        result = kitsune.result(kernel.results[0], number, type_)
        if not kind.rank:  # all elements of a tensor were reduced to one
            return tensor.CollapseShapeOp(kind, reshaped(result, [1]), []).result
        open_ = [d for d in range(kind.rank) if kind.is_dynamic_dim(d)]
        if len(open_) > sizes.count(None) > 0:  # rows of several open sizes were one size
            flat = reshaped(result, [None])
            lengths = [tensor.dim(member.op.operands[member.s.inputs], constant_index(d)) for d in open_]
            return tensor.ExpandShapeOp(kind, flat, [list(range(kind.rank))], lengths, list(kind.shape)).result
        return reshaped(result, [None if d in open_ else kind.shape[d] for d in range(kind.rank)])

    def _of_several(self, kernel: schedule.KernelOp, number: int, member: Member, type_: ir.Type) -> ir.Value:
        """The same of a kernel of several open sizes."""
        assert self.several is not None
        own = [size or 1 for size in self._sizes([True] * len(self.plan.segments), member.has_columns)]
        result = kitsune.result(kernel.results[0], number, type_, list(map(self.extent, filter(is_open, own))))
        start = member.op.operands[member.s.inputs]
        wanted = self.several.shape(start)
        return reshaped_as(result, own, wanted, lambda size: rows.size_of(start, wanted.index(size)))

    def emit(self, at: Sequence[ir.Value], zero: ir.Value) -> None:
        """The group on the tile whose first row is at these offsets, one for each segment of the rows, and whose
        first column is number `zero`."""
        tiles = {key: self._read(key, whole, at, zero, self._marks(*key[1:])) for key, whole in self.inputs.items()}
        for member in self.plan.group.ordered:
            tile = self._tiled(member, tiles)
            self.values[member.op.results[0]] = tile
            self._write(member, at, zero, self._marks([True], member.has_columns))

    def _marks(self, present: Sequence[bool], columns: bool) -> list[str]:
        """What is said of a box that has these segments of rows, and columns or not."""
        return [schedule.STREAMED] * (self.streamed and columns and all(present))

    def _write(
        self,
        member: Member,
        at: Sequence[ir.Value],
        column: ir.Value,
        marks: Sequence[str] = (),
        until: ir.Value | None = None,
    ) -> None:
        """Writes what an operator gives, from a column on and perhaps `until` one, if it is used outside of the group;
        `marks` are of the write what they are of a read."""
        if member in self.plan.outputs:
            number = self.plan.outputs.index(member)
            offsets, dims = self._box(at, [True] * len(at), member.has_columns, column)
            more = [] if until is None else [until]
            marks = [*marks, *[schedule.UNTIL] * len(more)]
            write_box(self.values[member.op.results[0]], [*offsets, *more], number, dims, marks=marks)

    def _read(
        self,
        key: Key,
        whole: ir.Value,
        at: Sequence[ir.Value],
        zero: ir.Value,
        marks: Sequence[str] = (),
    ) -> ir.Value:
        _, present, columns = key
        offsets, dims = self._box(at, present, columns, zero)
        kind = ir.RankedTensorType(whole.type)
        if not offsets:
            offsets = [constant_index(0)] * kind.rank
        if key in self.places:
            offsets = [*offsets, constant_index(self.places[key])]
        shape = [self.rows] * present[self.plan.along] + [self.columns] * columns
        return read_box(whole, offsets, shape, dims, marks)

    def _box(
        self, at: Sequence[ir.Value], present: Sequence[bool], columns: bool, zero: ir.Value
    ) -> tuple[list[ir.Value], list[int]]:
        """Where a tile lies in a tensor that has these segments of rows, and columns or not: its first element, and the
        dimensions of its rows, if it has any, and columns."""
        offsets, place = [place for place, here in zip(at, present) if here], self.plan.place(present)
        if columns:
            offsets.insert(place, zero)
        own, along = [d for d in range(len(offsets)) if not columns or d != place], self.plan.along
        return offsets, [own[sum(present[:along])] for _ in range(present[along])] + [place] * columns

    def _operands(
        self, member: Member, tiles: dict[Key, ir.Value], count: int
    ) -> tuple[list[ir.Value], list[ir.AffineMap], dict[ir.Value, ir.Value]]:
        """The tiles that an operator reads in so many loops, and its arguments that are scalars."""
        inputs, maps, scalars = [], [], {}
        arguments = list(member.s.body.arguments)
        for argument, value, role, key in zip(arguments, member.op.operands, member.roles, self._keys(member)):
            if role is None:
                scalars[argument] = scalar_of(value)
                continue
            inputs.append((self.given | self.values)[root(value)] if key is None else tiles[key])
            has_rows = key is None or key[1][self.plan.along]
            maps.append(map_of(count, [0] * has_rows + [1] * role.columns))
        return inputs, maps, scalars

    def _tiled(self, member: Member, tiles: dict[Key, ir.Value]) -> ir.Value:
        """An operator of the group on a tile: a reduction in 32 bits, rounded behind it where its result is smaller."""
        count = 1 if member.kind == "rows" else 2
        inputs, maps, scalars = self._operands(member, tiles, count)
        if member.kind == "scan":
            return on_tile(member.op, self._of_rows(inputs[0]))
        shape = [self.rows, self.columns] if member.kind == "tile" else [self.rows]
        element = element_type(member.op.results[0])
        if member.kind == "reduction":
            maps.append(map_of(count, [0]))
            value = self._cloned(member, inputs, self._start(member), maps, ["parallel", "reduction"], scalars)
            return rounded(member, value)
        maps.append(map_of(count, list(range(len(shape)))))
        return self._cloned(member, inputs, tensor.empty(shape, element), maps, ["parallel"] * count, scalars)

    def _of_rows(self, tile: ir.Value) -> ir.Value:
        """The columns of a tensor that has one row only, as those of a tile's rows."""
        kind = ir.RankedTensorType(tile.type)
        if kind.rank == 2:
            return tile
        start, maps = tensor.empty([self.rows, self.columns], kind.element_type), [map_of(2, [1]), map_of(2, [0, 1])]
        return generic([tile], [start], maps, ["parallel"] * 2, lambda x, _: x).results[0]

    def _cloned(
        self,
        member: Member,
        inputs: Sequence[ir.Value],
        start: ir.Value,
        maps: Sequence[ir.AffineMap],
        iterators: Sequence[str],
        scalars: dict[ir.Value, ir.Value],
    ) -> ir.Value:
        """A linalg.generic with an operator's body. Casts to and from the type of its result go where a reduction has
        another now."""
        generic = empty_generic(inputs, [start], maps, iterators)
        own = iter(generic.regions[0].blocks[0].arguments)
        values = {a: scalars[a] if a in scalars else next(own) for a in member.s.body.arguments}
        with ir.InsertionPoint(generic.regions[0].blocks[0]):
            self._bring_numbers(member, values)
            for inner in member.s.body.operations:
                inner = inner.operation
                first = values.get(inner.operands[0], inner.operands[0]) if len(inner.operands) else None
                if inner.name == "linalg.yield":
                    linalg.YieldOp([_unrounded(first, element_type(start))])
                elif inner.name == "arith.extf" and first.type == inner.results[0].type:
                    values[inner.results[0]] = first
                else:
                    clone_on(inner, values)
        return generic.results[0]

    def _bring_numbers(self, member: Member, values: dict[ir.Value, ir.Value | None]) -> None:
        """What an operator's body uses from around it and constants do not give, computed at the insertion point."""

    def _start(self, member: Member) -> ir.Value:
        """What a reduction of a tile's rows begins with."""
        kind = join_of(member).results[0].type
        return linalg.fill(_start_of(member, kind), outs=[tensor.empty([self.rows], kind)])


def join_of(member: Member) -> ir.Operation:
    """What joins the elements of a reduction."""
    join = joined(member.op)
    assert join is not None
    return join


def rounded(member: Member, value: ir.Value) -> ir.Value:
    """The numbers of a reduction, which is done in 32 bits, as elements of its type."""
    element = element_type(member.op.results[0])
    if element == element_type(value):
        return value
    return elementwise([value], element, lambda x: arith.truncf(element, x))


def _unrounded(value: ir.Value, element: ir.Type) -> ir.Value:
    """What is yielded, before it was rounded where the accumulator is not."""
    if value.type == element:
        return value
    cast = value.owner.operation
    found = cast.operands[0]
    cast.erase()
    return found


def _start_of(member: Member, type_: ir.Type) -> ir.Value:
    """What a reduction begins with, in the type that it is done in."""
    scalar = scalar_of(member.op.operands[-1])
    assert scalar is not None
    if scalar.type == type_:
        return scalar
    number = ir.FloatAttr(scalar.owner.operation.attributes["value"]).value
    return arith.constant(type_, number)


def replace(outputs: Sequence[ir.Value], results: Sequence[ir.Value], group: Sequence[ir.Operation]) -> None:
    """Puts values in the place of what a group of operators gives to others, and erases it."""
    for output, result in zip(outputs, results, strict=True):
        output.replace_all_uses_with(result)
    for op in reversed(group):
        erase(op)


def erase(op: ir.Operation) -> None:
    """Erases an operator with what is computed of its result, of which nothing is used."""
    while uses := list(op.results[0].uses):
        erase(uses[0].owner.operation)
    op.erase()


def gather(group: Sequence[ir.Operation]) -> None:
    """Moves what is computed from a group of operators, and stands between them, behind the last."""
    last = group[-1]
    waiting, moved = [result for op in group for result in op.results], set[ir.Operation]()
    for value in waiting:
        for op in (ancestor_in(last.block, use.owner.operation) for use in value.uses):
            if op not in group and op not in moved and op.is_before_in_block(last):
                moved.add(op)
                waiting += op.results
    for op in reversed(in_block_order(moved)):
        op.move_after(last)
