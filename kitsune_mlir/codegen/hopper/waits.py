"""Waits on mbarriers and on counters in global memory, with or without a time limit.

With a limit, a thread that waits longer stores its code to `report` (a word the host can read after a failed
launch: host memory) and traps: the launch fails, nothing hangs.
"""

from __future__ import annotations

from dataclasses import dataclass

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import ir

_NANOSECONDS = 4_000_000_000


@dataclass(frozen=True)
class Watchdog:
    """`report` is the address of a u32; the word stored is `code` * 65536 + CTA."""

    report: ir.Value
    code: int = 1

    def named(self, code: int) -> Watchdog:
        return Watchdog(self.report, code)


def on_barrier(barrier: Int, parity: Int, watchdog: Watchdog | None = None) -> None:
    """Returns when the mbarrier's phase of that parity is complete; its arrivals and copies are this CTA's own."""
    _on_phase("acquire.cta", barrier, parity, watchdog)


def on_cluster(barrier: Int, parity: Int, watchdog: Watchdog | None = None) -> None:
    """The same where arrivals (cluster.remote_arrive) and copies come from other CTAs of the cluster: of what they
    did in shared memory. An acquire of the cluster's accesses to global memory as well would empty the L1 cache
    (PTX ISA, membar/fence: sync_restrict)."""
    _on_phase("relaxed.cluster", barrier, parity, watchdog)
    device.assembly("fence.acquire.sync_restrict::shared::cluster.cluster;", "~{memory}", [], None)


def _on_phase(order: str, barrier: Int, parity: Int, watchdog: Watchdog | None) -> None:
    ask = f"mbarrier.try_wait.parity.{order}.shared::cta.b64 done, [$0], $1;"
    _until(ask, "", [device.value(barrier), device.value(parity)], "r,r", watchdog, None)


def on_counter(counter: ir.Value, least: Int, watchdog: Watchdog | None = None) -> ir.Value:
    """Returns the counter's value (u32 in global memory) when it is at least `least`; acquires at GPU scope."""
    ask = "ld.acquire.gpu.global.u32 $0, [$1];\nsetp.ge.u32 done, $0, $2;"
    operands = [counter, device.value(least)]
    return _until(ask, "=&r,", operands, "l,r", watchdog, device.i32())


def _until(
    ask: str, result: str, operands: list[ir.Value], constraints: str, watchdog: Watchdog | None, type_: ir.Type | None
) -> ir.Value | None:
    """Asks again and again until the predicate `done` holds."""
    if watchdog is None:
        text = f"{{\n.reg .pred done;\nagain:\n{ask}\n@!done bra again;\n}}"
        return device.assembly(text, f"{result}{constraints},~{{memory}}", operands, type_)
    last = len(operands) + bool(result)
    text = f"""{{
.reg .pred done, late;
.reg .b64 start, now;
.reg .b32 code;
{ask}
@done bra over;
mov.u64 start, %globaltimer;
again:
{ask}
@done bra over;
mov.u64 now, %globaltimer;
sub.u64 now, now, start;
setp.gt.u64 late, now, {_NANOSECONDS};
@!late bra again;
mov.u32 code, %ctaid.x;
add.u32 code, code, {watchdog.code << 16};
st.release.sys.global.u32 [${last}], code;
membar.sys;
trap;
over:
}}"""
    return device.assembly(text, f"{result}{constraints},l,~{{memory}}", [*operands, watchdog.report], type_)
