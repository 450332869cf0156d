"""Counters in a workspace in global memory, a cache line each. They are zero before and after a launch, so that
launches need nothing from the host between them.

    workspace: CTAs that finished | report of a wait in vain (watch.py) | the kernel's own, from FIRST_AT on | ...
"""

from __future__ import annotations

from kitsune_mlir.mlir import ir

from . import device

COUNTER_BYTES = 128  # a cache line: no false sharing
REPORT_AT = COUNTER_BYTES
FIRST_AT = REPORT_AT + COUNTER_BYTES


def finish(workspace: ir.Value, nbytes: int, ctas: int) -> None:
    """One thread of each of `ctas` CTAs, when its CTA waits on no counter any more: the last to come zeroes all
    counters, which take `nbytes`."""
    text = "atom.acq_rel.gpu.global.add.u32 $0, [$1], $2;"
    before = device.assembly(text, workspace, 1, result=device.i32())
    with device.when(device.equal(before, ctas - 1)):

        def clear(at: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            device.store(device.value(0), device.offset(workspace, at, ir.IntegerType.get_signless(8)))
            return []

        device.loop(0, nbytes, COUNTER_BYTES, clear)
