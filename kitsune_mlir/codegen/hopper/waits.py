"""Waits on mbarriers and on counters in global memory.

A wait is a loop around one question. Code that is generated inside `watched` gives up after a budget of questions
instead (codegen/pipeline/watch.py): a thread that waits in vain says so and leaves the kernel, with its `Party`, whose
other threads would else wait for it at barriers without a budget. CTAs of a cluster leave together.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.codegen.pipeline.watch import Answer, Watch
from kitsune_mlir.mlir import arith, ir

from . import cluster, tma, wgmma

QUESTION_NS = 1000  # that a thread may sleep in a question to an mbarrier, with a budget
INSIDE = 4  # budgets of a wait for the own CTA: it may wait for other CTAs in turn, and that is what to report
# A question to an mbarrier, its order and scope by default .acquire.cta. Who tries may sleep (from sm_90 on).
_LOCAL, _CLUSTER, _TESTED = "try_wait.parity", "try_wait.parity.relaxed.cluster", "test_wait.parity"


@dataclass(frozen=True)
class Party:
    """Whole warpgroups that come to the same waits one after another. `barrier` is the number of a barrier of these
    `threads`, `leader` (i1) holds in one of them."""

    barrier: Int
    threads: int
    leader: ir.Value


@dataclass(frozen=True)
class _Watched:
    """`barriers`: how often CTAs of a cluster wait for each other between a wait and the end. `drain` ends what a
    thread has under way in shared memory, and is told whether it is one of a party."""

    watch: Watch
    barriers: int
    drain: Callable[[bool], None]
    party: Party | None = None
    tile: Int = 0


_NOW: ContextVar[_Watched | None] = ContextVar("watched", default=None)


def _drain(party: bool) -> None:
    """Products of warpgroups, and stores of the copy engine."""
    if party:
        wgmma.wait(0)
    tma.wait_read(0)


@contextlib.contextmanager
def watched(watch: Watch | None, barriers: int = 0, drain: Callable[[bool], None] = _drain) -> Iterator[None]:
    """Waits in the code generated inside have the watch's budget, if there is one."""
    token = _NOW.set(_Watched(watch, barriers, drain) if watch is not None else None)
    try:
        yield
    finally:
        _NOW.reset(token)


@contextlib.contextmanager
def together(barrier: Int, threads: int, leader: ir.Value) -> Iterator[None]:
    """Waits in the code generated inside are those of a party."""
    with _changed(party=Party(barrier, threads, leader)):
        yield


@contextlib.contextmanager
def at_tile(number: Int) -> Iterator[None]:
    """Reports of waits in the code generated inside name a tile."""
    with _changed(tile=number):
        yield


@contextlib.contextmanager
def _changed(**changes: object) -> Iterator[None]:
    now = _NOW.get()
    token = _NOW.set(replace(now, **changes) if now is not None else None)
    try:
        yield
    finally:
        _NOW.reset(token)


def on_barrier(barrier: Int, parity: Int, awaited: str = "an mbarrier", slot: Int | None = None) -> None:
    """Returns when the mbarrier's phase of that parity is complete; its arrivals and copies are this CTA's own. Reports
    say what is `awaited`, and the slot."""
    _on_phase(_LOCAL, barrier, parity, awaited, slot)


def on_tested(barrier: Int, parity: Int, awaited: str = "an mbarrier", slot: Int | None = None) -> None:
    """The same on chips that only test an mbarrier (before sm_90)."""
    _on_phase(_TESTED, barrier, parity, awaited, slot)


def on_cluster(barrier: Int, parity: Int, awaited: str = "an mbarrier", slot: Int | None = None) -> None:
    """The same where arrivals (cluster.remote_arrive) and copies come from other CTAs of the cluster: of what they
    did in shared memory. An acquire of the cluster's accesses to global memory as well would empty the L1 cache
    (PTX ISA, membar/fence: sync_restrict)."""
    _on_phase(_CLUSTER, barrier, parity, awaited, slot, _acquire_cluster)


def on_counter(counter: ir.Value, least: Int, awaited: str = "a counter", where: str | None = None) -> ir.Value:
    """One thread: returns the counter's value (u32 in global memory) when it is at least `least`; acquires at GPU
    scope. Reports say what is `awaited` and `where` in the model. After a wait in vain a thread of a party goes on
    until the party comes to its next."""
    now = _NOW.get()
    if now is None:
        ask = "ld.acquire.gpu.global.u32 $0, [$1];\nsetp.ge.u32 done, $0, $2;"
        return _spin(ask, counter, least, result=device.i32())

    def question() -> Answer:
        text = "ld.acquire.gpu.global.u32 $0, [$1];"
        seen = device.assembly(text, counter, result=device.i32())
        return arith.cmpi(arith.CmpIPredicate.uge, seen, device.value(least)), seen

    over, seen = now.watch.ask(question)
    late = device.flipped(over)
    with device.when(late):
        _tell(now, f"{awaited}: its counter is {{0}}, wanted {{1}}", where, seen, least)
        if now.party is None:
            _leave(now)
    return seen


def leave_if_reported() -> None:
    """All threads of a party: ends them if a wait was in vain, anyone's; without a party, the thread."""
    if (now := _NOW.get()) is not None:
        with device.when(_any(now.party, now.watch.reported())):
            _leave(now)


def _acquire_cluster() -> None:
    device.assembly("fence.acquire.sync_restrict::shared::cluster.cluster;")


def _on_phase(
    asked: str, barrier: Int, parity: Int, awaited: str, slot: Int | None, acquire: Callable[[], None] = lambda: None
) -> None:
    """`acquire` follows in the thread that waits, before others of its party hear of it."""
    now = _NOW.get()
    ask = f"mbarrier.{asked}.shared::cta.b64 done, "
    if now is None:
        _spin(f"{ask}[$0], $1;", barrier, parity)
        acquire()
        return

    def question() -> Answer:
        sleep = "" if asked == _TESTED else f", {QUESTION_NS}"
        text = f"{{\n.reg .pred done;\n{ask}[$1], $2{sleep};\nselp.b32 $0, 1, 0, done;\n}}"
        seen = device.assembly(text, barrier, parity, result=device.i32())
        return device.equal(seen, 1), seen

    def wait() -> ir.Value:
        over, _ = now.watch.ask(question, 1 if asked == _CLUSTER else INSIDE)
        acquire()
        late = device.flipped(over)
        with device.when(late):
            said = "parity {1}" if slot is None else "slot {0}, parity {1}"
            _tell(now, f"{awaited}: {said}", None, slot or 0, parity)
        return late

    if now.party is None:
        late = wait()
    else:
        late = device.choose(now.party.leader, device.i1(), wait, lambda: arith.constant(device.i1(), 0))
    with device.when(_any(now.party, late)):
        _leave(now)


def _spin(ask: str, *operands: Int, result: ir.Type | None = None) -> ir.Value | None:
    """Asks again and again until the predicate `done` holds. A result has a register that no operand has."""
    text = f"{{\n.reg .pred done;\nagain:\n{ask}\n@!done bra again;\n}}"
    return device.assembly(text, *operands, result=result, early=True)


def _tell(now: _Watched, awaited: str, where: str | None, first: Int, second: Int) -> None:
    now.watch.tell([now.watch.waits.number(awaited, where), device.cta(), now.tile, first, second])


def _any(party: Party | None, late: ir.Value) -> ir.Value:
    """All threads of the party, which wait for each other: whether it holds in one of them."""
    if party is None:
        return late
    text = "{\n.reg .pred p, q;\nsetp.ne.b32 p, $3, 0;\nbarrier.cta.red.or.pred q, $1, $2, p;\nselp.b32 $0, 1, 0, q;\n}"
    return device.equal(device.assembly(text, party.barrier, party.threads, late, result=device.i32()), 1)


def _leave(now: _Watched) -> None:
    """A party, or a thread alone. Copies into shared memory that it had made have landed, for it asked many times since
    (watch.PATIENCE). A CTA of a cluster stays until no other one reaches it, which parties see to."""
    now.drain(now.party is not None)
    if now.party is not None:
        for _ in range(now.barriers):
            cluster.barrier()
    device.assembly("exit;")
