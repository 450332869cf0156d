"""Operations of kernels whose warps run apart: barriers, fences, warpgroup products, clusters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kitsune_mlir.mlir import attr_int

from .agents import Agent, Scheduler
from .assembler import Assembler
from .barriers import ClusterBarrier, MBarrier, NamedBarrier
from .clocks import SPACES, EngineClock
from .cta import RANK_BITS, CtaState, ProductUnit
from .decode import Op
from .faults import MemoryFault
from .instructions import Counters
from .lanes import Lanes, every, least, some, spread
from .space import Space

WARPGROUP = 128


class WarpAgent(Agent):
    """Warps of one warpgroup."""

    def __init__(
        self,
        kernel: Op,
        arguments: Sequence[int],
        memory: Space,
        cta: CtaState,
        first: int,
        counters: Counters,
        scheduler: Scheduler,
    ):
        self.function, self.arguments, self._waited = kernel, arguments, memory
        self.cta, self.scheduler, self._counters = cta, scheduler, counters
        self.memory = self._global = memory.before_wait
        self.number, self.first, self.clocks = cta.number, first, cta.clocks
        self.ctas = cta.ctas
        self.threads = min(WARPGROUP, cta.threads - first)
        self.thread_id = np.arange(first, first + self.threads, dtype=np.int32)
        self.block_id, self.ctas = np.array(cta.number, np.int32), cta.ctas
        self._shared, self._clock, self._shared_clock = cta.space, cta.clock, cta.clock
        self.mask, self.values, self.polls = np.ones(self.threads, np.bool_), {}, "nothing"
        self._counted = -1  # how many atomic operations and completed phases it has seen while it waits
        self._lanes: dict[bytes, Lanes] = {}
        self.cluster_phase = -1  # of the cluster's barrier, at its arrival
        self.verdict: bool | None = None  # of the barrier where it voted
        cta.agents.append(self)

    def __str__(self) -> str:
        warps = self._cta_warps(self.mask)
        waits_for = self.polls if self.waits_for is self._counters else self.waits_for or self.polls
        return f"CTA {self.number} warps {warps[0]} to {warps[-1]}: {waits_for}"

    def fork(self) -> WarpAgent:
        other = WarpAgent(
            self.function, self.arguments, self._waited, self.cta, self.first, self._counters, self.scheduler
        )
        self.copy_to(other)
        other.memory = other._global = self._global
        other._lanes = self._lanes
        other.cluster_phase = self.cluster_phase
        return other

    def ended(self) -> None:
        self.cta.agents.remove(self)
        if not self.cta.agents:
            self.cta.end()
        self.scheduler.add(self.cta.cluster.look())

    def polled(self) -> None:
        self.pause = True
        changes = self._counters.version + self.clocks.phases
        self.waits_for = None if self._counted != changes else self._counters
        self._counted = changes

    def _cta_warps(self, mask: np.ndarray) -> np.ndarray:
        return self.lanes(mask).warps

    def warps(self, mask: np.ndarray) -> np.ndarray:
        """The components of warps with active threads."""
        return self.number * self.clocks.warps + self.lanes(mask).warps

    def number_of(self, value: Any, mask: np.ndarray, what: str) -> int:
        """A value that is the same for all active threads."""
        value = np.asarray(value)
        if value.ndim == 0:
            return int(value)
        found = self.lanes(mask).of(value)
        if len(found) > 1 and some(found != found[0]):
            raise MemoryFault(f"{what} differs between threads of a warpgroup")
        return int(found[0])

    def special(self, register: str) -> Any:
        """A special register of PTX; time stands still."""
        if register == "%cluster_ctarank":
            return np.array(self.cta.rank, np.int32)
        if register == "%globaltimer":
            return np.array(0, np.int64)
        return {"%tid.x": self.thread_id, "%ctaid.x": self.block_id}[register]

    # Barriers of threads.

    def _gpu_barrier(self, op: Op, mask: np.ndarray) -> list[Any]:
        self.barrier(0, self.cta.alive(), mask)
        return []

    def barrier(self, number: int, threads: int, mask: np.ndarray, vote: bool | None = None) -> None:
        if not 0 <= number <= 15 or threads % 32:
            raise MemoryFault(f"there is no barrier {number} of {threads} threads")
        self._all_of_it(mask, "a barrier")
        barrier = self.cta.named.setdefault(number, NamedBarrier(f"barrier {number}"))
        self.pause, self.waits_for = True, barrier
        self.scheduler.add(_joined(barrier.arrive(self, self.warps(mask), threads, self.clocks, vote)))

    def vote(self, number: int, threads: int, mask: np.ndarray, vote: bool) -> bool | None:
        """Meets other threads at a barrier; what they voted, once they have met."""
        found, self.verdict = self.verdict, None
        if found is None:
            self.again()
            self.barrier(number, threads, mask, vote)
        return found

    def end_some(self, mask: np.ndarray) -> None:
        """Threads leave: a CTA's barriers of all threads do without them. What is under way to its shared memory lands
        in time, which is not checked."""
        self.cta.left = self.pause = True
        self.drop(mask)
        if (barrier := self.cta.named.get(0)) is not None:
            self.scheduler.add(_joined(barrier.fewer(self.cta.alive(), self.clocks)))

    def _all_of_it(self, mask: np.ndarray, what: str) -> None:
        if mask is not self.mask and some(mask != self.mask):
            missing = self.thread_id[np.argmax(self.mask & ~mask)]
            raise MemoryFault(f"CTA {self.number} has {what} that thread {missing} does not reach")

    def warp_barrier(self, mask: np.ndarray) -> None:
        if not self.lanes(mask).whole_warps:
            raise MemoryFault(f"CTA {self.number} has a barrier that some lanes of a warp do not reach")
        for warp in self.warps(mask):
            self.clocks.acquire(np.array([warp]), self.clocks.release(np.array([warp])))

    def _nvvm_bar_warp_sync(self, op: Op, mask: np.ndarray) -> list[Any]:
        self.warp_barrier(mask)
        return []

    def cluster_arrive(self, mask: np.ndarray) -> None:
        self._all_of_it(mask, "a cluster's barrier")
        cluster = self.cta.cluster
        if self.cluster_phase >= 0:
            raise MemoryFault(f"CTA {self.number} arrives at a cluster's barrier twice")
        self.cluster_phase, self.pause = cluster.barrier.completed, True
        cluster.barrier.arrive(self.warps(mask))
        self.scheduler.add(cluster.look())

    def cluster_wait(self, mask: np.ndarray) -> None:
        barrier: ClusterBarrier = self.cta.cluster.barrier
        if self.cluster_phase < 0:
            raise MemoryFault(f"CTA {self.number} waits at a cluster's barrier without having arrived")
        if barrier.completed == self.cluster_phase:
            self.wait(barrier)
        else:
            self.clocks.acquire(self.warps(mask), barrier.clock)
            self.cluster_phase = -1

    def _nvvm_cluster_arrive(self, op: Op, mask: np.ndarray) -> list[Any]:
        self.cluster_arrive(mask)
        return []

    def _nvvm_cluster_wait(self, op: Op, mask: np.ndarray) -> list[Any]:
        self.cluster_wait(mask)
        return []

    def wait(self, thing: Any) -> None:
        """Waits for it, then comes to the operation again."""
        thing.waiters.append(self)
        self.again()
        self.waits_for = thing

    def again(self) -> None:
        """The operation is not done yet."""
        self.frames[-1].at -= 1
        self.pause = True

    def _nvvm_griddepcontrol(self, op: Op, mask: np.ndarray) -> list[Any]:
        if "wait" in str(op.attributes["kind"]):
            self._all_of_it(mask, "a wait for the kernel before")
            self.memory = self._global = self._waited
        return []

    # Counters in global memory.

    def _released(self, mask: np.ndarray) -> np.ndarray:
        self.pause = True
        return self.clocks.release(self.warps(mask))

    def _acquired(self, clock: np.ndarray, mask: np.ndarray) -> None:
        self.clocks.acquire(self.warps(mask), clock)

    # Memory.

    def _llvm_mlir_addressof(self, op: Op, mask: np.ndarray) -> list[Any]:
        return [np.array(self.cta.shared.start)]

    def _llvm_bitcast(self, op: Op, mask: np.ndarray) -> list[Any]:
        kind, value = op.results[0].type, np.asarray(self._see(op.operands[0]))
        dtype, vector = (kind[0], True) if isinstance(kind, tuple) else (kind, False)
        words = np.ascontiguousarray(spread(value, (self.threads, *value.shape[1:])).reshape(self.threads, -1))
        return [words.view(dtype) if vector else words.view(dtype)[:, 0]]

    def store_cluster(self, addresses: np.ndarray, values: np.ndarray, mask: np.ndarray, times: int = 1) -> None:
        """To shared memory in the cluster: [active threads, elements], or so many times as many, thread by thread."""
        align, threads = values.dtype.itemsize * values.shape[1], self.lanes(mask).threads
        threads = np.repeat(threads, times) if times > 1 else threads
        for cta, places, which in self._by_cta(addresses):
            cta.space.store(places, values[which], align, self.cta.clock, threads[which])
            if cta is not self.cta:
                for warp in self.warps(mask):
                    cta.reach(int(warp), int(self.clocks.now[warp]))

    def _by_cta(self, addresses: np.ndarray) -> Iterator[tuple[CtaState, np.ndarray, Any]]:
        ranks = addresses >> RANK_BITS
        if every(ranks == ranks[0]):
            yield self.cta.cluster.resolve(int(addresses[0]))[0], addresses, slice(None)
            return
        for rank in np.unique(ranks).tolist():
            which = ranks == rank
            cta, _ = self.cta.cluster.resolve(rank << RANK_BITS)
            yield cta, addresses[which], which

    # Small operations.

    def announce(self, mask: np.ndarray) -> None:
        """The mbarriers that warps of the mask made are there for copies and for other CTAs."""
        made = [barrier for barrier in self.cta.mbarriers.values() if not barrier.announced]
        if made:
            warps = self.warps(mask).tolist()
            for barrier in made:
                barrier.announced = barrier.made[0] in warps

    def fence_proxy(self, mask: np.ndarray, spaces: Sequence[str]) -> None:
        self.clocks.fence_proxy(self.warps(mask), spaces)
        if "shared" in spaces:
            self.announce(mask)

    def _nvvm_fence_mbarrier_init(self, op: Op, mask: np.ndarray) -> list[Any]:
        self.announce(mask)
        return []

    def _nvvm_fence_proxy(self, op: Op, mask: np.ndarray) -> list[Any]:
        self.fence_proxy(mask, SPACES)
        return []

    def _nvvm_read_ptx_sreg_cluster_ctarank(self, op: Op, mask: np.ndarray) -> list[Any]:
        return [np.array(self.cta.rank, np.int32)]

    def _nvvm_elect_sync(self, op: Op, mask: np.ndarray) -> list[Any]:
        lanes = mask.reshape(-1, 32)
        elected = np.zeros_like(lanes)
        elected[np.arange(len(lanes)), lanes.argmax(1)] = lanes.any(1)
        return [elected.reshape(-1)]

    def _nvvm_setmaxregister(self, op: Op, mask: np.ndarray) -> list[Any]:
        count = attr_int(op, "regCount")
        if count % 8 or not 24 <= count <= 256:
            raise MemoryFault(f"setmaxnreg of {count} registers")
        if not mask.all() or len(mask) != WARPGROUP:
            raise MemoryFault("setmaxnreg that some warps of the warpgroup do not reach")
        return []

    def _llvm_inline_asm(self, op: Op, mask: np.ndarray) -> list[Any]:
        if op.assembly.is_plain:
            return super()._llvm_inline_asm(op, mask)
        if isinstance(moved := op.assembly.moved, str):
            return [self.special(moved)]
        return Assembler(self, op, mask).run()

    # mbarriers and asynchronous units.

    def mbarrier(self, owner: CtaState, address: int, mask: np.ndarray) -> MBarrier:
        """Whose making the warps of the mask have seen."""
        if address not in owner.mbarriers:
            raise MemoryFault(f"there is no mbarrier at {address:#x}")
        barrier = owner.mbarriers[address]
        by, now = barrier.made
        warps = self.warps(mask)
        if (asked := warps.tobytes()) not in barrier.seen_by:
            if some((self.clocks.seen[warps, by] < now) & (warps != by)):
                raise MemoryFault(f"{barrier.name} is used while it is made")
            barrier.seen_by.add(asked)
        return barrier

    def engine_clock(self, component: int, now: int, mask: np.ndarray) -> EngineClock:
        """The clock of what warps issue: it comes after what each of them has seen."""
        warps = self.warps(mask)
        seen = self.clocks.seen[warps]
        seen[np.arange(len(warps)), warps] = self.clocks.now[warps]
        return EngineClock(self.clocks, self.number, component, now, least(seen))

    def unit(self, mask: np.ndarray) -> ProductUnit:
        if len(mask) != WARPGROUP or not self.lanes(mask).all:
            raise MemoryFault(f"CTA {self.number} has a warpgroup's operation that some of its threads do not reach")
        if self.first not in self.cta.units:
            name = f"a product of CTA {self.number} warpgroup {self.first // WARPGROUP}"
            self.cta.units[self.first] = ProductUnit(self.clocks.component(name, self.number))
        return self.cta.units[self.first]

    def commit_products(self, mask: np.ndarray) -> None:
        unit = self.unit(mask)
        unit.groups.append(unit.open)
        unit.open = []

    def wait_products(self, pending: int, mask: np.ndarray) -> None:
        unit, warps = self.unit(mask), self.warps(mask)
        done = unit.groups[: max(len(unit.groups) - pending, 0)]
        unit.groups = unit.groups[len(done) :]
        for product in (product for group in done for product in group):
            product.end(self.values)
            self.clocks.seen[warps, unit.component] = product.number
        if not pending:
            unit.fenced = False

    def _nvvm_wgmma_fence_aligned(self, op: Op, mask: np.ndarray) -> list[Any]:
        self.unit(mask).fenced = True
        return []

    def _nvvm_wgmma_commit_group_sync_aligned(self, op: Op, mask: np.ndarray) -> list[Any]:
        self.commit_products(mask)
        return []

    def _nvvm_wgmma_wait_group_sync_aligned(self, op: Op, mask: np.ndarray) -> list[Any]:
        self.wait_products(attr_int(op, "group"), mask)
        return []


def _joined(agents: list[WarpAgent]) -> list[WarpAgent]:
    """Agents that a barrier let go on, those of a warpgroup at the same place made one."""
    found: list[WarpAgent] = []
    for agent in agents:
        first = next((a for a in found if a.cta is agent.cta and a.first == agent.first and a.meets(agent)), None)
        if first is None:
            found.append(agent)
        else:
            first.join(agent)
            agent.cta.agents.remove(agent)
    return found
