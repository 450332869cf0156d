"""Runs a flow one get and put at a time, as its CTAs would, under a schedule of the caller's choice.

An independent statement of the semantics in `flow.py`, against which the proof is tested; it also
answers "who waits for what" for a flow that hangs. A replica waits for its slot's turn: slots are
handed out by tile number. What a replica gets is compared with the tile it expects.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from .flow import Flow, Queue, Stage

Schedule = Callable[[list["Replica"]], "Replica"]  # which of the replicas that can move does


class OutOfOrder(AssertionError):
    """A consumer found another tile than the one it expects: the semantics themselves are broken."""


@dataclass(slots=True)
class Step:
    """One wait of a replica and what it does then: get, put or release of a tile of a queue."""

    action: str  # "get", "put" or "release"
    queue: str
    stage: str
    tile: int  # for an accumulating queue, the producer's replica
    lane: int  # which ring: the replica, where each has its own; else 0
    index: int  # the tile's number in that ring

    def __str__(self) -> str:
        return f"'{self.stage}' waits to {self.action} tile {self.tile} of queue '{self.queue}'"


@dataclass
class _Slot:
    """One ring entry: whose turn it is, what it holds, who has still to release it."""

    turn: int
    held: int | None = None
    readers: set[str] = field(default_factory=set)


@dataclass(eq=False)
class Replica:
    """One CTA of a role, as the steps it has still to take."""

    role: int
    number: int
    steps: Iterator[Step]
    now: Step | None = None

    def advance(self) -> None:
        self.now = next(self.steps, None)


@dataclass(frozen=True)
class Outcome:
    """How a run ended; `waiting` is what each replica that did not finish waits for."""

    completed: bool
    waiting: tuple[Step, ...]
    seen: dict[tuple[str, str], list[int]]  # (queue, stage) -> tiles in the order it got them


@dataclass(frozen=True)
class Order:
    """The order of a stage's queue operations within one firing, which a flow leaves open.

    Default: get everything, put in the order of `Flow.queues`, release at the end. `puts` gives another
    order of a stage's puts; `shuffle` draws any order with each release after its get, and may put early.
    """

    puts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    shuffle: random.Random | None = None


def simulate(
    flow: Flow, tiles: int, schedule: Schedule | None = None, order: Order | None = None, resident: int | None = None
) -> Outcome:
    """Runs `tiles` row tiles to the end or to the point where nothing can move.

    `schedule` picks the next replica (default: the first that can move); at most `resident` replicas
    (default: all) are on the machine at once, in order of role, another entering when one leaves.
    """
    rings = {queue.name: _rings(flow, queue) for queue in flow.queues}
    seen: dict[tuple[str, str], list[int]] = {}
    outside = [
        Replica(role, number, _program(flow, stages, number, tiles, order or Order()))
        for role, stages in flow.roles.items()
        for number in range(stages[0].replicas)
    ]
    running: list[Replica] = []
    while True:
        while outside and (resident is None or len(running) < resident):
            entered = outside.pop(0)
            entered.advance()
            if entered.now is not None:
                running.append(entered)
        ready = (replica for replica in running if _can(rings, replica))
        if schedule is None:
            chosen = next(ready, None)
        else:
            chosen = schedule(movable) if (movable := list(ready)) else None
        if chosen is None:
            waiting = tuple(replica.now for replica in running if replica.now is not None)
            return Outcome(not waiting and not outside, waiting, seen)
        assert chosen.now is not None
        _do(flow, rings, chosen.now, seen)
        chosen.advance()
        if chosen.now is None:
            running.remove(chosen)


def random_schedule(seed: int) -> Schedule:
    """Any replica that can move, evenly."""
    rng = random.Random(seed)
    return lambda ready: rng.choice(ready)


def starving_schedule(seed: int) -> Schedule:
    """Replicas in a fixed random order of importance: the least important moves only when nobody else can."""
    rng = random.Random(seed)
    rank: dict[tuple[int, int], float] = {}
    return lambda ready: min(ready, key=lambda r: rank.setdefault((r.role, r.number), rng.random()))


def _rings(flow: Flow, queue: Queue) -> list[list[_Slot]]:
    """By lane and slot."""
    lanes = flow.stage(queue.producer).replicas if queue.on_cta and not queue.accumulates else 1
    return [[_Slot(turn=slot) for slot in range(queue.depth)] for _ in range(lanes)]


def _program(flow: Flow, stages: list[Stage], replica: int, tiles: int, order: Order) -> Iterator[Step]:
    """Everything one replica of a role does, in order."""
    mine = range(replica, tiles, stages[0].replicas)
    per_tile = [(stage, _gets(flow, stage), _puts(flow, stage, order)) for stage in stages if not stage.once]
    acquired: dict[tuple[str, str], int] = {}
    for at in range(len(mine)):
        for stage, gets, puts in per_tile:
            yield from _firing(stage, gets, puts, mine, at, order, acquired)
    for stage, _, puts in per_tile:
        for queue in puts:
            if queue.accumulates:
                yield Step("put", queue.name, stage.name, replica, 0, replica)
    for stage in stages:
        if stage.once:
            summed = [queue for queue in flow.queues if stage.name in queue.consumers]
            for action in ("get", "release"):
                for queue in summed:
                    for r in range(flow.stage(queue.producer).replicas):
                        yield Step(action, queue.name, stage.name, r, 0, r)


def _gets(flow: Flow, stage: Stage) -> list[tuple[Queue, int]]:
    """The queues of tiles that a stage takes from, and its lookahead in each."""
    taken = [queue for queue in flow.queues if stage.name in queue.consumers and not queue.accumulates]
    return [(queue, queue.lookaheads[queue.consumers.index(stage.name)]) for queue in taken]


def _puts(flow: Flow, stage: Stage, order: Order) -> list[Queue]:
    queues = [queue for queue in flow.queues if queue.producer == stage.name]
    wanted = order.puts.get(stage.name, ())
    return sorted(queues, key=lambda queue: wanted.index(queue.name) if queue.name in wanted else len(wanted))


def _firing(
    stage: Stage,
    takes: list[tuple[Queue, int]],
    gives: list[Queue],
    mine: range,
    at: int,
    order: Order,
    acquired: dict[tuple[str, str], int],
) -> list[Step]:
    """The steps of one stage on tile mine[at]; `acquired` counts the tiles it has got of each queue."""

    def step(action: str, queue: Queue, position: int) -> Step:
        tile = mine[position]
        lane, index = (tile % mine.step, tile // mine.step) if queue.on_cta else (0, tile)
        return Step(action, queue.name, stage.name, tile, lane, index)

    gets: list[Step] = []
    releases: list[Step] = []
    for queue, ahead in takes:
        upto = min(at + ahead + 1, len(mine))
        gets += [step("get", queue, p) for p in range(acquired.get((stage.name, queue.name), 0), upto)]
        acquired[stage.name, queue.name] = upto
        releases.append(step("release", queue, at))
    puts = [step("put", queue, at) for queue in gives if not queue.accumulates]
    if order.shuffle is None:
        return gets + puts + releases
    return _shuffled(gets, puts, releases, order.shuffle)


def _shuffled(gets: list[Step], puts: list[Step], releases: list[Step], rng: random.Random) -> list[Step]:
    """A random merge: gets of a queue stay in order, and its release comes after them."""
    chains: dict[tuple[str, str], list[Step]] = {}
    for step in gets + puts + releases:
        chains.setdefault(("put" if step.action == "put" else "take", step.queue), []).append(step)
    merged = []
    while chains:
        key = rng.choice(sorted(chains))
        merged.append(chains[key].pop(0))
        if not chains[key]:
            del chains[key]
    return merged


_Rings = dict[str, list[list[_Slot]]]


def _can(rings: _Rings, replica: Replica) -> bool:
    step = replica.now
    assert step is not None
    ring = rings[step.queue][step.lane]
    if not ring:
        return False
    slot = ring[step.index % len(ring)]
    return slot.turn == step.index and (slot.held is None) == (step.action == "put")


def _do(flow: Flow, rings: _Rings, step: Step, seen: dict[tuple[str, str], list[int]]) -> None:
    ring = rings[step.queue][step.lane]
    slot = ring[step.index % len(ring)]
    if step.action == "put":
        slot.held = step.tile
        slot.readers = set(next(queue for queue in flow.queues if queue.name == step.queue).consumers)
        return
    if slot.held != step.tile or step.stage not in slot.readers:
        raise OutOfOrder(f"{step}, but its slot holds tile {slot.held}")
    if step.action == "get":
        seen.setdefault((step.queue, step.stage), []).append(step.tile)
        return
    slot.readers.remove(step.stage)
    if not slot.readers:
        slot.held = None
        slot.turn += len(ring)
