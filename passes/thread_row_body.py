"""The kernel of operators on rows of few numbers, each of which a thread has: the same operators on tiles of as many
rows as a warp has threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.generics import constant_index, generic, map_of
from kitsune_mlir.mlir import arith, attr_int, clone_on, i64, ir, linalg, tensor
from kitsune_mlir.operations import element_type, operations_of
from kitsune_mlir.planning.open_sizes import is_open
from kitsune_mlir.planning.row_tiles import WARP, RowTiles
from kitsune_mlir.planning.target import Target

from .kernel_build import deal_tiles, new_agent, new_kernel, read_box, turns, write_box
from .padded_reads import around_of
from .reshapes import reshaped
from .row_bodies import gather
from .row_groups import root
from .short_rows import EXTRACT, Cut, RowLoops, ShortRows, cut_of, extracts_of, scalar
from .tensor_sizes import or_none


@dataclass(frozen=True)
class Given:
    """A tensor whose rows a thread has one of, or one that is `shared` by all."""

    value: ir.Value
    shared: bool

    def count(self, space: ShortRows) -> int:
        """Numbers that a thread has of it."""
        return prod(self.columns(space))

    def columns(self, space: ShortRows) -> list[int]:
        """Their dimensions."""
        found = space.sizes.shape(self.value) if self.shared else space.columns(self.value)
        assert found is not None
        return found


@dataclass
class ThreadRowBody:
    """Operators, in the order of the block, what they are given, and what of theirs is used by others."""

    space: ShortRows
    ops: list[ir.Operation]
    inputs: list[Given]
    outputs: list[ir.Value]
    tiles: dict[Given, ir.Value] = field(default_factory=dict)

    def build(self, tiles: RowTiles, target: Target, name: str) -> list[ir.Value]:
        """The kernel, behind what it is given, and what it gives in the place of the outputs."""
        last = self.ops[-1]
        gather(self.ops)
        with last.location, ir.InsertionPoint(last):
            brought = {given: self._brought(given) for given in self.inputs}
            extent, zero = self._extent(brought), constant_index(0)
            with new_kernel(name, target, tiles.microseconds, ctas=tiles.ctas) as built:
                dealt = deal_tiles([extent], [tiles.rows])
                counts = {"lanes": tiles.lanes, "vector": tiles.vector}
                with new_agent("rows", tiles.copies, tiles.warps, tiles.registers, **counts) as copy:
                    with turns(*dealt.results) as number:
                        first = arith.muli(number, constant_index(tiles.rows))
                        own = arith.addi(first, arith.muli(copy, constant_index(WARP)))
                        self._emit(brought, [own, zero])
            return [self._result(built, number, value) for number, value in enumerate(self.outputs)]

    def _brought(self, given: Given) -> ir.Value:
        """What is read, as rows of one dimension, or as one row."""
        count = given.count(self.space)
        return reshaped(given.value, [count] if given.shared else [or_none(self.space.count), count])

    def _extent(self, brought: dict[Given, ir.Value]) -> ir.Value:
        """How many rows there are."""
        if not is_open(self.space.count):
            return constant_index(self.space.count)
        of_rows = next(whole for given, whole in brought.items() if not given.shared)
        return tensor.dim(of_rows, constant_index(0))

    def _result(self, kernel: ir.OpView, number: int, value: ir.Value) -> ir.Value:
        """What takes the place of one of the outputs."""
        kind, own = ir.RankedTensorType(value.type), Given(value, False)
        count = rows.DYNAMIC if is_open(self.space.count) else self.space.count
        type_ = ir.RankedTensorType.get([count, own.count(self.space)], kind.element_type)
        result = kitsune.result(kernel.results[0], number, type_)
        return reshaped(result, [None if kind.is_dynamic_dim(d) else kind.shape[d] for d in range(kind.rank)])

    def _emit(self, brought: dict[Given, ir.Value], at: Sequence[ir.Value]) -> None:
        """The operators on the tile whose first row and column are these."""
        for given, whole in brought.items():
            count = given.count(self.space)
            tile = _for_all(read_box(whole, at[1:], [count])) if given.shared else read_box(whole, at, [WARP, count])
            self.tiles[given] = tile
        for op in self.ops:
            self.tiles[Given(op.results[0], False)] = self._on_tiles(op)
        for number, value in enumerate(self.outputs):
            own = Given(value, False)
            write_box(_with_columns(self.tiles[own], [own.count(self.space)]), at, number, [0, 1])

    def _tile(self, value: ir.Value, shared: bool = False) -> ir.Value:
        """The tile of a value, of its dimensions behind those of rows."""
        columns = Given(value, shared).columns(self.space)
        if (number := scalar(value)) is not None:
            return linalg.fill(number, outs=[tensor.empty([WARP, *columns], number.type)])
        own = root(value) if shared else self.space.base(value)
        return _with_columns(self.tiles[Given(own, shared)], columns)

    def _on_tiles(self, op: ir.Operation) -> ir.Value:
        """An operator on tiles."""
        result = op.results[0]
        columns, element = self.space.columns(result) or [], element_type(result)
        if op.name == "tensor.concat":
            type_ = ir.RankedTensorType.get([WARP, *columns], element)
            dim = (attr_int(op, "dim") or 0) - self.space.outer(result)
            return tensor.ConcatOp(type_, i64(1 + dim), list(map(self._tile, op.operands))).result
        if op.name == "tensor.extract_slice":
            cut = cut_of(op)
            assert cut is not None
            return _with_columns(self._slice(cut, element), columns)
        if op.name == "tensor.pad":
            return self._padded(op)
        return self._generic(RowLoops(op, self.space), tensor.empty([WARP, *columns], element))

    def _slice(self, cut: Cut, element: ir.Type) -> ir.Value:
        source, k = self._tile(cut.source), self.space.outer(cut.source)
        sizes = [WARP, *cut.sizes[k:]]
        type_, places = ir.RankedTensorType.get(sizes, element), ([0, *cut.offsets[k:]], sizes, [1, *cut.strides[k:]])
        return tensor.ExtractSliceOp(type_, source, [], [], [], *places).result

    def _padded(self, op: ir.Operation) -> ir.Value:
        """A tile with what stands around it, as concatenations."""
        around, found, k = around_of(op), self._tile(op.operands[0]), self.space.outer(op.operands[0])
        assert around is not None
        low, high, outside = around
        for d, sides in enumerate(zip(low[k:], high[k:], strict=True), start=1):
            shape, element = list(found.type.shape), found.type.element_type
            first, last = ([*shape[:d], side, *shape[d + 1 :]] for side in sides)
            number = arith.constant(element, outside)
            parts = [linalg.fill(number, outs=[tensor.empty(part, element)]) for part in (first, last)]
            own = [
                part for part, side in zip((parts[0], found, parts[1]), (sides[0], 1, sides[1]), strict=True) if side
            ]
            shape[d] += sum(sides)
            if len(own) > 1:
                found = tensor.ConcatOp(ir.RankedTensorType.get(shape, element), i64(d), own).result
        return found

    def _generic(self, loops: RowLoops, start: ir.Value) -> ir.Value:
        """A generic operator, whose reductions join one number after another: its loops are one over rows, those over
        the numbers of the result's row, and one for each dimension of a single number."""
        own = [d for d in loops.inner if d not in loops.along]
        count = 1 + len(own) + loops.across.count(None)
        ones = iter(range(1 + len(own), count))
        ends = [next(ones) if d is None else 1 + own.index(d) for d in loops.across]
        operands: list[ir.Value] = []
        maps: list[ir.AffineMap] = []
        turns_ = []
        for at in product(*(range(loops.sizes[d]) for d in loops.along)):
            known = dict(zip(loops.along, at, strict=True))
            given = self._operands(loops, known, own, count)
            turns_.append((known, [(value, len(operands) + i) for i, (value, _) in enumerate(given)]))
            operands += [value for value, _ in given]
            maps += [map_ for _, map_ in given]

        tables = {one.results[0]: self._tile(one.operands[0]) for one in extracts_of(loops.op)}

        def body(*arguments: ir.Value) -> ir.Value:
            found = scalar(loops.op.operands[-1]) if loops.along else None
            for known, given in turns_:
                places = iter(place for _, place in given)
                numbers = [scalar(value) for value in loops.s.given]
                values = [arguments[next(places)] if number is None else number for number in numbers]
                found = _cloned(loops.s.body, [*values, found], known, own, tables)
            return found

        return generic(operands, [start], [*maps, map_of(count, [0, *ends])], ["parallel"] * count, body).results[0]

    def _operands(
        self, loops: RowLoops, known: dict[int, int], own: Sequence[int], count: int
    ) -> list[tuple[ir.Value, ir.AffineMap]]:
        """The tiles that an operator reads in a turn of its reduction, and where."""
        exprs = [ir.AffineDimExpr.get(0)] * len(loops.s.iterators)
        for d in range(len(exprs)):
            if d in known:
                exprs[d] = ir.AffineConstantExpr.get(known[d])
            elif d in own:
                exprs[d] = ir.AffineDimExpr.get(1 + own.index(d))
        places = ir.AffineMap.get(count, 0, exprs)
        found = []
        for i, value in enumerate(loops.s.given):
            if scalar(value) is None:
                place = [expr.compose(places) for expr in loops.place(i) or []]
                map_ = ir.AffineMap.get(count, 0, [ir.AffineDimExpr.get(0), *place])
                found.append((self._tile(value, loops.is_shared(i)), map_))
        return found


def _cloned(
    body: ir.Block,
    arguments: Sequence[ir.Value | None],
    known: Mapping[int, int],
    own: Sequence[int],
    tables: Mapping[ir.Value, ir.Value],
) -> ir.Value | None:
    """What a body yields at the insertion point, of these arguments, with some loops at a known place. Elements that it
    takes by number are those of these tiles."""
    values = dict(zip(body.arguments, arguments, strict=True))
    *inner, end = operations_of(body)
    for op in inner:
        if op.name == EXTRACT:
            tile = tables[op.results[0]]
            columns = list(op.operands)[-(tile.type.rank - 1) :] if tile.type.rank > 1 else []
            with op.location:
                places = [linalg.IndexOp(i64(0)).result, *(values.get(place, place) for place in columns)]
                values[op.results[0]] = tensor.extract(tile, places)
        elif op.name != "linalg.index":
            clone_on(op, values)
        elif (d := attr_int(op, "dim")) in known:
            values[op.results[0]] = constant_index(known[d])
        elif d in own:
            values[op.results[0]] = linalg.IndexOp(i64(1 + own.index(d))).result
    return values.get(end.operands[0], end.operands[0])


def _for_all(row: ir.Value) -> ir.Value:
    """A row that all rows share, for each of them."""
    kind = ir.RankedTensorType(row.type)
    start = tensor.empty([WARP, kind.shape[0]], kind.element_type)
    return generic([row], [start], [map_of(2, [1]), map_of(2, [0, 1])], ["parallel"] * 2, lambda x, _: x).results[0]


def _with_columns(tile: ir.Value, columns: Sequence[int]) -> ir.Value:
    """A tile with these sizes of its rows."""
    kind = ir.RankedTensorType(tile.type)
    if list(kind.shape[1:]) == list(columns):
        return tile
    if kind.rank > 2:
        type_ = ir.RankedTensorType.get([WARP, prod(columns)], kind.element_type)
        return _with_columns(tensor.CollapseShapeOp(type_, tile, [[0], list(range(1, kind.rank))]).result, columns)
    type_ = ir.RankedTensorType.get([WARP, *columns], kind.element_type)
    if not columns:
        return tensor.CollapseShapeOp(type_, tile, [[0, 1]]).result
    behind = list(range(1, len(columns) + 1))
    groups = [[0], behind] if kind.rank == 2 else [[0, *behind]]
    return tensor.ExpandShapeOp(type_, tile, groups, [], list(type_.shape)).result
