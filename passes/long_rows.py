"""Row groups whose rows no registers hold, or whose length is open until the call, part by part:

    %n = tensor.dim %x, %c1
    %w = ...                             // the columns of whole parts
    %mean = scf.for %c = %c0 to %w step %c1024 iter_args(%before = %zero) {
      %part = "kitsune.read"(%x, %row, %c) : tensor<1x1024xbf16>
      %m = linalg.generic {"reduction"} ins(%part) outs(%before)
    }
    ...                                  // the same of the part behind, of whose columns from %n on zeros are taken
    %squares = scf.for ... {             // reads the row again, takes %mean off
    }
    scf.for ... {                        // reads it once more, writes it
    }

A row is gone through once for all reductions of the same `Level`: as many reductions of the group as they follow from,
one after another. What is elementwise is computed where a level wants it, each time anew. The largest number of a row
and the sum of exponentials of its numbers less it are of one level: the sum so far is multiplied as the number grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kitsune_mlir import rows
from kitsune_mlir.codegen.gpu_reduction import Combiner
from kitsune_mlir.dialects import schedule
from kitsune_mlir.dialects.captures import captures
from kitsune_mlir.generics import constant_index, elementwise, generic, map_of
from kitsune_mlir.mlir import arith, clone_on, ir, linalg, math, scf, tensor
from kitsune_mlir.operations import element_type, users_of
from kitsune_mlir.planning.open_sizes import is_open

from .open_lengths import computed_of
from .reshapes import reshaped
from .row_bodies import Key, RowBody, join_of, rounded
from .row_groups import Member
from .row_passes import Level, levels_of, ready_in
from .score_tiles import widened
from .softmax_rows import Online, find_online, of_any, or_zero


@dataclass
class LongRowBody(RowBody):
    """A group on so many rows: all columns at once where there are no more than `most`, else parts of `part`, and of
    what is left before and behind these `fewer` at a time. Vectors of `vector` neighbours lie at multiples of them."""

    most: int = 0
    part: int = 0
    fewer: int = 0
    vector: int = 1
    wide: int = field(init=False, default=0)  # the columns of a tile
    tiles: dict[Key, ir.Value] = field(default_factory=dict)  # of rows alone
    size: ir.Value | None = None  # the columns that there are
    extents: list[ir.Value] = field(default_factory=list)  # how often there is each segment
    lengths: list[ir.Value] = field(default_factory=list)  # numbers around the kernel that are the length of a row

    def bring(self) -> None:
        super().bring()
        sizes = [*(self.plan.segments or []), self.plan.space.columns]
        *self.extents, self.size = [self.extent(size or 1) for size in sizes]

    def _input(self, key: Key) -> ir.Value:
        """As the operators read it whose open sizes are those of the rows' segments and of columns: the tensor that it
        is a reshape of may have their product as one."""
        value, present, columns = key
        if self.several is not None:
            return super()._input(key)
        shape = self._shape(present, columns)
        read = [v for m in self.plan.group.ordered for v, one in zip(m.op.operands, self._keys(m)) if one == key]
        alike = [v for v in (value, *read) if rows.shape_of(v).count(rows.DYNAMIC) == shape.count(None)]
        return reshaped([*alike, value][0], shape)

    @property
    def columns(self) -> int:
        """The columns of a tile."""
        return self.wide

    @property
    def lines_up(self) -> bool:
        """Whether all rows surely begin at a multiple of a vector."""
        return not is_open(self.plan.space.columns) and self.plan.space.columns % self.vector == 0

    def emit(self, at: Sequence[ir.Value], zero: ir.Value) -> None:
        if not self.most:
            self._by_parts(at, zero)
            return
        assert self.size is not None
        last = arith.subi(self.size, constant_index(1))  # as an unsigned number beyond all where there are no columns
        fits = arith.cmpi(arith.CmpIPredicate.ult, last, constant_index(self.most))
        branch = scf.IfOp(fits, has_else=True)
        for block, emit in ((branch.then_block, self._at_once), (branch.else_block, self._by_parts)):
            with ir.InsertionPoint(block):
                self.values = {}
                emit(at, zero)
                scf.yield_([])

    def _at_once(self, at: Sequence[ir.Value], zero: ir.Value) -> None:
        """Rows as tiles, which reach beyond them."""
        self.wide = self.most
        tiles = {key: self._read(key, value, at, zero) for key, value in self.inputs.items()}
        for member in self.plan.group.ordered:
            if member.kind == "reduction":
                found = rounded(member, self._joined(member, tiles, self._start(member), self.size))
            else:
                found = self._tiled(member, tiles)
            self.values[member.op.results[0]] = found
            self._write(member, at, zero)

    def _by_parts(self, at: Sequence[ir.Value], zero: ir.Value) -> None:
        group = self.plan.group
        ready = ready_in(group, find_online(group))
        self.tiles = {key: self._read(key, value, at, zero) for key, value in self.inputs.items() if not key[2]}
        levels, ends = levels_of(group), self._ends(at, zero)
        for number in range(max(ready.values()) + 1):
            for member in group.ordered:
                result = member.op.results[0]
                if member.kind == "tile" or ready[result] != number:
                    continue
                if member.kind == "rows":
                    self.values[result] = self._tiled(member, self.tiles)
                self._write(member, at, zero)
            if number < len(levels):
                self._go_through(levels[number], at, ends, number % 2 == 1)

    def _ends(self, at: Sequence[ir.Value], zero: ir.Value) -> list[ir.Value]:
        """Where of a row begin the columns before whole parts, these, those behind, and the next row: parts begin at a
        multiple of a vector behind the first element of all rows."""
        columns, size = self.plan.space.columns, self.size
        assert size is not None
        if self.lines_up:
            return [zero, zero, constant_index(columns // self.part * self.part), size]
        vector, part = constant_index(self.vector), constant_index(self.part)
        row = zero
        for place, extent in zip(at, self.extents):
            last = arith.subi(extent, constant_index(1))
            row = arith.addi(arith.muli(row, extent), arith.minui(place, last))
        before = arith.remui(arith.muli(arith.remui(row, vector), arith.remui(size, vector)), vector)
        first = arith.minui(arith.remui(arith.subi(vector, before), vector), size)
        whole = arith.muli(arith.divui(arith.subi(size, first), part), part)
        return [zero, first, arith.addi(first, whole), size]

    def _go_through(self, level: Level, at: Sequence[ir.Value], ends: Sequence[ir.Value], back: bool) -> None:
        """A pass: the columns before whole parts, these, and those behind. Every other one goes `back`: what was read
        last is in the caches still."""
        columns, before = self.plan.space.columns, dict(self.values)
        begin, first, last, end = ends
        self.wide = self.fewer
        found = [self._start(member) for member in level.reductions]
        if not self.lines_up:
            found = self._rest(level, at, (begin, first), found)
        self.wide = self.part
        if columns >= self.part:
            found = self._parts(level, at, (first, last), found, back)
        self.wide = self.fewer
        if not self.lines_up or columns % self.part:
            found = self._rest(level, at, (last, end), found)
        self.values = before
        for member, total in zip(level.reductions, found):
            self.values[member.op.results[0]] = rounded(member, total)
        if level.online is not None:
            self._end(level.online)

    def _parts(
        self,
        level: Level,
        at: Sequence[ir.Value],
        ends: tuple[ir.Value, ir.Value],
        starts: Sequence[ir.Value],
        back: bool,
    ) -> list[ir.Value]:
        """A pass through the whole parts between these ends, with what reductions gave before them. Each is read while
        the one before is dealt with."""
        keys, (first, last), part = self._keys_of(level), ends, constant_index(self.part)
        ahead = [key for key in keys if self._has_all_rows(key)]
        end = arith.subi(last, part)
        begin = arith.maxsi(end, first) if back else first  # in front of the end there may be no whole part
        begun = [self._read(key, self.inputs[key], at, begin, [schedule.ALIGNED]) for key in ahead]
        loop = scf.ForOp(first, last, part, [*starts, *begun])
        with ir.InsertionPoint(loop.body):
            column = loop.induction_variable
            following = arith.minui(arith.addi(column, part), end)
            if back:
                column, following = (arith.subi(arith.addi(first, end), place) for place in (column, following))
            marks = [schedule.WHOLE, schedule.ALIGNED]
            next_ones = [self._read(key, self.inputs[key], at, following, marks) for key in ahead]
            tiles = self._tiles_of([key for key in keys if key not in ahead], at, column)
            tiles |= dict(zip(ahead, list(loop.inner_iter_args)[len(starts) :]))
            sums = self._turn(level, at, column, tiles, list(loop.inner_iter_args))
            scf.yield_([*sums, *next_ones])
        return list(loop.results)[: len(starts)]

    def _rest(
        self,
        level: Level,
        at: Sequence[ir.Value],
        ends: tuple[ir.Value, ir.Value],
        starts: Sequence[ir.Value],
    ) -> list[ir.Value]:
        """The same of what is between these ends, which tiles reach beyond."""
        first, last = ends
        loop = scf.ForOp(first, last, constant_index(self.fewer), list(starts))
        with ir.InsertionPoint(loop.body):
            column = loop.induction_variable
            tiles = self._tiles_of(self._keys_of(level), at, column)
            scf.yield_(self._turn(level, at, column, tiles, list(loop.inner_iter_args), last))
        return list(loop.results)

    def _tiles_of(self, keys: Sequence[Key], at: Sequence[ir.Value], column: ir.Value) -> dict[Key, ir.Value]:
        """What is read of the columns from one on, and what rows have as numbers."""
        return {key: self._read(key, self.inputs[key], at, column) if key[2] else self.tiles[key] for key in keys}

    def _keys_of(self, level: Level) -> list[Key]:
        """What a pass reads."""
        return list(dict.fromkeys(key for one in level.wanted for key in self._keys(one) if key is not None))

    def _has_all_rows(self, key: Key) -> bool:
        return key[2] and all(key[1])

    def _turn(
        self,
        level: Level,
        at: Sequence[ir.Value],
        column: ir.Value,
        tiles: dict[Key, ir.Value],
        before: Sequence[ir.Value],
        until: ir.Value | None = None,
    ) -> list[ir.Value]:
        """What a pass does with the columns from one on, perhaps `until` another, and what reductions give then."""
        marks = [schedule.WHOLE, schedule.ALIGNED] if until is None else []
        left = None if until is None else arith.subi(until, column)
        sums = dict(zip([member.op.results[0] for member in level.reductions], before))
        for member in level.wanted:
            result = member.op.results[0]
            if result in sums:
                known, sums[result] = sums[result], self._joined(member, tiles, sums[result], left)
                if level.online is not None and member == level.online.largest:
                    total = level.online.total.op.results[0]
                    sums[total] = self._grown(level.online, known, sums[result], sums[total])
            else:
                self.values[result] = self._tiled(member, tiles)
                if member in level.outputs:
                    self._write(member, at, column, marks, until)
        return list(sums.values())

    def _joined(self, member: Member, tiles: dict[Key, ir.Value], before: ir.Value, left: ir.Value | None) -> ir.Value:
        """What a reduction makes of a part and of those before, of which `left` columns are there from its first on,
        or all."""
        join, (inputs, maps, scalars) = join_of(member), self._operands(member, tiles, 2)
        kind, i32 = join.results[0].type, ir.IntegerType.get_signless(32)

        def element(*given: ir.Value) -> ir.Value:
            arguments = [argument for argument in member.s.body.arguments if argument not in scalars]
            values: dict[ir.Value, ir.Value | None] = dict(zip(arguments, given)) | scalars
            self._bring_numbers(member, values)
            x = _element(member, join, values)
            if left is None:
                return x
            place = arith.index_cast(i32, linalg.IndexOp(1).result)
            there = arith.cmpi(arith.CmpIPredicate.slt, place, arith.index_cast(i32, left))
            return arith.select(there, x, Combiner(join.name, kind).neutral())

        start = tensor.empty([self.rows, self.columns], kind)
        found = generic(inputs, [start], [*maps, map_of(2, [0, 1])], ["parallel"] * 2, element).results[0]
        attributes = {name: join.attributes[name] for name in join.attributes}

        def joining(x: ir.Value, total: ir.Value) -> ir.Value:
            return ir.Operation.create(join.name, [kind], [x, total], attributes).results[0]

        ends = [map_of(2, [0, 1]), map_of(2, [0])]
        return generic([found], [before], ends, ["parallel", "reduction"], joining).results[0]

    def _bring_numbers(self, member: Member, values: dict[ir.Value, ir.Value | None]) -> None:
        assert self.size is not None
        for value in captures(member.op):
            computed_of(value, self.size, self.lengths, values)

    # ---- weights whose largest number is not known yet

    def _shift(self, online: Online, largest: ir.Value) -> ir.Value:
        """What is taken off each row's numbers where this is the largest of them, in f32."""
        self.values[online.largest.op.results[0]] = rounded(online.largest, largest)
        for member in online.shifts:
            self.values[member.op.results[0]] = self._tiled(member, self.tiles)
        return elementwise([self.values[online.shift]], ir.F32Type.get(), widened)

    def _grown(self, online: Online, before: ir.Value, largest: ir.Value, total: ir.Value) -> ir.Value:
        """The sum of a row's weights so far as its largest number grows; what is taken off from here on is known."""
        f32, exponential = ir.F32Type.get(), math.exp if online.exponential == "math.exp" else math.exp2
        element = element_type(online.shift)
        shift_before, shift = self._shift(online, before), self._shift(online, largest)
        safe = elementwise([shift], f32, or_zero)  # where all numbers so far are -inf
        self.values[online.shift] = (
            safe if element == f32 else elementwise([safe], element, lambda x: arith.truncf(element, x))
        )
        return elementwise(
            [total, before, shift_before, safe],
            f32,
            lambda x, largest, a, b: arith.mulf(x, of_any(largest, exponential(arith.subf(a, b)))),
        )

    def _end(self, online: Online) -> None:
        """The sum of weights as it would be had the largest number been known: none where that is not finite."""
        result = online.total.op.results[0]
        shift = self._shift(online, self.values[online.largest.op.results[0]])
        total = elementwise([self.values[result], shift], ir.F32Type.get(), _or_nan)
        self.values[result] = rounded(online.total, total)


def _or_nan(total: ir.Value, shift: ir.Value) -> ir.Value:
    return arith.addf(widened(total), arith.subf(shift, shift))


def _element(member: Member, join: ir.Operation, values: dict[ir.Value, ir.Value | None]) -> ir.Value:
    """What a reduction joins to what was before it, computed at the insertion point."""
    total = list(member.s.body.arguments)[-1]
    users = users_of(total)
    before = {total, *(result for op in users if op != join for result in op.results)}
    (x,) = (operand for operand in join.operands if operand not in before)
    for inner in member.s.body.operations:
        inner = inner.operation
        if inner == join:
            break
        if inner.results[0] not in before:
            clone_on(inner, values)
    found = values.get(x, x)
    assert found is not None
    return found
