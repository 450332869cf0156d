"""The code of an agent that asks for rows of tables before others read them.

Each of its threads takes every so many rows of a tile, loads their numbers and asks for what they name (PTX ISA,
cp.async.bulk.prefetch.L2). Who reads the rows later finds the numbers in the SM's cache, for these threads have loaded
them, and the rows in L2.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kitsune_mlir.codegen import index_checks
from kitsune_mlir.codegen.hopper import mbarrier, warps
from kitsune_mlir.codegen.hopper.mbarrier import Slot
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.evaluate import Evaluator
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.generics import extended
from kitsune_mlir.mlir import ir
from kitsune_mlir.rows import Structured

from .agent import AgentCode


@dataclass(kw_only=True)
class PrefetchCode(AgentCode):
    """The code of one agent; `wanted` are the requests for the rows of a tile."""

    wanted: list[ir.Operation] = field(default_factory=list)

    def emit(self) -> None:
        if self.agent.count > 1:
            raise UnsupportedError(
                f"agent '{self.agent.label}' asks for rows of tables, and has {self.agent.count} copies"
            )
        self.turns = {ring: self._first_turn(ring) for ring in self._rings(self.agent.operation)}
        self.values[hash(self.agent.block.arguments[0])] = 0
        self._block(self.agent.block)

    def _first_turn(self, ring: str) -> Slot:
        """The slot that is filled first of a ring."""
        return Slot.first()

    def _acquire(self, op: ir.Operation) -> None:
        ring, slot = self._opened(op)
        ring.wait_empty(slot)

    def _commit(self, op: ir.Operation) -> None:
        """A thread of each warp arrives behind the requests of all."""
        self._ask_for_rows()
        opened = self.values[hash(op.operands[0])]
        warps.sync()
        is_first = warps.is_first()
        mbarrier.arrive(self.around.rings[opened.ring.label].full(opened.slot), is_first)

    def _read(self, op: ir.Operation) -> None:
        self.memories[hash(op.results[0])] = self._box(op)

    def _linalg_generic(self, op: ir.Operation) -> None:
        """Numbers are computed where rows are asked for, perhaps of numbers in another table."""
        for table in Structured(op).tables():
            self._know_table(table)

    def _prefetch(self, op: ir.Operation) -> None:
        """Rows are asked for together with those of other tables, before the slot is full."""
        self.wanted.append(op)

    def _ask_for_rows(self) -> None:
        """All numbers of a thread's rows are on their way together, then the rows: behind a request no load begins
        before it is issued, and the numbers come from memory."""
        thread, threads = device.value(device.sub(device.thread(), self.first)), self.agent.warp_count * warps.WARP
        evaluator, found = Evaluator(self.memories, nested=True), []
        for op in self.wanted:
            for turn in range(-(-ir.RankedTensorType(op.operands[2].type).shape[0] // threads)):
                row = device.value(device.add(thread, turn * threads))
                found.append((op, row, evaluator(op.operands[2], [row])))
        for op, row, number in found:
            first, count = map(self.number, list(op.operands)[3:])
            rows = ir.RankedTensorType(op.operands[2].type).shape[0]
            there = device.less(row, device.least(device.sub(count, first), rows))
            with op.location:
                self._ask_for(op.operands[1], number, there)
        self.wanted = []

    def _ask_for(self, table: ir.Value, number: ir.Value, there: ir.Value) -> None:
        """Asks for the row of a table where the tile has the row that it is for (i1)."""
        kind, i64 = ir.RankedTensorType(table.type), device.i64()
        row = index_checks.known_row(table, extended(number, i64))
        place = device.further(self._pointer(table), row, kind.shape[1], kind.element_type)
        nbytes = kind.shape[1] * kind.element_type.width // 8
        device.assembly(device.where(2, "cp.async.bulk.prefetch.L2.global [$0], $1;"), place, nbytes, there)
