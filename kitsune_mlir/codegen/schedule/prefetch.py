"""The code of an agent that asks for rows of tables before others read them.

Each of its threads takes every so many rows of a tile, loads their numbers and asks for what they name (PTX ISA,
cp.async.bulk.prefetch.L2). Who reads the rows later finds the numbers in the SM's cache, for these threads have loaded
them, and the rows in L2.
"""

from __future__ import annotations

from dataclasses import dataclass

from kitsune_mlir.codegen import index_checks
from kitsune_mlir.codegen.hopper import mbarrier, warps
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.evaluate import Evaluator
from kitsune_mlir.dialects import schedule
from kitsune_mlir.dialects.prefetch import PrefetchOp
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, ir, walk

from .agent import AgentCode
from .boxes import GlobalBox


def asks(agent: schedule.AgentOp) -> bool:
    """Whether an agent asks for rows of tables."""
    return bool(walk(agent, PrefetchOp.OPERATION_NAME))


@dataclass(kw_only=True)
class PrefetchCode(AgentCode):
    """The code of one agent."""

    def emit(self) -> None:
        if self.agent.count > 1:
            raise UnsupportedError(
                f"agent '{self.agent.label}' asks for rows of tables, and has {self.agent.count} copies"
            )
        self.turns = {ring: self.around.rings[ring].start() for ring in self._rings(self.agent.operation)}
        self.values[hash(self.agent.block.arguments[0])] = 0
        self._block(self.agent.block)

    def _acquire(self, op: ir.Operation) -> None:
        ring, slot = self._opened(op)
        ring.wait_empty(slot)

    def _commit(self, op: ir.Operation) -> None:
        """A thread of each warp arrives behind the requests of all."""
        opened = self.values[hash(op.operands[0])]
        warps.sync()
        lane = device.mod(warps.thread(), warps.WARP)
        mbarrier.arrive(self.around.rings[opened.ring.label].full(opened.slot), device.equal(lane, 0))

    def _read(self, op: ir.Operation) -> None:
        at = [self.number(offset) for offset in list(op.operands)[1:]]
        pointer = self._pointer(op.operands[0])
        self.memories[hash(op.results[0])] = GlobalBox(
            pointer, op.operands[0].type, self.around.rows, at, op.opview.axes
        )

    def _linalg_generic(self, op: ir.Operation) -> None:
        """Numbers are computed where rows are asked for."""

    def _prefetch(self, op: ir.Operation) -> None:
        table, numbers = op.operands[1], op.operands[2]
        first, count = map(self.number, list(op.operands)[3:])
        pointer, kind = self._pointer(table), ir.RankedTensorType(table.type)
        i64, width = ir.IntegerType.get_signless(64), kind.shape[1]

        def ask(row: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            number = Evaluator(self.memories, nested=True)(numbers, [row])
            number = index_checks.known_row(table, number if number.type == i64 else arith.extsi(i64, number))
            place = device.offset(pointer, arith.muli(number, arith.constant(i64, width)), kind.element_type)
            text = "cp.async.bulk.prefetch.L2.global [$0], $1;"
            nbytes = width * kind.element_type.width // 8
            device.assembly(text, "l,r,~{memory}", [place, device.value(nbytes)], None)
            return []

        thread = device.value(device.sub(device.thread(), self.first))
        rows = ir.RankedTensorType(numbers.type).shape[0]
        there = device.least(device.sub(count, first), rows)
        device.loop(thread, there, self.agent.warp_count * warps.WARP, ask)
