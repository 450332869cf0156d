"""Instructions on mbarriers in inline PTX (PTX ISA, Parallel Synchronization, mbarrier)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .barriers import MBarrier
from .faults import MemoryFault
from .lanes import most

if TYPE_CHECKING:
    from .assembler import Assembler


def _init(run: Assembler, mask: np.ndarray, place: Any, count: Any) -> None:
    run.one(mask)
    cta = run.cta
    address = cta.place(run.number(place, mask))
    if address % 8 or address + 8 > len(cta.shared.bytes):
        raise MemoryFault(f"an mbarrier at {address:#x} of {len(cta.shared.bytes)} bytes")
    cta.shared.write(np.array([address]), 8, cta.clock, run.agent.lanes(mask).threads)
    name = f"the mbarrier at {address:#x} of CTA {cta.number}"
    (by,) = run.agent.warps(mask).tolist()
    cta.mbarriers[address] = MBarrier(name, run.number(count, mask), run.agent.clocks, by)


def _arrive(run: Assembler, mask: np.ndarray, _: str, place: Any, count: Any = 1, relaxed: bool = False) -> None:
    for own in run.alike(place, mask):
        (barrier, far), each = run.reached(place, own), run.number(count, own)
        released = run.agent._released(own)
        if relaxed:
            released = most(run.agent.clocks.fenced[run.agent.warps(own)])
        run.agent.scheduler.add(barrier.arrive(each * run.agent.lanes(own).count, released, far))


def _expect(run: Assembler, mask: np.ndarray, _: str, place: Any, nbytes: Any) -> None:
    run.mbarrier(place, mask).expect(run.number(nbytes, mask) * run.agent.lanes(mask).count)
    _arrive(run, mask, _, place)


def _wait(
    run: Assembler, mask: np.ndarray, to: str, place: Any, parity: Any, sleep: Any = None, relaxed: bool = False
) -> None:
    """At cluster scope if relaxed, else of this CTA. With a limit to its sleep it comes back without success too."""
    barrier = run.mbarrier(place, mask)
    if barrier.passed(run.number(parity, mask)):
        if relaxed:
            found, warps = run.agent.clocks.found, run.agent.warps(mask)
            found[warps] = np.maximum(found[warps], barrier.clock)
        else:
            run.agent._acquired(barrier.near, mask)
        run.write(to, np.array(True))
    elif sleep is None:
        run.agent.wait(barrier)
    else:
        run.agent.polls = str(barrier)
        run.write(to, np.array(False))


def _test(run: Assembler, mask: np.ndarray, to: str, place: Any, parity: Any) -> None:
    """Never sleeps; a text that asks again and again might as well."""
    asks_again = any(statement.opcode == "bra" for statement in run.op.assembly.statements)
    _wait(run, mask, to, place, parity, None if asks_again else 0)


def _fence_init(run: Assembler, mask: np.ndarray) -> None:
    run.agent.announce(mask)


INSTRUCTIONS: dict[str, Callable[..., None]] = {
    "mbarrier.init.shared::cta.b64": _init,
    "fence.mbarrier_init.release.cluster": _fence_init,
    "mbarrier.arrive.relaxed.cluster.shared::cluster.b64": partial(_arrive, relaxed=True),
    "mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64": partial(_wait, relaxed=True),
    "mbarrier.test_wait.parity.shared::cta.b64": _test,
}
for _where in (".shared::cta", ".release.cta.shared::cta", ".release.cluster.shared::cluster"):
    INSTRUCTIONS[f"mbarrier.arrive{_where}.b64"] = _arrive
    INSTRUCTIONS[f"mbarrier.arrive.expect_tx{_where}.b64"] = _expect
for _scope in ("", ".acquire.cta"):
    INSTRUCTIONS[f"mbarrier.try_wait.parity{_scope}.shared::cta.b64"] = _wait
