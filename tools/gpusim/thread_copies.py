"""Copies of 16 bytes by each thread (PTX ISA, cp.async: Non-bulk copy). What is read is taken when a copy is issued;
all that threads issued lands at a later turn, together with the arrival that waits for it, or, of a group, not before
a warp waits for that. A group's copies are writes by the generic proxy of nobody who runs: the warp that waits for it
has seen them then, and may fence for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .clocks import EngineClock
from .copies import Copy
from .faults import MemoryFault
from .lanes import spread

if TYPE_CHECKING:
    from .assembler import Assembler

NBYTES = 16


@dataclass(frozen=True)
class ThreadCopies:
    """What threads of the warpgroup from `first` on issued together: places in shared memory, in order, the threads
    that copy there, the bytes that come, and a clock of what comes before."""

    first: int
    mask: np.ndarray
    places: np.ndarray
    threads: np.ndarray
    content: np.ndarray
    seen: np.ndarray


class Groups:
    """The groups of copies that a warp has closed and not waited for, with their numbers, and how many there were."""

    def __init__(self, component: int):
        self.component, self.count = component, 0
        self.pending: list[tuple[int, list[tuple[np.ndarray, np.ndarray]]]] = []


def copy(run: Assembler, mask: np.ndarray, to: Any, source: Any, nbytes: int, there: Any = NBYTES) -> None:
    """[destination], [source], 16, how many bytes of them are there: the others become zero."""
    agent, lanes = run.agent, run.agent.lanes(mask)
    if nbytes != NBYTES:
        raise MemoryFault(f"cp.async of {nbytes} bytes past the L1 cache")
    ((to_register,), (from_register,)) = to, source
    places = lanes.of(spread(run.read(to_register), mask.shape)).astype(np.int64) - run.cta.shared.start
    starts = lanes.of(spread(run.read(from_register), mask.shape)).astype(np.int64)
    counts = lanes.of(spread(run.read(there), mask.shape)).astype(np.int64)
    if (places % NBYTES).any() or (counts < 0).any() or (counts > NBYTES).any():
        raise MemoryFault(f"cp.async of {counts.min()} to {counts.max()} bytes to {places.min():#x}")
    if places.min() < 0 or places.max() + NBYTES > len(run.cta.shared.bytes):
        raise MemoryFault(f"cp.async to {places.max():#x} goes beyond the end of shared memory")
    content = np.zeros((len(places), NBYTES), np.uint8)
    whole = counts == NBYTES
    if whole.any():
        content[whole] = _read(run, starts[whole], NBYTES, lanes.threads[whole])
    for count in np.unique(counts[~whole & (counts > 0)]).tolist():
        some = counts == count
        if count % 2:
            raise MemoryFault(f"cp.async of {count} bytes")
        for first in range(0, count, 2):
            content[some, first : first + 2] = _read(run, starts[some] + first, 2, lanes.threads[some])
    order = np.argsort(places)
    if (np.diff(places[order]) < NBYTES).any():
        raise MemoryFault(f"cp.async of several threads to one place from {places.min():#x} on")
    seen = agent.engine_clock(0, 0, mask).seen
    run.cta.copied.append(
        ThreadCopies(agent.first, mask.copy(), places[order], lanes.threads[order], content[order], seen)
    )
    run.cta.shared.bytes[places[:, None] + np.arange(NBYTES)] = 0xFF


def _read(run: Assembler, starts: np.ndarray, nbytes: int, threads: np.ndarray) -> np.ndarray:
    if nbytes == NBYTES and (starts % NBYTES).any():
        raise MemoryFault(f"cp.async from {int(starts[np.argmax(starts % NBYTES)]):#x}: not of 16 bytes")
    space, clock = run.agent.memory, run.cta.clock
    kind = np.dtype(np.int16) if nbytes == 2 else np.dtype(np.int32)
    found = space.load(starts, kind, nbytes // kind.itemsize, nbytes, clock, threads)
    return np.ascontiguousarray(found).view(np.uint8)


def _own(run: Assembler, mask: np.ndarray, what: str) -> list[ThreadCopies]:
    """Takes what these threads have copied since an arrival or a group last counted on it."""
    agent, cta = run.agent, run.cta
    own = [copies for copies in cta.copied if copies.first == agent.first and (copies.mask & mask).any()]
    if any((copies.mask & ~mask).any() for copies in own):
        raise MemoryFault(f"some of the threads that copied together {what}")
    cta.copied = [copies for copies in cta.copied if all(copies is not one for one in own)]
    return own


def close_group(run: Assembler, mask: np.ndarray) -> None:
    """cp.async.commit_group: what each warp has copied is a group."""
    agent, cta = run.agent, run.cta
    own = _own(run, mask, "close a group")
    for warp in agent.lanes(mask).warps.tolist():
        if warp not in cta.groups:
            name = f"copies by threads of CTA {cta.number} warp {warp}"
            cta.groups[warp] = Groups(cta.clocks.component(name, cta.number, by_threads=True))
        groups, parts = cta.groups[warp], []
        groups.count += 1
        for copies in own:
            mine = copies.threads >> 5 == warp
            if not mine.any():
                continue
            places = copies.places[mine]
            clock = EngineClock(agent.clocks, cta.number, groups.component, groups.count, copies.seen)
            cta.shared.engine_write((places, NBYTES), clock)
            parts.append((places[:, None] + np.arange(NBYTES), copies.content[mine]))
        groups.pending.append((groups.count, parts))


def wait_groups(run: Assembler, mask: np.ndarray, left: int) -> None:
    """cp.async.wait_group: all but the last so many groups of each warp have landed, and the warp has seen them."""
    agent, cta = run.agent, run.cta
    for warp in agent.lanes(mask).warps.tolist():
        if (groups := cta.groups.get(warp)) is None:
            continue
        done = groups.pending[: max(0, len(groups.pending) - left)]
        groups.pending = groups.pending[len(done) :]
        for number, parts in done:
            for places, content in parts:
                cta.shared.bytes[places] = content
            own = np.array([cta.number * agent.clocks.warps + warp])
            agent.clocks.seen[own, groups.component] = number


def arrive(run: Assembler, mask: np.ndarray, place: Any) -> None:
    """cp.async.mbarrier.arrive.noinc: an arrival of each thread once its copies have landed."""
    agent, cta = run.agent, run.cta
    barrier = run.mbarrier(place, mask)
    own = _own(run, mask, "count on an mbarrier")
    count = agent.lanes(mask).count
    for copies in own:
        clock = EngineClock(agent.clocks, cta.number, barrier.component, barrier.completed + 1, copies.seen)
        cta.shared.engine_write((copies.places, NBYTES), clock)
        cta.reach(clock.component, clock.now)

    def land() -> None:
        agent.scheduler.add(barrier.arrive(count, np.zeros(agent.clocks.size, np.int64), False))

    places = [copies.places[:, None] + np.arange(NBYTES) for copies in own]
    where = np.concatenate([p.reshape(-1) for p in places]) if own else np.zeros(0, np.int64)
    content = np.concatenate([copies.content.reshape(-1) for copies in own]) if own else np.zeros(0, np.uint8)
    agent.scheduler.add([Copy(cta.shared, where, content, land)])
    agent.pause = True


def wait_all(run: Assembler, mask: np.ndarray) -> None:
    """cp.async.wait_all in front of an exit: copies land in time, which is not checked."""


INSTRUCTIONS = {
    "cp.async.cg.shared.global": copy,
    "cp.async.mbarrier.arrive.noinc.shared::cta.b64": arrive,
    "cp.async.commit_group": close_group,
    "cp.async.wait_group": wait_groups,
    "cp.async.wait_all": wait_all,
}
