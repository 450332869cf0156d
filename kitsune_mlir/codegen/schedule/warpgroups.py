"""Agents that are parts of a warpgroup, whose warps give up or take registers together (PTX ISA, setmaxnreg)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kitsune_mlir.codegen.hopper import warps, wgmma
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.dialects import schedule

Agents = Sequence[schedule.AgentOp]
WARPGROUP = wgmma.THREADS // warps.WARP  # warps


def warps_of(agent: schedule.AgentOp) -> int:
    """The warps of all copies of an agent."""
    return agent.count * agent.warp_count


def threads_of(agents: Agents) -> int:
    """The threads of all copies of agents."""
    return sum(map(warps_of, agents)) * warps.WARP


def together(agents: Agents) -> tuple[Agents, Agents]:
    """The first agents, as many as make whole warpgroups with equal registers, else the first alone; and the others."""
    for count in range(1, len(agents) + 1):
        group = agents[:count]
        if len({agent.register_count for agent in group}) == 1 and sum(map(warps_of, group)) % WARPGROUP == 0:
            return group, agents[count:]
    return agents[:1], agents[1:]


def each(agents: Agents, first: int, emit: Callable[[schedule.AgentOp, int], None]) -> None:
    """Code for each of these agents, whose threads begin at `first`; `emit` is told where those of the agent begin."""
    agent, *rest = agents
    if not rest:
        emit(agent, first)
        return
    ends = first + warps_of(agent) * warps.WARP
    own = device.less(device.thread(), ends)
    device.either(own, lambda: emit(agent, first), lambda: each(rest, ends, emit))
