"""A budget for every wait: a debug kernel that would hang says on which queue, and ends.

A thread that has asked `budget` times writes a report to the workspace, once for the launch; from then on
every CTA that comes to a wait leaves the kernel. The host reads the report (runtime/cuda_pipeline.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from kitsune_mlir.mlir import arith, ir

from . import device
from .device import Int

# The report's words, after the flag that it is there; counters are those of ring.py.
FIELDS = ("queue", "waits_for_full", "cta", "tile", "counter", "wanted")
REPORT_BYTES = 4 * (1 + len(FIELDS))


@dataclass
class Watch:
    """`report` points into the workspace, `flag` to a word of shared memory that nothing else uses."""

    report: ir.Value
    flag: ir.Value
    budget: int

    def goes_on(self, spins: ir.Value) -> ir.Value:
        """Whether a thread that asked `spins` times may ask again."""
        aborted = device.assembly("ld.relaxed.gpu.global.u32 $0, [$1];", "=r,l,~{memory}", [self.report], device.i32())
        return arith.andi(device.less(spins, self.budget), device.equal(aborted, 0))

    def settle(self, late: ir.Value, fields: list[Int]) -> None:
        """The waiting thread, after its wait: tells the CTA whether it was in vain, and reports it."""
        device.store(arith.extui(device.i32(), late), self.flag)
        with device.when(late):
            text = "atom.acq_rel.gpu.global.cas.b32 $0, [$1], $2, $3;"
            operands = [self.report, device.value(0), device.value(1)]
            before = device.assembly(text, "=r,l,r,r,~{memory}", operands, device.i32())
            with device.when(device.equal(before, 0)):
                for i, field in enumerate(fields):
                    device.store(device.value(field), device.offset(self.report, i + 1, device.i32()))

    def leave_if_late(self) -> None:
        """All threads, after a barrier: ends them if the wait was in vain."""
        late = device.load(self.flag, device.i32())
        device.barrier()
        with device.when(arith.cmpi(arith.CmpIPredicate.ne, late, device.value(0))):
            device.assembly("exit;", "~{memory}", [], None)
