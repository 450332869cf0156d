"""What the agents of a CTA, and of a cluster of CTAs, share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from . import wgmma
from .barriers import ClusterBarrier, MBarrier, NamedBarrier
from .clocks import Clocks, WarpClock
from .faults import MemoryFault
from .lanes import every, most
from .memory import Region
from .space import Space
from .tma import Box

if TYPE_CHECKING:
    from .thread_copies import Groups, ThreadCopies

RANK_BITS = 24  # an address in a cluster, own or mapped: the CTA's rank above so many bits


@dataclass
class ProductUnit:
    """The products of one warpgroup."""

    component: int
    issued: int = 0
    fenced: bool = False
    open: list[wgmma.Product] = field(default_factory=list)
    groups: list[list[wgmma.Product]] = field(default_factory=list)


class BulkGroups:
    """The copies to global memory that one thread issued: how many groups it closed, and copies in flight by group."""

    def __init__(self, name: str, clocks: Clocks, cta: int):
        self.name, self.closed = name, 0
        self.reads, self.writes = clocks.component(name, cta), clocks.component(name, cta)
        self.in_flight: dict[int, int] = {}
        self.waiters: list[Any] = []

    def __str__(self) -> str:
        return f"{self.name}: {sum(self.in_flight.values())} are in flight"

    def done(self, pending: int) -> bool:
        """Whether all but the last `pending` groups are complete."""
        return not any(count for group, count in self.in_flight.items() if group <= self.closed - pending)


class CtaState:
    """One CTA. Its shared memory is reached by the CTAs of its cluster too."""

    def __init__(self, number: int, launch: dict[str, Any], maps: Sequence[Box], clocks: Clocks):
        self.number, self.maps, self.clocks, self.threads = number, maps, clocks, launch["threads"]
        self.ctas = launch["ctas"]
        self.rank = number % launch.get("cluster", 1)
        content, start = np.full(launch["shared_bytes"], 0xFF, np.uint8), self.rank << RANK_BITS
        name = f"CTA {number}'s shared memory"
        self.shared = Region(name, start, content, writable=True, tracked=True, space="shared")
        self.space, self.clock = Space([self.shared]), WarpClock(clocks, number)
        self.mbarriers: dict[int, MBarrier] = {}
        self.named: dict[int, NamedBarrier] = {}
        self.units: dict[int, ProductUnit] = {}
        self.bulk: dict[int, BulkGroups] = {}  # by thread
        self.copied: list[ThreadCopies] = []  # by threads, which no arrival counts on yet, and which are in no group
        self.groups: dict[int, Groups] = {}  # of such copies, by warp
        self.agents: list[Any] = []  # that have not ended
        self.left = False  # by threads that waited in vain
        self.cluster: Cluster
        self._reached: dict[int, int] = {}  # by copies and other CTAs: components, up to which clock

    @property
    def warps(self) -> np.ndarray:
        """Their components."""
        return self.number * self.clocks.warps + np.arange(self.clocks.warps)

    def alive(self) -> int:
        """Threads of warps that have not ended."""
        return 32 * sum(int(agent.mask.reshape(-1, 32).any(1).sum()) for agent in self.agents)

    def reach(self, component: int, now: int) -> None:
        """An access to its shared memory that its own threads do not make themselves."""
        if not self.agents:
            raise MemoryFault(f"{self.clocks.names[component]} reaches CTA {self.number}, which ended")
        self._reached[component] = max(self._reached.get(component, 0), now)

    def place(self, address: int) -> int:
        """The place of an address in its own shared memory."""
        owner, place = self.cluster.resolve(address)
        if owner is not self:
            raise MemoryFault(f"address {address:#x} is not in CTA {self.number}'s own shared memory")
        return place

    def end(self) -> None:
        """Its last thread ended. Nobody may come to its shared memory any more."""
        if self.left:
            return
        seen = most(self.clocks.seen[self.warps])
        for component, now in self._reached.items():
            if seen[component] < now:
                who = self.clocks.names[component]
                raise MemoryFault(f"CTA {self.number} may end before {who} is done with its shared memory")


class Cluster:
    """CTAs that reach each other's shared memory."""

    def __init__(self, ctas: Sequence[CtaState]):
        self.ctas = ctas
        self.barrier = ClusterBarrier(f"the barrier of CTAs {ctas[0].number} to {ctas[-1].number}", ctas[0].clocks)
        for cta in ctas:
            cta.cluster = self

    def look(self) -> list[Any]:
        """Completes the barrier if nobody is missing. Gives those that can go on."""
        agents = [agent for cta in self.ctas for agent in cta.agents]
        if not agents or any(agent.cluster_phase != self.barrier.completed for agent in agents):
            return []
        return self.barrier.complete()

    def resolve(self, address: int) -> tuple[CtaState, int]:
        """The CTA that an address is of, and the place in its shared memory."""
        rank = address >> RANK_BITS
        if not 0 <= rank < len(self.ctas):
            raise MemoryFault(f"address {address:#x} is in no CTA of the cluster")
        return self.ctas[rank], address & (1 << RANK_BITS) - 1

    def map_address(self, addresses: Any, ranks: np.ndarray) -> Any:
        """Of each thread its own address, or one of all, in the CTA of its rank, or of one."""
        if not every((0 <= ranks) & (ranks < len(self.ctas))):
            raise MemoryFault(f"there is no CTA {ranks} in a cluster of {len(self.ctas)}")
        return np.asarray(addresses) & (1 << RANK_BITS) - 1 | ranks << RANK_BITS
