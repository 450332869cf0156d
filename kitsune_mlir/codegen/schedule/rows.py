"""The code of an agent whose tiles lie by rows: what it reads stays in registers until it has been written.

Neighbouring threads, `lanes` of them, have a row together: lane l has of N columns the vectors that begin at
(l + i lanes) vector, for i = 0, 1, ... Rows of several warps meet in shared memory: a warp stores its result,
all wait, each thread loads all warps' results. Where tiles are turned it is neighbouring threads that have neighbouring
rows, `vector` each, as they lie in memory then, and a row's columns are those of `lanes` warps, warp after warp one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from math import gcd

from kitsune_mlir import rows
from kitsune_mlir.codegen.gpu_reduction import Combiner
from kitsune_mlir.codegen.hopper import warps
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int, Offset
from kitsune_mlir.codegen.pipeline.evaluate import Evaluator
from kitsune_mlir.dialects import schedule
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, attr_int, ir, location, walk
from kitsune_mlir.operations import end_of

from .agent import AgentCode
from .extents import is_from_tiles
from .reductions import own_part, row_combiner
from .scans import scan
from .vectors import VectorBox

WORD = 4  # bytes


def scratch_bytes(agent: schedule.AgentOp) -> int:
    """Shared memory that an agent's reductions need."""
    rows_of_warp = warps.WARP * agent.vector if agent.is_turned else 1
    return len(_reductions(agent)) * _warps(agent) * rows_of_warp * WORD if _warps(agent) > 1 else 0


def _warps(agent: schedule.AgentOp) -> int:
    """That have a row together."""
    lanes = agent.lanes or 1
    return lanes if agent.is_turned else max(1, lanes // warps.WARP)


def _reductions(agent: schedule.AgentOp) -> list[ir.Operation]:
    return [op for op in walk(agent, "linalg.generic") if "reduction" in rows.Structured(op).iterators]


@dataclass(frozen=True)
class _Run:
    """Neighbours of a tile that a thread has, by their indices. `inside` (i1) says whether the tile has their columns,
    None where it does for every thread."""

    elements: list[list[Int]]
    inside: ir.Value | None = None


@dataclass(frozen=True)
class _Column:
    """A thread's vector of so many columns. `inside` (i1) says whether the tile has it, None where it does for every
    thread."""

    first: Int
    count: int
    inside: ir.Value | None


@dataclass(frozen=True)
class _Read:
    """What a thread has of a tile that was read: runs of a box, as words of `each` elements."""

    box: VectorBox
    runs: list[_Run]
    words: list[ir.Value]
    each: int


@dataclass
class RowCode(AgentCode):
    """The code of one agent, whose threads begin at `first`."""

    evaluator: Evaluator = field(default_factory=lambda: Evaluator({}))
    columns: dict[int, list[_Column]] = field(default_factory=dict)  # by the number of a tile's columns
    read: dict[int, _Read] = field(default_factory=dict)  # tiles that loops carry

    def emit(self) -> None:
        vector, lanes = self.agent.vector, self.agent.lanes
        thread = device.sub(device.thread(), self.first)
        self.side_by_side = 1 if self.agent.is_turned else vector  # columns
        if self.agent.is_turned:
            self.lane = device.value(device.mod(device.div(thread, warps.WARP), lanes))
            self.row = device.value(device.mul(device.mod(thread, warps.WARP), vector))
            self.own_rows: list[Int] = [Offset(self.row, e) if e else self.row for e in range(vector)]
        else:
            self.lane = device.value(device.mod(thread, lanes))
            self.row = device.value(device.div(device.mod(thread, max(lanes, warps.WARP)), lanes))
            self.own_rows = [self.row]
        self.own_column = device.value(device.mul(self.lane, self.side_by_side))
        self.values[hash(self.agent.block.arguments[0])] = device.div(thread, self.agent.warp_count * warps.WARP)
        self._block(self.agent.block)

    def _scf_for(self, op: ir.Operation) -> None:
        if is_from_tiles(op.operands[0]):
            super()._scf_for(op)
            return
        block, known = op.regions[0].blocks[0], (self.evaluator, self.columns)

        def turn(column: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            self.values[hash(block.arguments[0])] = column
            self.evaluator, self.columns = known[0].fork(nested=False), dict(known[1])
            self._take_up_tiles(list(block.arguments)[1:], starts, carried)
            self._block(block)
            return self._numbers_of(list(end_of(block).operands))

        first, last, step, *starts = op.operands
        found = device.loop(*map(self.number, (first, last, step)), turn, self._numbers_of(starts))
        self.evaluator, self.columns = known
        self._take_up_tiles(list(op.results), starts, found)

    def _arith_cmpi(self, op: ir.Operation) -> None:
        """How long rows are, of which one size says it."""
        numbers = [device.value(self.number(operand)) for operand in op.operands]
        predicate = attr_int(op, "predicate")
        self.values[hash(op.results[0])] = arith.cmpi(arith.CmpIPredicate(predicate), *numbers)

    def _scf_if(self, op: ir.Operation) -> None:
        known = (self.evaluator, self.columns)

        def code(block: ir.Block) -> None:
            self.evaluator, self.columns = known[0].fork(nested=False), dict(known[1])
            self._block(block)

        then, other = (region.blocks[0] for region in op.regions)
        device.either(self.values[hash(op.operands[0])], lambda: code(then), lambda: code(other))
        self.evaluator, self.columns = known

    def _numbers_of(self, tiles: Sequence[ir.Value]) -> list[ir.Value]:
        """What a thread has of tiles that a loop carries: words of what was read, else numbers of rows."""
        found: list[ir.Value] = []
        for tile in tiles:
            read = self.read.get(hash(tile))
            found += [self.evaluator(tile, [row]) for row in self.own_rows] if read is None else read.words
        return found

    def _take_up_tiles(self, tiles: Sequence[ir.Value], starts: Sequence[ir.Value], found: Sequence[ir.Value]) -> None:
        """Such tiles are known from here on; `starts` are those that the loop begins with."""
        rest = list(found)
        for tile, start in zip(tiles, starts, strict=True):
            read = self.read.get(hash(start))
            if read is None:
                for row in self.own_rows:
                    self.evaluator.know(tile, [row], rest.pop(0))
                continue
            own, rest = rest[: len(read.words)], rest[len(read.words) :]
            self._know_read(tile, replace(read, words=own))

    def _know_read(self, value: ir.Value, read: _Read) -> None:
        self.read[hash(value)] = read
        places = [index for run in read.runs for index in run.elements]
        for index, x in zip(places, read.box.elements(read.words, read.each), strict=True):
            self.evaluator.know(value, index, x)

    def _turn(self, *known: object) -> None:
        self.evaluator, self.columns = Evaluator(self.memories), {}

    def _vectors(self, count: int) -> list[_Column]:
        """A thread's vectors of so many columns."""
        if count not in self.columns:
            vector, lanes = self.side_by_side, self.agent.lanes
            if lanes == 1:  # rows of any length lie in a thread
                vector = gcd(count, vector)
            if count % vector:
                raise UnsupportedError(f"rows of {count} columns do not lie in vectors of {vector}")
            found = []
            for start in range(0, count, lanes * vector):
                first = start if lanes == 1 else Offset(self.own_column, start, span=(lanes - 1) * vector)
                inside = None if device.is_less(first, count) else device.less(first, count)
                found.append(_Column(first, vector, inside))
            self.columns[count] = found
        return self.columns[count]

    def _runs(self, rank: int, columns: int | None) -> list[_Run]:
        """What a thread has of a tile of so many dimensions, of which the last has so many columns, if it has any."""
        vectors: list[_Column | None] = [None] if columns is None else [*self._vectors(columns)]
        has_rows = rank > (columns is not None)
        found = []
        for vector in vectors:
            places = [[]] if vector is None else [[device.add(vector.first, e)] for e in range(vector.count)]
            lines = [[row] for row in self.own_rows] if has_rows else [[]]
            inside = None if vector is None else vector.inside
            found.append(_Run([[*line, *place] for line in lines for place in places], inside))
        return found

    # ---- tiles in registers

    def _read(self, op: ir.Operation) -> None:
        """Loads all of it now, so that many loads are on their way."""
        if isinstance(op.operands[0].type, schedule.Slot):
            raise UnsupportedError(f"{location(op.location)}: an agent whose tiles lie by rows reads no slots")
        value = op.results[0]
        tile = ir.RankedTensorType(value.type)
        has_columns = bool(tile.rank) and _has_columns(value)
        box = self._box_of_rows(op, tile)
        runs = self._runs(tile.rank, tile.shape[-1] if has_columns else None)
        if _is_carried(value):
            vectors = [(run.elements[0], len(run.elements), run.inside) for run in runs]
            each = box.in_word(len(runs[0].elements))
            self._know_read(value, _Read(box, runs, box.load_words(vectors), each))
            return
        if not self.agent.is_turned and has_columns:
            found = box.load_vectors([(run.elements[0], len(run.elements), run.inside) for run in runs])
        else:
            lengths = [(run.elements[0], len(run.elements)) for run in runs]
            found = [[box.load(first)] if count == 1 else box.load_run(first, count) for first, count in lengths]
        for run, numbers in zip(runs, found, strict=True):
            for index, x in zip(run.elements, numbers, strict=True):
                self.evaluator.know(value, index, x)

    def _write(self, op: ir.Operation) -> None:
        if op.opview.engine_name is not None:
            raise UnsupportedError(f"{location(op.location)}: tiles that lie by rows are stored by threads")
        value = op.operands[0]
        tile = ir.RankedTensorType(value.type)
        box = self._box_of_rows(op, tile)
        here = box.is_inside(0, self.row)
        if tile.rank == 1:  # which all threads of a row know
            here = arith.andi(here, device.equal(self.lane, 0))
        store = box.store_vector if tile.rank > 1 and not self.agent.is_turned else box.store_run
        for run in self._runs(tile.rank, tile.shape[1] if tile.rank > 1 else None):
            found = [self.evaluator(value, index) for index in run.elements]
            inside = box.has_vector(run.elements[0], run.inside) if tile.rank > 1 else None
            if schedule.UNTIL in op.attributes:
                self._write_until(op, box, here, run.elements, found)
                continue
            with device.when(here if inside is None else arith.andi(here, inside)):
                store(run.elements[0], found)

    def _write_until(
        self, op: ir.Operation, box: VectorBox, here: ir.Value, places: list[list[Int]], found: Sequence[ir.Value]
    ) -> None:
        """Elements of columns that stand before one."""
        first, end = map(self.number, list(op.operands)[-2:])
        for place, x in zip(places, found, strict=True):
            inside = device.less(device.add(first, place[-1]), end)
            with device.when(arith.andi(here, inside)):
                box.store(place, x)

    def _box_of_rows(self, op: ir.Operation, tile: ir.RankedTensorType) -> VectorBox:
        """The box of a read or a write."""
        box = self._box(op, {tile.rank - 1: tile.shape[-1]} if schedule.WHOLE in op.attributes else {})
        box.vector = self.agent.vector if schedule.ALIGNED in op.attributes else None
        box.streamed = schedule.STREAMED in op.attributes
        return box

    # ---- operators

    def _linalg_generic(self, op: ir.Operation) -> None:
        """Elementwise operators are computed where their elements are used, reductions where they stand."""
        s = rows.Structured(op)
        self._know_indices(op)
        if "reduction" not in s.iterators:
            return
        combine = row_combiner(s)
        width = next(rows.shape_of(v)[-1] for v, m in zip(op.operands, s.maps) if _last(m) == 1)
        own = [self._own(s, combine, width, row) for row in self.own_rows]
        count, number = _warps(self.agent), self._numbers.index(op)
        if self.agent.is_turned:
            totals = own if count == 1 else self._across_warps(combine, own, count, number)
        else:
            totals = [self._across(combine, own[0], count, number)]
        for row, total in zip(self.own_rows, totals, strict=True):
            start = self.evaluator(op.operands[s.inputs], [row])
            self.evaluator.know(op.results[0], [row], combine.join(start, total))

    def _tm_tensor_scan(self, op: ir.Operation) -> None:
        if self.agent.is_turned:
            raise UnsupportedError(f"{location(op.location)}: neighbouring rows have no scans")
        runs = [
            ([device.add(column.first, e) for e in range(column.count)], column.inside)
            for column in self._vectors(rows.shape_of(op.operands[0])[-1])
        ]
        scan(op, self.evaluator, self.row, runs, self.lane, self.agent.lanes)

    def _own(self, s: rows.Structured, combine: Combiner, width: int, row: Int) -> ir.Value:
        """A thread's part of a reduction of one of its rows."""
        columns = [
            (device.add(column.first, e), column.inside) for column in self._vectors(width) for e in range(column.count)
        ]
        return own_part(self.evaluator, s, combine, row, columns)

    def _across(self, combine: Combiner, own: ir.Value, count: int, number: int) -> ir.Value:
        """The parts of all of a row's threads, neighbours in so many warps, joined."""
        found = combine.across_warp(own, min(self.agent.lanes, warps.WARP))
        if count == 1:
            return found
        place = device.add(self.around.scratch, number * count * WORD)
        lane, warp = device.mod(self.lane, warps.WARP), device.div(self.lane, warps.WARP)
        with device.when(device.equal(lane, 0)):
            device.store(found, device.shared(device.add(place, device.mul(warp, WORD))))
        device.barrier()
        one = device.add(place, device.mul(device.mod(self.lane, count), WORD))
        found = combine.across_warp(device.load(device.shared(one), combine.kind), count)
        self._keep_apart(number)
        return found

    def _across_warps(self, combine: Combiner, own: Sequence[ir.Value], count: int, number: int) -> list[ir.Value]:
        """The same of neighbouring rows that a thread of each warp has."""
        line = warps.WARP * self.agent.vector
        first = device.add(self.around.scratch, device.mul(device.add(self.row, number * count * line), WORD))
        device.store_together(own, device.shared(device.add(first, device.mul(self.lane, line * WORD))))
        device.barrier()
        places = [device.shared(device.add(first, warp * line * WORD)) for warp in range(count)]
        parts = [device.load_together(place, len(own), combine.kind) for place in places]
        self._keep_apart(number)
        return [reduce(combine.join, of_row) for of_row in zip(*parts, strict=True)]

    def _keep_apart(self, number: int) -> None:
        """Keeps the next turn's results out of shared memory until this one's are read: the barrier of another
        reduction does, where its loop has one."""
        block = self._numbers[number].block
        if [one.block for one in self._numbers].count(block) == 1:
            device.barrier()

    @cached_property
    def _numbers(self) -> list[ir.Operation]:
        return _reductions(self.agent)


def _is_carried(value: ir.Value) -> bool:
    """Whether a loop carries what was read."""
    return any(use.owner.name in ("scf.for", "scf.yield") for use in value.uses)


def _has_columns(value: ir.Value) -> bool:
    """Whether the last dimension of what was read is the columns of who uses it."""
    if ir.RankedTensorType(value.type).rank == 2:
        return True
    for use in value.uses:
        s = rows.Structured(use.owner.operation)
        return len(s.iterators) == 2 and _last(s.maps[use.operand_number]) == 1
    return False


def _last(map_: ir.AffineMap) -> int | None:
    """The loop of the last dimension."""
    results = list(map_.results)
    return results[-1].position if results else None
