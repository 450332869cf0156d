"""A budget for every wait: a debug kernel that would hang says where and what for, and ends.

A thread that has asked `budget` times writes a report to the workspace, the first of the launch; from then on
every wait is in vain after a few questions, and who waits in vain leaves the kernel. The host reads the report
(runtime/cuda_pipeline.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kitsune_mlir.mlir import arith, ir, location, scf

from . import device
from .counters import REPORT_AT
from .device import Int

PATIENCE = 64  # questions after which a thread heeds another's report: longer than copies take that are under way

Answer = tuple[ir.Value, ir.Value]  # i1: the wait is over; a word of what was seen, i32


@dataclass
class Waits:
    """The waits of a kernel with a budget, found while its code is generated."""

    budget: int
    described: list[dict[str, str]] = field(default_factory=list)

    def number(self, awaited: str, where: str | None = None) -> int:
        """The number of a wait. `where` in the model: by default what the code that is being generated comes from."""
        entry = {"awaited": awaited, "location": where or location(ir.Location.current)}
        if entry not in self.described:
            self.described.append(entry)
        return self.described.index(entry)

    def watch(self, workspace: ir.Value) -> Watch | None:
        """For code that is being generated; None without a budget."""
        if not self.budget:
            return None
        return Watch(device.offset(workspace, REPORT_AT, ir.IntegerType.get_signless(8)), self)


@dataclass(frozen=True)
class Watch:
    """`report` is the address of the report in global memory."""

    report: ir.Value
    waits: Waits

    def ask(self, question: Callable[[], Answer], budgets: int = 1) -> Answer:
        """One thread: asks until the answer is yes or so many budgets are spent. Gives the last answer."""
        i1, i32 = device.i1(), device.i32()
        loop = scf.WhileOp([i1, i32, i32], [device.value(0)])
        before, after = loop.before.blocks.append(i32), loop.after.blocks.append(i1, i32, i32)
        with ir.InsertionPoint(before):
            (asked,) = before.arguments
            over, seen = question()
            waiting = arith.andi(device.flipped(over), self._goes_on(asked, budgets * self.waits.budget))
            scf.ConditionOp(waiting, [over, seen, asked])
        with ir.InsertionPoint(after):
            scf.YieldOp([device.value(device.add(after.arguments[2], 1))])
        over, seen, _ = loop.results
        return over, seen

    def _goes_on(self, asked: ir.Value, most: int) -> ir.Value:
        """Whether a thread that asked so many times may ask again. The trip to L2 makes a question take about a
        microsecond, whatever it is about."""
        patient = arith.ori(device.equal(self._flag(), 0), device.less(asked, PATIENCE))
        return arith.andi(device.less(asked, most), patient)

    def _flag(self) -> ir.Value:
        return device.assembly("ld.relaxed.gpu.global.u32 $0, [$1];", self.report, result=device.i32())

    def reported(self) -> ir.Value:
        """Whether a wait was in vain, i1."""
        return device.flipped(device.equal(self._flag(), 0))

    def tell(self, fields: list[Int]) -> None:
        """One thread: reports these words (`REPORT` in runtime/cuda_pipeline.py), if it is the first."""
        text = "atom.acq_rel.gpu.global.cas.b32 $0, [$1], $2, $3;"
        before = device.assembly(text, self.report, 0, 1, result=device.i32())
        with device.when(device.equal(before, 0)):
            for i, x in enumerate(fields):
                device.store(device.value(x), device.offset(self.report, i + 1, device.i32()))
