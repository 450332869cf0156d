"""Barriers inside a CTA whose warps run apart: bar.sync, and mbarriers (PTX ISA, mbarrier)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .clocks import Clocks
from .faults import MemoryFault

MOST_ARRIVALS = MOST_BYTES = (1 << 20) - 1


class MBarrier:
    """Counts arrivals and bytes; `completed` phases are over. A copy that lands on it is a component of the clocks.
    `clock` is what waits at cluster scope come after, `near` what those at CTA scope do: not what other CTAs release
    (PTX ISA, Memory Consistency Model: morally strong operations). Copies and other CTAs know of it once it is
    `announced` (PTX ISA, fence.mbarrier_init)."""

    def __init__(self, name: str, arrivals: int, clocks: Clocks, by: int):
        if not 1 <= arrivals <= MOST_ARRIVALS:
            raise MemoryFault(f"{name} is made for {arrivals} arrivals")
        self.name, self.arrivals, self.pending, self.nbytes, self.completed = name, arrivals, arrivals, 0, 0
        self.component = clocks.component(f"a copy that lands on {name}", by // clocks.warps)
        self.made = (by, int(clocks.now[by]))  # by a warp, at its clock
        self.announced = False
        self.seen_by: set[bytes] = set()  # warps that have seen it made, as they asked together
        self.waiters: list[Any] = []
        self.behind: tuple[Any, int, Any] | None = None  # the CTA, the byte behind, and the map, of the last box for it
        self._clocks, self._coming = clocks, np.zeros(clocks.size, np.int64)
        self._near = self._coming  # the same until another CTA releases something
        self.clock = self.near = clocks.nothing

    def __str__(self) -> str:
        return f"{self.name}, phase {self.completed}: {self.pending} arrivals and {self.nbytes} bytes are missing"

    def arrive(self, count: int, released: np.ndarray, far: bool) -> list[Any]:
        """From another CTA if `far`. Gives those that can go on."""
        if count > self.pending:
            raise MemoryFault(f"{count} arrivals too many at {self}")
        self.pending -= count
        self._comes(released, far)
        return self._look()

    def _comes(self, released: np.ndarray, far: bool) -> None:
        if far and self._near is self._coming:
            self._near = self._coming.copy()
        np.maximum(self._coming, released, out=self._coming)
        if not far and self._near is not self._coming:
            np.maximum(self._near, released, out=self._near)

    def expect(self, nbytes: int) -> None:
        """Comes with an arrival, which follows."""
        self.nbytes += nbytes
        if not 0 <= nbytes <= MOST_BYTES or abs(self.nbytes) > MOST_BYTES:
            raise MemoryFault(f"{nbytes} bytes are too many at {self}")

    def land(self, nbytes: int, released: np.ndarray | None = None, far: bool = False) -> list[Any]:
        """Bytes of a copy. Gives those that can go on."""
        if released is not None:
            self._comes(released, far)
        self.nbytes -= nbytes
        if self.pending == 0 and self.nbytes < 0:
            raise MemoryFault(f"more bytes land than are expected at {self}")
        return self._look()

    def _look(self) -> list[Any]:
        if self.pending or self.nbytes:
            return []
        self.completed += 1
        self._clocks.phases += 1
        self.pending = self.arrivals
        self._coming[self.component] = self._near[self.component] = self.completed
        self.clock = self._coming.copy()
        self.near = self.clock if self._near is self._coming else self._near.copy()
        waiters, self.waiters = self.waiters, []
        return waiters

    def passed(self, parity: int) -> bool:
        """Whether the latest phase of that parity is complete."""
        return self.completed % 2 != parity


def known(barrier: MBarrier) -> None:
    """Checks that copies and other CTAs may count on it."""
    if not barrier.announced:
        raise MemoryFault(f"{barrier.name} is used by a copy or by another CTA without a fence behind its making")


class NamedBarrier:
    """bar.sync: the last of `threads` threads to come lets all go on."""

    def __init__(self, name: str):
        self.name, self.threads, self.waiters = name, 0, []
        self._warps: list[np.ndarray] = []
        self._vote: bool | None = None

    def __str__(self) -> str:
        return f"{self.name} has {self._arrived()} threads of {self.threads}"

    def _arrived(self) -> int:
        return 32 * sum(map(len, self._warps))

    def arrive(self, agent: Any, warps: np.ndarray, threads: int, clocks: Clocks, vote: bool | None) -> list[Any]:
        """Gives those that can go on: `agent` too when it is the last. Those that voted find the outcome."""
        if self._warps and threads != self.threads:
            raise MemoryFault(f"{self}, and {threads} threads are waited for by {agent}")
        self.threads = threads
        self._warps.append(warps)
        self.waiters.append(agent)
        if vote is not None:
            self._vote = vote or bool(self._vote)
        if self._arrived() > threads:
            raise MemoryFault(f"{self}")
        return self._look(clocks)

    def fewer(self, threads: int, clocks: Clocks) -> list[Any]:
        """Some of those that were to come have ended. Gives those that can go on."""
        self.threads = threads
        return self._look(clocks) if self._warps else []

    def _look(self, clocks: Clocks) -> list[Any]:
        if self._arrived() < self.threads:
            return []
        together = np.concatenate(self._warps)
        clocks.acquire(together, clocks.release(together))
        waiters, self.waiters, self._warps = self.waiters, [], []
        for agent in waiters:
            agent.verdict = self._vote
        self._vote = None
        return waiters


class ClusterBarrier:
    """barrier.cluster: an arrival and a wait of all threads of a cluster's CTAs that have not ended."""

    def __init__(self, name: str, clocks: Clocks):
        self.name, self._clocks, self.completed = name, clocks, 0
        self._coming = np.zeros(clocks.size, np.int64)
        self.clock = self._coming.copy()
        self.waiters: list[Any] = []

    def __str__(self) -> str:
        return f"{self.name}, phase {self.completed}"

    def arrive(self, warps: np.ndarray) -> None:
        np.maximum(self._coming, self._clocks.release(warps), out=self._coming)

    def complete(self) -> list[Any]:
        """All are here. Gives those that can go on."""
        self.completed, self.clock = self.completed + 1, self._coming.copy()
        waiters, self.waiters = self.waiters, []
        return waiters
