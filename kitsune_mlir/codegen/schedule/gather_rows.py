"""The code of an agent that gathers rows of tables into slots, 16 bytes a thread (PTX ISA, cp.async).

A slot is a box: rows of 128 bytes, whose granule g of row r lies at granule g ^ (r mod 8), as tensor copies lay it out
(hopper/tma.py). Eight lanes copy a row, so a warp copies four rows at a time, the agent's warps by turns. Row numbers
are loaded once a tile, each lane a few, and handed from lane to lane: threads that feed have 24 registers.

A commit waits for the thread's copies into the slot while those that it began later go on, makes them known to
products, which read by another proxy (PTX ISA, fence.proxy.async), and has a thread of each warp arrive.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kitsune_mlir.codegen import index_checks
from kitsune_mlir.codegen.ampere import cp_async, ldmatrix
from kitsune_mlir.codegen.hopper import mbarrier, tma, warps, wgmma
from kitsune_mlir.codegen.hopper.mbarrier import Ring, Slot
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.codegen.pipeline.evaluate import Evaluator
from kitsune_mlir.dialects import schedule
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, ir, walk

from .in_flight import InFlight
from .prefetch import PrefetchCode

LANES = wgmma.BOX_ROW // cp_async.NBYTES  # that copy a row
ROWS = warps.WARP // LANES  # that a warp copies at a time
_NOWHERE = -1  # the number of a row that is zero


class GroupsInFlight(InFlight):
    """Groups of a thread's copies, numbered and waited for as products are."""

    def _wait_until(self, pending: int) -> None:
        cp_async.wait_groups(pending)


@dataclass(kw_only=True)
class GatherCode(PrefetchCode):
    """The code of one agent; `numbers` are those of rows that a lane has, by what names the rows."""

    products: InFlight = field(default_factory=GroupsInFlight)
    numbers: dict[tuple[ir.Block, int], list[ir.Value]] = field(default_factory=dict)

    def _first_turn(self, ring: str) -> Slot:
        """Where a tile fills all slots equally often their numbers are known, and take no registers."""
        found, slots = super()._first_turn(ring), self.around.rings[ring].slots
        acquires = walk(self.agent, schedule.AcquireOp.OPERATION_NAME)
        own = [op for op in acquires if op.operands[0].owner.operation.opview.label == ring]
        in_one_loop = all(op.block == own[0].block for op in own)
        return Slot(0, found.parity) if in_one_loop and len(own) % slots == 0 else found

    def _commit(self, op: ir.Operation) -> None:
        for token in list(op.operands)[1:]:
            self.products.wait(self.values[hash(token)])
        opened = self.values[hash(op.operands[0])]
        tma.fence()
        warps.sync()
        is_first = warps.is_first()
        mbarrier.arrive(self._here(opened.ring.label).full(opened.slot), is_first)

    def _acquire(self, op: ir.Operation) -> None:
        _, slot = self._opened(op)
        self._here(op.operands[0].owner.operation.opview.label).wait_empty(slot)

    def _here(self, label: str) -> Ring:
        """A ring whose places are computed where they are used: kept over the loop over tiles they take registers."""
        ring = self.around.rings[label]
        return replace(ring, barriers=warps.here(ring.barriers), data=warps.here(ring.data))

    def _gather_rows(self, op: ir.Operation) -> None:
        """A loop, in whose turns places are computed anew: of those that are kept a thread has too few registers."""
        opened = self.values[hash(op.operands[0])]
        height, width = opened.tile.shape
        if height % ROWS:
            raise UnsupportedError(f"agent '{self.agent.label}' gathers rows {ROWS} at a time, not {height}")
        ring, numbers = self._here(opened.ring.label), self._numbers(op)
        columns, first = ir.RankedTensorType(op.operands[1].type).shape[1], self.number(op.operands[5])
        whole = columns % width == 0

        def turn(group: ir.Value, at: list[ir.Value]) -> list[ir.Value]:
            """Copies four rows; the lanes that have their numbers are those from `at` on, of each register in turn."""
            word = numbers[0]
            for behind, other in enumerate(numbers[1:], 1):
                word = arith.select(device.less(at[0], behind * warps.WARP), word, other)
            _, lane = self._stands()
            own, granule = device.value(device.div(lane, LANES)), device.value(device.mod(lane, LANES))
            number = warps.hand(word, device.add(at[0], own))
            row = device.value(device.add(device.mul(warps.here(group), ROWS), own))
            column = device.add(first, device.mul(granule, width // LANES))
            inside = None if whole else device.less(column, columns)
            self._copy_granule(
                op, device.add(ring.place(opened.slot), ldmatrix.swizzled(row, granule)), number, column, inside
            )
            return [device.value(device.add(at[0], ROWS))]

        device.loop(self._stands()[0], height // ROWS, self.agent.warp_count, turn, [device.value(0)])
        cp_async.close_group()
        _, self.values[hash(op.results[0])] = self.products.add([])

    def _stands(self) -> tuple[Int, Int]:
        """The numbers of the thread's warp in the agent and of its lane."""
        thread = device.sub(warps.thread(), self.first)
        return device.div(thread, warps.WARP), device.mod(thread, warps.WARP)

    def _copy_granule(self, op: ir.Operation, to: Int, number: ir.Value, column: Int, inside: ir.Value | None) -> None:
        """Copies 16 bytes of a row of the table; zeros where the row is nowhere, or ends before (`inside`, i1)."""
        table, i64 = op.operands[1], ir.IntegerType.get_signless(64)
        kind, there = ir.RankedTensorType(table.type), device.less(_NOWHERE, number)
        if inside is not None:
            there, column = arith.andi(inside, there), arith.select(inside, device.value(column), device.value(0))
        number = arith.maxsi(number, device.value(0))  # an address that is there, of which nothing may be read
        first = arith.muli(arith.extui(i64, number), arith.constant(i64, kind.shape[1]))
        first = arith.addi(first, arith.extui(i64, device.value(column)))
        source = device.offset(self._pointer(table), first, kind.element_type)
        size = arith.select(there, device.value(cp_async.NBYTES), device.value(0))
        cp_async.copy(to, source, size)

    def _numbers(self, op: ir.Operation) -> list[ir.Value]:
        """The numbers of the rows of the tile that a lane has, i32: the first register has those of its warp's first
        turns, a turn's rows one after another."""
        key = ir.InsertionPoint.current.block, hash(op.operands[2])
        if key not in self.numbers:
            self.numbers[key] = self._load_numbers(op)
        return self.numbers[key]

    def _load_numbers(self, op: ir.Operation) -> list[ir.Value]:
        height, (warp, lane) = ir.RankedTensorType(op.operands[2].type).shape[0], self._stands()
        first, count = map(self.number, list(op.operands)[3:5])
        here = device.least(device.sub(count, first), height)
        evaluator, found = Evaluator(self.memories, nested=True), []
        each, turns = warps.WARP // ROWS, -(-height // (ROWS * self.agent.warp_count))
        for register in range(-(-turns // each)):
            turn = device.add(device.div(lane, ROWS), register * each)
            group = device.add(warp, device.mul(turn, self.agent.warp_count))
            row = device.value(device.add(device.mul(group, ROWS), device.mod(lane, ROWS)))
            found.append((row, evaluator(op.operands[2], [row])))
        return [self._known(op, number, device.less(row, here)) for row, number in found]

    @staticmethod
    def _known(op: ir.Operation, number: ir.Value, there: ir.Value) -> ir.Value:
        """A row's number as a word; none where the tile does not have the row that it is for (i1)."""
        if number.type.width < device.i32().width:
            number = arith.extsi(device.i32(), number)
        row = index_checks.gathered_row(op, number)
        row = row if row.type == device.i32() else arith.trunci(device.i32(), row)
        return arith.select(there, row, device.value(_NOWHERE))
