"""Runs a persistent kernel whose warps take roles of their own: agents (agents.py) and copies by turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .agents import Scheduler
from .clocks import Clocks
from .copies import MAPS_AT
from .cta import Cluster, CtaState
from .decode import Op
from .faults import Deadlock
from .instructions import Counters
from .space import Space
from .tma import Box
from .warp_agent import WARPGROUP, WarpAgent


def run_warps(
    kernel: Op,
    arguments: Sequence[int],
    memory: Space,
    launch: dict[str, Any],
    maps: Sequence[Box],
    rng: np.random.Generator,
) -> Counters:
    """One launch; pointer arguments are addresses in `memory`. A kernel with tensor maps has their place as its first
    parameter. Gives the counters that it used. Raises MemoryFault, or Deadlock with who waits for what."""
    assert launch["threads"] % 32 == 0
    clocks = Clocks(launch["ctas"], launch["threads"] // 32)
    counters, scheduler = Counters(clocks.size), Scheduler(int(rng.integers(1 << 62)))
    if maps:
        arguments = [MAPS_AT, *arguments]
    ctas = [CtaState(number, launch, maps, clocks) for number in range(launch["ctas"])]
    size = launch.get("cluster", 1)
    assert len(ctas) % size == 0, "a cluster that is not whole"
    for first in range(0, len(ctas), size):
        Cluster(ctas[first : first + size])
    for cta in ctas:
        for first in range(0, cta.threads, WARPGROUP):
            agent = WarpAgent(kernel, arguments, memory, cta, first, counters, scheduler)
            agent.start()
            scheduler.add([agent])
    polling: list[WarpAgent] = []
    version = 0
    with np.errstate(all="ignore"):
        while scheduler.ready or polling:
            changes = counters.version + clocks.phases
            if polling and (changes != version or (not scheduler.ready and launch["watched"])):
                scheduler.add(polling)
                polling, version = [], changes
            if not scheduler.ready:
                break
            one = scheduler.draw()
            if one.turn():
                scheduler.add([one])
            elif isinstance(one, WarpAgent) and one.waits_for is counters:
                if not polling:
                    version = counters.version + clocks.phases
                polling.append(one)
    if waiting := [str(agent) for cta in ctas for agent in cta.agents]:
        raise Deadlock(waiting)
    return counters
