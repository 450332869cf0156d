"""The copy engine on plain bytes: contiguous blocks between global and shared memory
(PTX ISA, cp.async.bulk; Async proxy). Addresses and sizes are multiples of 16 bytes.

The engine is a proxy of its own: a thread's writes, and what it acquired from others, reach it through a fence:
`tma.fence` for shared memory, `fence_global` for global memory. What it copied is visible once its end was observed.
"""

from __future__ import annotations

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import ir


def load(source: ir.Value, destination: Int, nbytes: Int, barrier: Int) -> None:
    """One thread: global to shared memory; the bytes count on the mbarrier."""
    text = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];"
    device.assembly(text, destination, source, nbytes, barrier)


def store(source: Int, destination: ir.Value, nbytes: Int) -> None:
    """One thread: shared to global memory; `tma.commit` makes a group of the stores so far."""
    device.assembly("cp.async.bulk.global.shared::cta.bulk_group [$0], [$1], $2;", destination, source, nbytes)


def wait(pending: int) -> None:
    """The thread waits until at most so many of its groups are not yet written."""
    device.assembly(f"cp.async.bulk.wait_group {pending};")


def fence_global() -> None:
    """Between a thread's acquire and copies of what it acquired in global memory."""
    device.assembly("fence.proxy.async.global;")
