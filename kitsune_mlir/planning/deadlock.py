"""Deadlock freedom of a flow, decided exactly from depths, lookaheads and program order.

**What waits on what.** Call (s, t) the firing of stage s on row tile t. It starts only after

- *order*: the stage before s in its role has fired on t; for the role's first stage of n replicas, the
  role's last stage has fired on t - n (a replica takes every n-th tile);
- *full*: for each queue that s takes from, with lookahead L, the producer has fired on t + L n, n the
  replicas of s (or on the last tile of that replica, when there are fewer);
- *empty*: for each queue of depth d that s puts in, each consumer has fired on t - d; on t - d n where
  each of n replicas has a ring of its own. Before the first tile nothing is waited for.

So each wait is "(s, t) after (s', t - distance)" with a constant distance, below 0 for lookahead.

**Theorem.** If every cycle of stages under these waits has a distance above 0, no schedule of the CTAs
deadlocks, for any number of tiles and any order of the gets and puts inside a stage.

*Proof.* A cycle of firings would be a closed walk of stages whose distances sum to 0. A closed walk is
a sum of simple cycles, each at least 1, so there is none: firings are ordered by "after", and since
they are finitely many, induction over that order applies. Let all firings before (s, t) complete. Its
replica has reached it (order). Each tile it takes was put and is not overwritten until s itself
releases it; each slot it puts in was released, and nobody else puts there, because slots are handed out
by tile number. So whatever get or put comes next, its condition holds and stays true: (s, t) completes.
A stage that acquires or releases earlier than this assumes waits for less. Accumulating queues: a
replica puts one partial sum after its last tile, in a slot of its own when depth is at least the
replicas, so it does not wait; `once` stages come after that and nothing waits for them.

**Converse.** From a cycle of distance -a <= 0 and the cycle of n > 0 of any role on it, n times the one
and a times the other make a closed walk of 0: with enough tiles, and puts inside a stage in the order
the cycle names, those firings wait for each other. The condition is therefore the weakest that does
not depend on the order of puts inside stages.

Corollary: without lookahead, any flow of queues of depth 1 or more whose producers stand before their
consumers in program order is free of deadlock, whichever roles share stages and however paths
reconverge: each wait of distance 0 goes backwards in program order, so no cycle consists of them alone.
With lookahead, depth must cover skew: all rings on the way around hold more than L n tiles together.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from .flow import Flow, Queue


@dataclass(frozen=True)
class Wait:
    """(waiter, t) starts after (on, t - distance) has finished, for every tile t."""

    waiter: str
    on: str
    distance: int
    reason: str  # "order", "full" or "empty"
    queue: str = ""  # for full and empty

    def __str__(self) -> str:
        tile = "t" if self.distance == 0 else f"t{-self.distance:+d}"
        what = {"order": "in program order", "full": f"to fill '{self.queue}'", "empty": f"to drain '{self.queue}'"}
        return f"'{self.waiter}' at tile t waits for '{self.on}' at {tile} {what[self.reason]}"


@dataclass(frozen=True)
class Repair:
    """What would free a flow of deadlock."""

    depths: dict[str, int]  # queue -> least depth, for the queues that are too shallow
    cycles: dict[str, list[Wait]]  # queue -> a cycle that its depth or lookahead closes
    hopeless: tuple[str, ...]  # queues whose lookahead no depth can cover


def slots_per_depth(flow: Flow, queue: Queue) -> int:
    """By how many tiles one more slot lets the producer run ahead."""
    return flow.stage(queue.producer).replicas if queue.on_cta else 1


def waits(flow: Flow) -> list[Wait]:
    """The waits of the per-tile stages of a flow that is sound in structure and rates."""
    found = []
    for stages in flow.roles.values():
        names = [stage.name for stage in stages if not stage.once]
        for before, after in zip(names, names[1:], strict=False):
            found.append(Wait(after, before, 0, "order"))
        if names:
            found.append(Wait(names[0], names[-1], stages[0].replicas, "order"))
    for queue in flow.queues:
        if queue.accumulates:
            continue
        for consumer, lookahead in zip(queue.consumers, queue.lookaheads, strict=True):
            ahead = lookahead * flow.stage(consumer).replicas
            found.append(Wait(consumer, queue.producer, -ahead, "full", queue.name))
            behind = queue.depth * slots_per_depth(flow, queue)
            found.append(Wait(queue.producer, consumer, behind, "empty", queue.name))
    return found


def blocking_cycle(flow: Flow) -> list[Wait] | None:
    """A cycle of waits whose distance is 0 or less; none if the flow cannot deadlock.

    Bellman-Ford on distance * (stages + 1) - 1, which sums to less than 0 along a simple cycle just
    when the distance is not above 0.
    """
    edges = waits(flow)
    scale = len(flow.stages) + 1
    reach = {stage.name: 0 for stage in flow.stages}
    via: dict[str, Wait] = {}
    last: Wait | None = None
    for _ in range(scale):
        last = None
        for edge in edges:
            length = reach[edge.waiter] + edge.distance * scale - 1
            if length < reach[edge.on]:
                reach[edge.on], via[edge.on], last = length, edge, edge
        if last is None:
            return None
    assert last is not None  # relaxed in every round: a cycle lies behind this edge
    stage = last.on
    for _ in flow.stages:
        stage = via[stage].waiter
    cycle = [via[stage]]
    while cycle[-1].waiter != stage:
        cycle.append(via[cycle[-1].waiter])
    return cycle[::-1]


def repair(flow: Flow) -> Repair:
    """The cheapest deeper rings, one blocking cycle after another, then trimmed.

    With the depths it names, one slot less in any of them deadlocks again. Lookaheads that no depth
    covers are taken as 0 for the rest of the answer.
    """
    queues = {queue.name: queue for queue in flow.queues}
    cycles: dict[str, list[Wait]] = {}
    raised: set[str] = set()
    hopeless: list[str] = []
    while cycle := blocking_cycle(flow):
        short = 1 - sum(wait.distance for wait in cycle)
        names = [wait.queue for wait in cycle if wait.reason == "empty"]
        if not names:
            ahead = next(wait.queue for wait in cycle if wait.distance < 0)
            hopeless.append(ahead)
            cycles.setdefault(ahead, cycle)
            flow = _with(flow, ahead, lookahead=())
            continue
        slots = {name: -(-short // slots_per_depth(flow, queues[name])) for name in names}
        name = min(names, key=lambda name: slots[name] * queues[name].tile_bytes)
        flow = _with(flow, name, depth=_depth(flow, name) + slots[name])
        raised.add(name)
        cycles.setdefault(name, cycle)
    for name in sorted(raised):
        while _depth(flow, name) > queues[name].depth:
            trimmed = _with(flow, name, depth=_depth(flow, name) - 1)
            if blocking_cycle(trimmed):
                break
            flow = trimmed
    depths = {name: _depth(flow, name) for name in sorted(raised) if _depth(flow, name) > queues[name].depth}
    return Repair(depths, cycles, tuple(hopeless))


def _with(flow: Flow, name: str, **fields: Any) -> Flow:
    queues = tuple(dataclasses.replace(q, **fields) if q.name == name else q for q in flow.queues)
    return dataclasses.replace(flow, queues=queues)


def _depth(flow: Flow, name: str) -> int:
    return next(queue.depth for queue in flow.queues if queue.name == name)
