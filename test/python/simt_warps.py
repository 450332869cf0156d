"""Runs a persistent kernel whose warps take roles of their own: agents (simt_agents.py) and copies by turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from simt_agents import Scheduler
from simt_clocks import Clocks
from simt_copies import MAPS_AT
from simt_cta import Cluster, CtaState
from simt_decode import Op
from simt_hopper import WARPGROUP, WarpAgent
from simt_instructions import Counters
from simt_memory import Space
from simt_pipeline import Deadlock
from simt_tma import Box


def run_warps(
    kernel: Op,
    arguments: Sequence[int],
    memory: Space,
    launch: dict[str, Any],
    maps: Sequence[Box],
    rng: np.random.Generator,
) -> Counters:
    """One launch, as simt_pipeline.run; a kernel with tensor maps has their place as its first parameter."""
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
        raise Deadlock("; ".join(waiting))
    return counters
