"""What comes before what, where the warps of a CTA run apart: vector clocks.

A component is a warp, a warpgroup's product unit, or the copies that land on one mbarrier. A stamp is a
component's clock when it accessed memory; a warp has seen the accesses of a component up to some clock.
A thread's own accesses are in order; between threads a barrier, or an arrival and a wait, puts them so
(PTX ISA, Memory Consistency Model: causality order). An arrival is taken to release its whole warp.

Copies by engines and products reach memory by the async proxy, threads, also where they copy 16 bytes each (cp.async),
by the generic one. Accesses of two proxies, one of them a
write, are in order only with a fence between (PTX ISA, Proxies; fence.proxy.async), and so are those of the async
proxies of two CTAs, for a proxy is in order with itself inside a thread block only (proxy-preserved base causality
order). The end of a copy or a product is such a fence (Async proxy): what waited for it needs none. So a fence is
wanted before a copy or a product of what threads did, and in global memory of what copies of other CTAs did: by a
thread of the CTA that issues it, behind that access and before the copy. Who wrote in another CTA cannot fence for it
(Lustig, Cooksey and Giroux, Mixed-Proxy Extensions for the NVIDIA PTX Memory Consistency Model, section 5.4). In shared
memory that is asked of what is read, not of slots that are filled again.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from kitsune_mlir.errors import UnsupportedError

from .lanes import least, most, some

THREAD_BITS, COMPONENT_BITS = 12, 16  # of a stamp; the clock is above them
MANY = (1 << THREAD_BITS) - 1  # several threads, or none
_COMPONENT = (1 << COMPONENT_BITS) - 1
_WHO = (1 << (THREAD_BITS + COMPONENT_BITS)) - 1
SPACES = ("global", "shared")
MOST = 96  # components of a CTA that are not warps


GROUP = 4  # components, as the warps of a warpgroup, whose reads are kept together
FENCES = 16  # of a warp, that are kept apart
_EVER = np.iinfo(np.int64).max  # later than all clocks


def in_groups(count: int) -> int:
    """So many components, or so many more that groups are whole."""
    return -(-count // GROUP) * GROUP


def most_ctas(warps: int) -> int:
    """How many CTAs of so many warps a launch may have here, for clocks have numbers of so many bits."""
    return (_COMPONENT - GROUP) // (warps + MOST)


class Fences:
    """Those of a warp between proxies, in order: its clock at each, and up to which clocks of others it came after
    them. Of many fences the older ones are taken for later ones, so that more passes, never less."""

    def __init__(self) -> None:
        self._times: list[int] = []
        self._seen: list[np.ndarray] = []

    def add(self, time: int, seen: np.ndarray) -> None:
        if len(self._times) == FENCES:
            del self._times[1 : FENCES // 2 : 2], self._seen[: FENCES // 2 : 2]
        self._times.append(time)
        self._seen.append(seen)

    def before(self, time: int) -> np.ndarray | None:
        """What the last one up to a clock of the warp came after."""
        number = bisect.bisect_right(self._times, time)
        return self._seen[number - 1] if number else None


class Clocks:
    """The clocks of one launch. The first components are the warps, CTA after CTA."""

    def __init__(self, ctas: int, warps: int):
        self.warps = warps
        self.size = in_groups(ctas * (warps + MOST))
        if self.size > _COMPONENT:
            raise UnsupportedError(
                f"the simulator runs at most {most_ctas(warps)} CTAs of {warps} warps at once, not {ctas}"
            )
        self.names = [f"CTA {cta} warp {warp}" for cta in range(ctas) for warp in range(warps)]
        self.ctas = np.full(self.size, -1)  # of components
        self.ctas[: ctas * warps] = np.arange(ctas * warps) // warps
        self.nothing = np.zeros(self.size, np.int64)  # the clock of what comes after nothing, never written
        self.seen = np.zeros((ctas * warps, self.size), np.int64)
        self.now = np.ones(ctas * warps, np.int64)
        self.by_threads = np.zeros(self.size, np.bool_)  # copies of the generic proxy, beside those who issued them
        self.phases = 0  # of mbarriers, that are complete
        # What relaxed arrivals of a warp release, for a fence stood before; what its relaxed waits found, for a fence.
        self.fenced, self.found = np.zeros(self.seen.shape, np.int64), np.zeros(self.seen.shape, np.int64)
        # By space and CTA, then by warp.
        self._fences: dict[tuple[str, int], dict[int, Fences]] = defaultdict(lambda: defaultdict(Fences))

    def component(self, name: str, cta: int, by_threads: bool = False) -> int:
        if len(self.names) >= self.size:
            raise UnsupportedError(f"the simulator has room for {MOST} mbarriers and units of a CTA, not more")
        self.ctas[len(self.names)], self.by_threads[len(self.names)] = cta, by_threads
        self.names.append(name)
        return len(self.names) - 1

    def release(self, warps: np.ndarray) -> np.ndarray:
        """What comes before an operation of these warps; what they do from here on does not."""
        found = most(self.seen[warps])
        found[warps] = np.maximum(found[warps], self.now[warps])
        self.now[warps] += 1
        return found

    def acquire(self, warps: np.ndarray, clock: np.ndarray) -> None:
        self.seen[warps] = np.maximum(self.seen[warps], clock)

    def fence_release(self, warps: np.ndarray) -> None:
        """What these warps did is released by their relaxed operations from here on."""
        self.fenced[warps] = self.release(warps)

    def fence_acquire(self, warps: np.ndarray) -> None:
        """What relaxed operations of these warps found comes before what they do from here on."""
        for warp in warps:
            self.acquire(warp, self.found[warp])

    def fence_proxy(self, warps: np.ndarray, spaces: Sequence[str]) -> None:
        """What each of these warps did, or saw done, comes before copies and products that come after its fence."""
        seen, times = self.seen[warps], self.now[warps]
        seen[np.arange(len(warps)), warps] = times
        self.now[warps] += 1
        for space in spaces:
            fences = self._fences[space, int(warps[0]) // self.warps]
            for warp, time, row in zip(warps.tolist(), times.tolist(), seen, strict=True):
                fences[warp].add(time, row)

    def fenced_for(self, cta: int, seen: np.ndarray, space: str) -> np.ndarray:
        """Up to which clocks of components a copy or a product of a CTA, which comes after `seen`, is in order with
        them as its proxy has it."""
        found = [fences.before(int(seen[warp])) for warp, fences in self._fences[space, cta].items()]
        fenced = np.maximum.reduce([self.nothing, *(row for row in found if row is not None)])
        asynchronous = np.where(self.by_threads, -1, self.ctas)[len(self.now) :]
        fenced[len(self.now) :][(asynchronous == cta) if space == "global" else (asynchronous >= 0)] = _EVER
        return fenced

    def who(self, stamp: int) -> str:
        thread, component = int(stamp) & MANY, (int(stamp) >> THREAD_BITS) & _COMPONENT
        return self.names[component] + ("" if thread == MANY else f" thread {thread}")


class WarpClock:
    """The clocks as the warps of one CTA use them, with the methods of memory.Clock."""

    def __init__(self, clocks: Clocks, cta: int):
        self.clocks, self.cta, self._first = clocks, cta, cta * clocks.warps
        threads = np.arange(clocks.warps * 32)
        self._warp = self._first + (threads >> 5)
        self._who = stamp(np.int64(0), self._warp, threads)

    def stamps(self, threads: np.ndarray) -> np.ndarray:
        return (self.clocks.now[self._warp[threads]] << (COMPONENT_BITS + THREAD_BITS)) | self._who[threads]

    def precedes(self, stamps: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Whether accesses of these stamps (0: none) come before an access of `own` stamps by warps."""
        seen = self.clocks.seen[components(own), components(stamps)]
        return (clocks_of(stamps) <= seen) | ((stamps ^ own) & _WHO == 0)

    def all_come_after(self, stamp: int, threads: np.ndarray) -> bool:
        """As memory.Clock.all_come_after."""
        warps = self.readers(threads)
        by = stamp >> THREAD_BITS & _COMPONENT
        return clocks_of(stamp) <= int(least(self.clocks.seen[warps.start : warps.stop, by]))

    def seen_by(self, threads: np.ndarray, others: slice) -> np.ndarray:
        """As memory.Clock.seen_by."""
        warps = self.readers(threads)
        return least(self.clocks.seen[warps.start : warps.stop, others])

    def own_seen(self, threads: np.ndarray) -> int:
        """As memory.Clock.own_seen, for the warp that has seen least of itself."""
        return min(int(self.clocks.seen[warp, warp]) for warp in self.readers(threads))

    @staticmethod
    def clock_of(stamp: Any) -> Any:
        return clocks_of(stamp)

    def readers(self, threads: np.ndarray) -> range:
        """The warps of these threads, which are in order."""
        return range(self._first + (int(threads[0]) >> 5), self._first + (int(threads[-1]) >> 5) + 1)

    def reader_of(self, threads: np.ndarray) -> np.ndarray:
        """Which of them each thread is in, counted from the first."""
        return (threads >> 5) - (int(threads[0]) >> 5)

    def who(self, stamp: int) -> str:
        return self.clocks.who(stamp)


class EngineClock:
    """One asynchronous copy or product of a component: what it came after is fixed when it is issued."""

    def __init__(self, clocks: Clocks, cta: int, component: int, now: int, seen: np.ndarray):
        self.clocks, self.cta, self.component, self.now, self.seen = clocks, cta, component, now, seen
        self._fenced: dict[str, np.ndarray] = {}
        self.stamp = int(stamp(np.int64(now), np.int64(component), np.int64(MANY)))

    def precedes(self, stamps: np.ndarray) -> np.ndarray:
        stamps = _different(stamps)
        return clocks_of(stamps) <= self.seen[components(stamps)]

    @staticmethod
    def clock_of(stamp: Any) -> Any:
        return clocks_of(stamp)

    def fenced(self, space: str) -> np.ndarray:
        """As Clocks.fenced_for."""
        if space not in self._fenced:
            self._fenced[space] = self.clocks.fenced_for(self.cta, self.seen, space)
        return self._fenced[space]

    def proxied(self, stamps: np.ndarray, space: str) -> np.ndarray:
        """Whether accesses that come before it do so as its proxy has it."""
        stamps = _different(stamps)
        by = components(stamps)
        if space == "shared" and least(by) >= len(self.clocks.now) and not some(self.clocks.by_threads[by]):
            return np.ones(len(by), np.bool_)
        return clocks_of(stamps) <= self.fenced(space)[by]

    def who(self, stamp: int) -> str:
        return self.clocks.who(stamp)


def stamp(clock: np.ndarray, component: np.ndarray, thread: np.ndarray) -> np.ndarray:
    return (((clock << COMPONENT_BITS) | component) << THREAD_BITS) | thread


def components(stamps: np.ndarray) -> np.ndarray:
    return (stamps >> THREAD_BITS) & _COMPONENT


def clocks_of(stamps: np.ndarray) -> np.ndarray:
    return stamps >> (THREAD_BITS + COMPONENT_BITS)


def _different(stamps: np.ndarray) -> np.ndarray:
    """One of them if all are the same: what a copy wrote, most often."""
    return stamps if some(stamps != stamps[0]) else stamps[:1]
