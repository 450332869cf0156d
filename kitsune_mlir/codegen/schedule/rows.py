"""The code of an agent whose tiles lie by rows: what it reads stays in registers until it has been written.

Neighbouring threads, `lanes` of them, have a row together: lane l has of N columns the vectors that begin at
(l + i lanes) vector, for i = 0, 1, ... Rows of several warps meet in shared memory: a warp stores its result,
all wait, each thread loads all warps' results. Where tiles are turned it is neighbouring threads that have neighbouring
rows, as they lie in memory then, and a row's columns are those of `lanes` warps, warp after warp one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, reduce

from kitsune_mlir import rows
from kitsune_mlir.codegen.gpu_reduction import Combiner
from kitsune_mlir.codegen.hopper import warps
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Offset
from kitsune_mlir.codegen.pipeline.evaluate import Evaluator
from kitsune_mlir.dialects import schedule
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, ir, location, walk

from .agent import AgentCode
from .reductions import own_part, row_combiner

WORD = 4  # bytes


def scratch_bytes(agent: schedule.AgentOp) -> int:
    """Shared memory that an agent's reductions need."""
    rows_of_warp = warps.WARP if agent.is_turned else 1
    return len(_reductions(agent)) * _warps(agent) * rows_of_warp * WORD if _warps(agent) > 1 else 0


def _warps(agent: schedule.AgentOp) -> int:
    """That have a row together."""
    lanes = agent.lanes or 1
    return lanes if agent.is_turned else max(1, lanes // warps.WARP)


def _reductions(agent: schedule.AgentOp) -> list[ir.Operation]:
    return [op for op in walk(agent, "linalg.generic") if "reduction" in rows.Structured(op).iterators]


@dataclass(frozen=True)
class _Column:
    """A thread's vector of columns. `inside` (i1) says whether the tile has it, None where it does for every thread."""

    first: Offset
    inside: ir.Value | None


@dataclass
class RowCode(AgentCode):
    """The code of one agent, whose threads begin at `first`."""

    evaluator: Evaluator = field(default_factory=lambda: Evaluator({}))
    columns: dict[int, list[_Column]] = field(default_factory=dict)  # by the number of a tile's columns

    def emit(self) -> None:
        vector, lanes = self.agent.vector, self.agent.lanes
        thread = device.sub(device.thread(), self.first)
        if self.agent.is_turned:
            self.lane = device.value(device.mod(device.div(thread, warps.WARP), lanes))
            self.row = device.value(device.mod(thread, warps.WARP))
        else:
            self.lane = device.value(device.mod(thread, lanes))
            self.row = device.value(device.div(device.mod(thread, max(lanes, warps.WARP)), lanes))
        self.own_column = device.value(device.mul(self.lane, vector))
        self.values[hash(self.agent.block.arguments[0])] = device.div(thread, self.agent.warp_count * warps.WARP)
        self._block(self.agent.block)

    def _scf_for(self, op: ir.Operation) -> None:
        body = op.regions[0].blocks[0]
        if any(inner.operation.name == "scf.for" for inner in body.operations):
            raise UnsupportedError(f"{location(op.location)}: a loop in a loop of an agent whose tiles lie by rows")
        super()._scf_for(op)

    def _turn(self, *known: object) -> None:
        self.evaluator, self.columns = Evaluator({}), {}

    def _vectors(self, count: int) -> list[_Column]:
        """A thread's vectors of so many columns."""
        if count not in self.columns:
            vector, lanes = self.agent.vector, self.agent.lanes
            if count % vector:
                raise UnsupportedError(f"rows of {count} columns do not lie in vectors of {vector}")
            found = []
            for start in range(0, count, lanes * vector):
                first = Offset(self.own_column, start, span=(lanes - 1) * vector)
                inside = None if device.is_less(first, count) else device.less(first, count)
                found.append(_Column(first, inside))
            self.columns[count] = found
        return self.columns[count]

    # ---- tiles in registers

    def _read(self, op: ir.Operation) -> None:
        """Loads all of it now, so that many loads are on their way."""
        if isinstance(op.operands[0].type, schedule.Slot):
            raise UnsupportedError(f"{location(op.location)}: an agent whose tiles lie by rows reads no slots")
        box = self._box(op)
        value = op.results[0]
        tile = ir.RankedTensorType(value.type)
        if not tile.rank or not _has_columns(value):
            index = [self.row] * tile.rank
            self.evaluator.know(value, index, box.load(index))
            return
        row = [self.row] * (tile.rank - 1)
        for column in self._vectors(tile.shape[-1]):
            if self.agent.is_turned:
                self.evaluator.know(value, [*row, column.first], box.load([*row, column.first]))
                continue
            found = box.load_vector([*row, column.first], self.agent.vector, column.inside)
            for e, x in enumerate(found):
                self.evaluator.know(value, [*row, device.add(column.first, e)], x)

    def _write(self, op: ir.Operation) -> None:
        if op.opview.engine_name is not None:
            raise UnsupportedError(f"{location(op.location)}: tiles that lie by rows are stored by threads")
        box, value = self._box(op), op.operands[0]
        tile = ir.RankedTensorType(value.type)
        here = box.is_inside(0, self.row)
        if tile.rank == 1:
            x = self.evaluator(value, [self.row])
            with device.when(arith.andi(here, device.equal(self.lane, 0))):
                box.store([self.row], x)
            return
        for column in self._vectors(tile.shape[1]):
            found = [self.evaluator(value, [self.row, device.add(column.first, e)]) for e in range(self.agent.vector)]
            with device.when(here if column.inside is None else arith.andi(here, column.inside)):
                if self.agent.is_turned:
                    box.store([self.row, column.first], *found)
                else:
                    box.store_vector([self.row, column.first], found)

    # ---- operators

    def _linalg_generic(self, op: ir.Operation) -> None:
        """Elementwise operators are computed where their elements are used, reductions where they stand."""
        s = rows.Structured(op)
        if "reduction" not in s.iterators:
            return
        combine = row_combiner(s)
        width = next(rows.shape_of(v)[-1] for v, m in zip(op.operands, s.maps) if _last(m) == 1)
        total = self._across(combine, self._own(s, combine, width), op)
        start = self.evaluator(op.operands[s.inputs], [self.row])
        self.evaluator.know(op.results[0], [self.row], combine.join(start, total))

    def _own(self, s: rows.Structured, combine: Combiner, width: int) -> ir.Value:
        """A thread's part of a reduction."""
        columns = [
            (device.add(column.first, e), column.inside)
            for column in self._vectors(width)
            for e in range(self.agent.vector)
        ]
        return own_part(self.evaluator, s, combine, self.row, columns)

    def _across(self, combine: Combiner, own: ir.Value, op: ir.Operation) -> ir.Value:
        """The parts of all of a row's threads, joined."""
        count, number = _warps(self.agent), self._numbers.index(op)
        if self.agent.is_turned:
            return own if count == 1 else self._across_warps(combine, own, count, number)
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
        self._keep_apart()
        return found

    def _across_warps(self, combine: Combiner, own: ir.Value, count: int, number: int) -> ir.Value:
        """The same of a row that a thread of each warp has."""
        row = device.add(self.around.scratch, device.mul(device.add(self.row, number * count * warps.WARP), WORD))
        device.store(own, device.shared(device.add(row, device.mul(self.lane, warps.WARP * WORD))))
        device.barrier()
        places = [device.shared(device.add(row, warp * warps.WARP * WORD)) for warp in range(count)]
        found = reduce(combine.join, [device.load(place, combine.kind) for place in places])
        self._keep_apart()
        return found

    def _keep_apart(self) -> None:
        """Keeps the next turn's results out of shared memory until this one's are read: the barrier of another
        reduction does, where there is one."""
        if len(self._numbers) == 1:
            device.barrier()

    @cached_property
    def _numbers(self) -> list[ir.Operation]:
        return _reductions(self.agent)


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
