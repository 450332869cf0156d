"""Copies of 16 bytes from global to shared memory by each thread (PTX ISA, cp.async: Non-bulk copy), from sm_80 on.

A thread's copies go on beside it. It has an mbarrier count an arrival when all copies that it began before have landed
(cp.async.mbarrier.arrive.noinc): who waits there, sees them. Or it closes groups of copies, and waits itself until all
but the last so many are there (cp.async.commit_group, cp.async.wait_group). These are then stores of its own, by the
generic proxy: products by warpgroups see them behind a fence between proxies.
"""

from __future__ import annotations

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import ir

NBYTES = 16  # of a copy, at multiples of as many on both sides


def copy(destination: Int, source: ir.Value, there: ir.Value | None = None) -> None:
    """Begins to copy 16 bytes, past the L1 cache. Only `there` (i32) of them, where it is given, are read, and zeros
    written behind."""
    text, size = f"cp.async.cg.shared.global [$0], [$1], {NBYTES}", [] if there is None else [there]
    device.assembly(f"{text}, $2;" if size else f"{text};", destination, source, *size)


def arrive(barrier: Int) -> None:
    """An arrival of each thread at an mbarrier, made for these, once its copies have landed."""
    device.assembly("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [$0];", barrier)


def close_group() -> None:
    """What the thread has begun to copy since the last group is one."""
    device.assembly("cp.async.commit_group;")


def wait_groups(pending: int) -> None:
    """Until the copies of all but the thread's last so many groups have landed."""
    device.assembly(f"cp.async.wait_group {pending};")


def wait_all() -> None:
    """Until the thread's copies have landed."""
    device.assembly("cp.async.wait_all;")
