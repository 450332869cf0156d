"""What the CTAs of a kernel do that do the same: those of one role, or all where there are no roles. Shared memory,
with the barriers of rings in front of their slots; who arrives at which barrier how often; the agents, one behind the
other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kitsune_mlir.codegen.hopper import cluster, mbarrier, tma, warps
from kitsune_mlir.codegen.hopper.mbarrier import Ring
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.dialects import schedule
from kitsune_mlir.dialects.checks import parent_of
from kitsune_mlir.dialects.dots import DotsOp
from kitsune_mlir.dialects.gather_rows import GatherRowsOp
from kitsune_mlir.dialects.prefetch import PrefetchOp
from kitsune_mlir.dialects.roles import RoleOp
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import ir, walk
from kitsune_mlir.operations import users_of
from kitsune_mlir.planning.target import Target

from .agent import AgentCode
from .around import Ctas, KernelAround, Surroundings
from .dots import DotsCode, stash_bytes
from .exchanges import TOTAL_BARRIERS, Totals
from .gather_rows import GatherCode
from .meetings import BARRIER_BYTES, Meetings
from .prefetch import PrefetchCode
from .rows import RowCode, scratch_bytes
from .warp_agent import WarpCode
from .warpgroups import WARPGROUP, each, threads_of, together, warps_of

AGENT = schedule.AgentOp.OPERATION_NAME
# What generates the code of agents that have such an operation.
_OWN_CODE = {
    DotsOp.OPERATION_NAME: DotsCode,
    GatherRowsOp.OPERATION_NAME: GatherCode,
    PrefetchOp.OPERATION_NAME: PrefetchCode,
}
_WORD_BYTES = 16


@dataclass(frozen=True)
class _Place:
    """Byte offsets of a ring in shared memory."""

    barriers: int
    slots: int


class PartCode:
    """Of a part of a kernel (`kitsune.role`, or the kernel itself), whose CTAs are those from number `first` on. Raises
    UnsupportedError for what has no code here."""

    def __init__(self, op: schedule.KernelOp | RoleOp, kernel: schedule.KernelOp, target: Target, first: int = 0):
        self.op, self.kernel, self.target, self.first = op, kernel, target, first
        self._lay_out()

    @property
    def threads(self) -> int:
        return threads_of(self.op.agents)

    def _lay_out(self) -> None:
        rings = self.op.rings
        at, self.places = 0, {}
        starts = {}
        for ring in rings:
            starts[ring.label] = at
            at += 2 * mbarrier.BYTES * ring.slots * (self._takers(ring).count if ring.memory == schedule.DSMEM else 1)
        for ring in rings:
            at = -(-at // tma.ALIGN) * tma.ALIGN
            self.places[ring.label] = _Place(starts[ring.label], at)
            at += ring.slots * ring.slot_bytes
        meeting = [agent for agent in self.op.agents if agent.meeting_bytes]
        self.meeting = meeting[0] if meeting else None
        if len(meeting) > 1 or meeting and not self.target.has_warpgroups:
            raise UnsupportedError(f"CTAs of kernel '{self.kernel.label}' meet in {len(meeting)} agents")
        self.rooms = self.meeting_barriers = at
        if self.meeting is not None:
            at = -(-at // tma.ALIGN) * tma.ALIGN
            self.rooms, self.meeting_barriers = at, at + self.meeting.count * self.meeting.meeting_bytes
            at = self.meeting_barriers + self.meeting.count * BARRIER_BYTES
        telling = [agent for agent in self.op.agents if agent.total_bytes]
        self.telling = telling[0] if telling else None
        self.totals = at = -(-at // _WORD_BYTES) * _WORD_BYTES
        at += sum(agent.count * (agent.total_bytes + TOTAL_BARRIERS) for agent in telling)
        self.scratch = self.outboxes = at
        at += sum(map(scratch_bytes, self.op.agents)) + sum(map(stash_bytes, self.op.agents))
        if boxes := sum(agent.outbox_bytes for agent in self.op.agents):
            at = -(-at // tma.ALIGN) * tma.ALIGN
            self.outboxes = at
            at += boxes
        self.shared_bytes = at
        if (whole := at * self.kernel.ctas_per_sm) > self.target.shared_bytes:
            raise UnsupportedError(
                f"{self.kernel.ctas_per_sm} CTAs of kernel '{self.kernel.label}' want {whole} bytes of shared memory, "
                f"{self.target.name} has {self.target.shared_bytes}"
            )

    def emit(self, kernel: KernelAround, given: int) -> None:
        """The code of a CTA, whose threads have so many registers at launch."""
        base = kernel.base
        rings = {ring.label: self._ring(ring, base) for ring in self.op.rings}
        meetings = None
        if self.meeting is not None:
            places = (device.add(base, at) for at in (self.meeting_barriers, self.rooms))
            meetings = Meetings(self.kernel.cluster, *places, self.meeting.meeting_bytes)
        totals = None
        if self.telling is not None:
            numbers = self.totals + self.telling.count * TOTAL_BARRIERS
            totals = Totals(self.kernel.cluster, base, self.totals, numbers, self.telling.total_bytes)
        if rings:
            with device.when(device.equal(device.thread(), 0)):
                for ring in self.op.rings:
                    if ring.memory == schedule.DSMEM:
                        self._init_exchange(ring, rings[ring.label], base)
                    elif ring.sharing != "own":
                        rings[ring.label].init(*self._ends(ring))
                if meetings is not None:
                    meetings.init(self.meeting.count)
                if totals is not None:
                    totals.init(self.telling.count)
                if self.target.has_warpgroups:
                    mbarrier.fence_init()
            device.barrier() if self.kernel.cluster == 1 else cluster.barrier()
        around = Surroundings(
            **vars(kernel),
            ctas=Ctas(self.first, self.op.cta_count),
            rings=rings,
            scratch=device.add(base, self.scratch),
            outboxes=device.add(base, self.outboxes),
            meetings=meetings,
            totals=totals,
        )
        self._agents(self.op.agents, 0, around, given)
        if self.kernel.cluster > 1:
            cluster.barrier()  # nobody leaves while others may still write here

    def _init_exchange(self, ring: schedule.AllocRingOp, whole: Ring, base: ir.Value) -> None:
        """One thread: the barriers of each copy."""
        taker = self._takers(ring)
        for copy in range(taker.count):
            barriers = device.add(base, device.add(whole.barriers, copy * whole.barrier_bytes))
            own = Ring(barriers, whole.data, whole.slots, whole.slot_bytes)
            arrivals = taker.warp_count if whole.by_warps else 1
            own.init(1, self.kernel.cluster * arrivals if ring.is_collected else arrivals)

    def _takers(self, ring: schedule.AllocRingOp) -> schedule.AgentOp:
        """The agent that takes a ring's tiles."""
        return self._agent_of(ring, schedule.WaitOp)

    def _agents(self, agents: Sequence[schedule.AgentOp], first: int, around: Surroundings, given: int) -> None:
        """Code for the threads from `first` on, those of the agents."""
        group, rest = together(agents)
        registers = {agent.register_count for agent in group}

        def emit() -> None:
            whole = len(group) > 1 or group[0].warp_count % WARPGROUP == 0
            if self.target.has_warpgroups and whole and registers != {given}:
                (count,) = registers
                warps.set_registers(count, grow=count > given)
            each(group, first, lambda agent, own: self._code(agent)(agent=agent, around=around, first=own).emit())

        if not rest:
            emit()
            return
        ends = first + threads_of(group)
        own = device.less(device.thread(), ends)
        device.either(own, emit, lambda: self._agents(rest, ends, around, given))

    def _code(self, agent: schedule.AgentOp) -> type[AgentCode]:
        """What generates an agent's code."""
        if agent.lanes is not None:
            return RowCode
        own = next((code for name, code in _OWN_CODE.items() if walk(agent, name)), None)
        return own or (AgentCode if self.target.has_warpgroups else WarpCode)

    def _ring(self, ring: schedule.AllocRingOp, base: ir.Value) -> Ring:
        """Of a ring in distributed shared memory places are counted from the first byte on (exchanges.py)."""
        place, start = self.places[ring.label], 0 if ring.memory == schedule.DSMEM else base
        barriers, slots = device.add(start, place.barriers), device.add(start, place.slots)
        return Ring(barriers, slots, ring.slots, ring.slot_bytes, ring.label, self._read_by_warps(ring))

    def _read_by_warps(self, ring: schedule.AllocRingOp) -> bool:
        """Whether warps read a slot's boxes by themselves: f32 that copies do not round is multiplied out of registers,
        and of tiles that are read something is computed. What threads store into a slot does not wait for a copy to
        come: each warp says that its own products (PTX ISA, wgmma.wait_group) have read what was there."""
        by_copies = ring.sharing == "split" or ring.memory == schedule.DSMEM or ring.is_left_operand
        of_f32 = by_copies and isinstance(ring.tile.element_type, ir.F32Type) and not ring.is_rounded
        stored = ring.is_filled_by_threads or ring.is_collected
        return self.target.has_warpgroups and (of_f32 or ring.is_read_by_threads or stored)

    def _ends(self, ring: schedule.AllocRingOp) -> tuple[int, int]:
        """Arrivals that fill a slot and that empty it. Of warpgroups a thread begins the copies, whose bytes count, and
        a thread of each copy of the agent that waits for it releases it; a slot without elements, and one that
        threads fill, is filled by a thread of each warp. Else all threads that copy, and a thread of each warp."""
        fills, takes = (self._agent_of(ring, op) for op in (schedule.AcquireOp, schedule.WaitOp))
        if self.target.has_warpgroups:
            full = 1 if ring.has_elements and not ring.is_filled_by_threads else warps_of(fills)
            return full, takes.count * (takes.warp_count if self._read_by_warps(ring) else 1)
        return fills.warp_count * warps.WARP, takes.count * takes.warp_count

    @staticmethod
    def _agent_of(ring: schedule.AllocRingOp, opens: type) -> schedule.AgentOp:
        """The agent that opens a ring's slots so."""
        uses = users_of(ring.results[0])
        opening = [op for op in uses if op.name == opens.OPERATION_NAME]
        agents = {agent.label: agent for op in opening if (agent := parent_of(op, AGENT).opview)}
        if len(agents) != 1:
            raise UnsupportedError(f"ring '{ring.label}' has {len(agents)} agents that wait for it, wants one")
        (agent,) = agents.values()
        return agent
