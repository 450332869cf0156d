"""The code of an agent that gathers rows of tables into slots, 16 bytes a thread (PTX ISA, cp.async).

A slot is a box: rows of 128 bytes, whose granule g of row r lies at granule g ^ (r mod 8), as tensor copies lay it out
(hopper/tma.py). Eight lanes copy a row, so a warp copies four rows at a time, the agent's warps by turns. Row numbers
are loaded once a tile, each lane a few, and handed from lane to lane: threads that feed have 24 registers.

A commit waits for the thread's copies into the slot while those that it began later go on, makes them known to
products, which read by another proxy (PTX ISA, fence.proxy.async), and has a thread of each warp arrive.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kitsune_mlir.codegen import index_checks
from kitsune_mlir.codegen.ampere import cp_async
from kitsune_mlir.codegen.hopper import warps, wgmma
from kitsune_mlir.codegen.hopper.hand import hand
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.codegen.pipeline.evaluate import Evaluator
from kitsune_mlir.dialects import schedule
from kitsune_mlir.dialects.gather_rows import GatherRowsOp
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, ir, walk

from .in_flight import InFlight
from .prefetch import PrefetchCode

LANES = wgmma.BOX_ROW // cp_async.NBYTES  # that copy a row
ROWS = warps.WARP // LANES  # that a warp copies at a time
PATTERN = 8  # rows after which the swizzle repeats
_NOWHERE = -1  # the number of a row that is zero


def gathers(agent: schedule.AgentOp) -> bool:
    """Whether an agent gathers rows into slots."""
    return bool(walk(agent, GatherRowsOp.OPERATION_NAME))


class GroupsInFlight(InFlight):
    """Groups of a thread's copies, numbered and waited for as products are."""

    def _wait_until(self, pending: int) -> None:
        cp_async.wait_groups(pending)


@dataclass(kw_only=True)
class GatherCode(PrefetchCode):
    """The code of one agent; `numbers` are those of rows that a lane has, by what names the rows."""

    products: InFlight = field(default_factory=GroupsInFlight)
    numbers: dict[tuple[ir.Block, int], list[ir.Value]] = field(default_factory=dict)

    def _commit(self, op: ir.Operation) -> None:
        for token in list(op.operands)[1:]:
            self.products.wait(self.values[hash(token)])
        super(PrefetchCode, self)._commit(op)

    def _gather_rows(self, op: ir.Operation) -> None:
        opened = self.values[hash(op.operands[0])]
        height, width = opened.tile.shape
        nbytes = opened.tile.element_type.width // 8
        if height % ROWS:
            raise UnsupportedError(f"agent '{self.agent.label}' gathers rows {ROWS} at a time, not {height}")
        thread = device.sub(warps.thread(), self.first)
        warp, lane = device.div(thread, warps.WARP), device.mod(thread, warps.WARP)
        own, granule = device.value(device.div(lane, LANES)), device.value(device.mod(lane, LANES))
        column = device.add(self.number(op.operands[5]), device.mul(granule, cp_async.NBYTES // nbytes))
        columns = ir.RankedTensorType(op.operands[1].type).shape[1]
        inside = device.less(column, columns)
        place = self.around.rings[opened.ring.label].place(opened.slot)
        words, turns = self._numbers(op), self._turns_of(height)
        for turn in range(turns):
            each = warps.WARP // ROWS  # turns whose numbers lie in one register
            (row,) = hand([words[turn // each]], device.add(own, turn % each * ROWS))
            at = device.value(device.add(device.mul(self._group(warp, turn), ROWS), own))
            to = self._swizzled(place, at, granule)
            if (turn + 1) * self.agent.warp_count * ROWS <= height:
                self._copy_granule(op, to, row, column, inside)
                continue
            with device.when(device.less(at, height)):  # the same for all lanes of a warp
                self._copy_granule(op, to, row, column, inside)
        cp_async.close_group()
        _, self.values[hash(op.results[0])] = self.products.add([])

    def _turns_of(self, height: int) -> int:
        """How many times each warp copies rows of a tile of so many."""
        return -(-height // (ROWS * self.agent.warp_count))

    def _group(self, warp: Int, turn: Int) -> Int:
        """The rows, counted in those that a warp copies at a time, that it copies in a turn."""
        return device.add(warp, device.mul(turn, self.agent.warp_count))

    @staticmethod
    def _swizzled(place: Int, row: ir.Value, granule: ir.Value) -> Int:
        """Where a granule of a row lies in a slot."""
        swizzled = arith.xori(granule, device.value(device.mod(row, PATTERN)))
        at = device.add(device.mul(row, wgmma.BOX_ROW), device.mul(swizzled, cp_async.NBYTES))
        return device.add(place, at)

    def _copy_granule(self, op: ir.Operation, to: Int, row: ir.Value, column: Int, inside: ir.Value) -> None:
        """Copies 16 bytes of a row of the table; zeros where the row is nowhere or ends before."""
        table, i64 = op.operands[1], ir.IntegerType.get_signless(64)
        kind = ir.RankedTensorType(table.type)
        there = arith.andi(inside, device.less(_NOWHERE, row))
        first = arith.muli(arith.extui(i64, arith.maxsi(row, device.value(0))), arith.constant(i64, kind.shape[1]))
        start = device.offset(self._pointer(table), first, kind.element_type)
        begin = arith.select(inside, device.value(column), device.value(0))
        size = arith.select(there, device.value(cp_async.NBYTES), device.value(0))
        cp_async.copy(to, device.offset(start, begin, kind.element_type), size)

    def _numbers(self, op: ir.Operation) -> list[ir.Value]:
        """The numbers of the rows of the tile that a lane has, i32: the first register has those of its warp's first
        turns, a turn's rows one after another."""
        key = ir.InsertionPoint.current.block, hash(op.operands[2])
        if key not in self.numbers:
            self.numbers[key] = self._load_numbers(op)
        return self.numbers[key]

    def _load_numbers(self, op: ir.Operation) -> list[ir.Value]:
        height = ir.RankedTensorType(op.operands[2].type).shape[0]
        thread = device.sub(warps.thread(), self.first)
        warp, lane = device.div(thread, warps.WARP), device.mod(thread, warps.WARP)
        first, count = map(self.number, list(op.operands)[3:5])
        here = device.least(device.sub(count, first), height)
        evaluator, found = Evaluator(self.memories, nested=True), []
        for word in range(-(-self._turns_of(height) * ROWS // warps.WARP)):
            turn = device.add(device.div(lane, ROWS), word * (warps.WARP // ROWS))
            row = device.value(device.add(device.mul(self._group(warp, turn), ROWS), device.mod(lane, ROWS)))
            found.append((row, evaluator(op.operands[2], [row])))
        return [self._known(op, number, device.less(row, here)) for row, number in found]

    @staticmethod
    def _known(op: ir.Operation, number: ir.Value, there: ir.Value) -> ir.Value:
        """A row's number as a word; none where the tile does not have the row that it is for (i1)."""
        i64 = ir.IntegerType.get_signless(64)
        wide = number if number.type == i64 else arith.extsi(i64, number)
        row = arith.trunci(device.i32(), index_checks.gathered_row(op, wide))
        return arith.select(there, row, device.value(_NOWHERE))
