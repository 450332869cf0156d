"""Freedom from deadlock of a scheduled kernel's agents, for any trip counts.

`docs/proof.md` has the theorem and its proof. A *level* is the kernel, or one turn of a loop of unknown trip count that
several agents run. Its vertices are the ring events that stand in it directly, and the loops in it, each with all
agents' turns as one vertex. Its edges are the waits whose distance, in turns of the level, is 0: program order, a wait
after its commit, an acquire after the release of the slot that it takes again. No wait may have a distance below 0, and
edges may close no cycle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from .schedule import Event, Kind, Node, Place, Refused, Ring, Side, Turns, named

SIDES: dict[Kind, Side] = {"acquire": "producer", "commit": "producer", "wait": "consumer", "release": "consumer"}
ANSWERS: dict[Kind, Kind] = {"wait": "commit", "acquire": "release"}  # whose number is waited for
OPENING: tuple[Kind, Kind] = ("acquire", "wait")
CYCLE_SHOWN = 8  # events of a cycle that a message names


@dataclass(frozen=True)
class Ends:
    """The agents at the two ends of a ring."""

    producer: str
    consumer: str

    def of(self, kind: Kind) -> str:
        return self.producer if SIDES[kind] == "producer" else self.consumer


@dataclass(frozen=True)
class _Level:
    bodies: dict[str, tuple[Node, ...]]  # agent -> what it does in a turn
    before: dict[tuple[str, Kind], int]  # a ring's events of a kind so far, turns of loops left out
    loop: Turns | None


@dataclass(frozen=True)
class _Vertex:
    place: Place
    text: str


def check(
    bodies: Mapping[str, tuple[Node, ...]],
    rings: Mapping[str, Ring],
    ends: Mapping[str, Ends],
    tiles: str | None = None,
) -> None:
    """Raises Refused where agents may wait for each other for ever, or where that is not known. Loops with the bounds
    `tiles`, of which each agent has one at most, are one for all agents, though no ring joins them."""
    kinds = [(ring, kind) for ring in ends for kind in SIDES]
    levels = [_Level(dict(bodies), dict.fromkeys(kinds, 0), None)]
    while levels:
        level = levels.pop()
        levels += _check_level(level, rings, ends, None if level.loop else tiles)


def _check_level(level: _Level, rings: Mapping[str, Ring], ends: Mapping[str, Ends], tiles: str | None) -> list[_Level]:
    touched = {name for body in level.bodies.values() for node in body for name in _rings(node)}
    names = [name for name in ends if name in touched]
    shared = _Shared()
    for name in names:
        _match_loops(level, name, ends[name], shared)
        _check_rates(level, name, rings[name], ends[name])
    over_tiles = [
        (agent, i)
        for agent, body in level.bodies.items()
        for i, node in enumerate(body)
        if isinstance(node, Turns) and node.bounds == tiles
    ]
    for one, other in pairwise(over_tiles):
        shared.join(one, other)
    group = shared.groups(level)
    vertices: dict[tuple[str, int], _Vertex] = {}
    after: dict[tuple[str, int], set[tuple[str, int]]] = {}
    vertex = {(agent, i): (agent, i) for agent, body in level.bodies.items() for i in range(len(body))} | group
    for agent, body in level.bodies.items():
        for i, node in enumerate(body):
            vertices.setdefault(vertex[agent, i], _vertex(agent, node))
            if i:
                after.setdefault(vertex[agent, i], set()).add(vertex[agent, i - 1])
    for name in names:
        for waiter, on in _waits(level, name, rings[name], ends[name]):
            after.setdefault(vertex[waiter], set()).add(vertex[on])
    _check_cycles(vertices, after)
    return _inner(level, names, ends, group)


class _Shared:
    """Which loops of a level are one for all agents."""

    def __init__(self) -> None:
        self.root: dict[tuple[str, int], tuple[str, int]] = {}

    def find(self, key: tuple[str, int]) -> tuple[str, int]:
        while self.root.get(key, key) != key:
            key = self.root[key]
        return key

    def join(self, one: tuple[str, int], other: tuple[str, int]) -> None:
        self.root[self.find(one)] = self.find(other)

    def groups(self, level: _Level) -> dict[tuple[str, int], tuple[str, int]]:
        """Each loop's vertex. Raises Refused if that would be two loops of one agent."""
        found: dict[tuple[str, int], tuple[str, int]] = {}
        taken: dict[tuple[tuple[str, int], str], Turns] = {}
        for agent, body in level.bodies.items():
            for i, node in enumerate(body):
                if not isinstance(node, Turns):
                    continue
                found[agent, i] = root = self.find((agent, i))
                if (root, agent) in taken:
                    both = named(node.rings() | taken[root, agent].rings())
                    raise Refused(
                        node.place,
                        f"and the loop at {taken[root, agent].place.line} are two loops of '{agent}' over {both}, "
                        "which another agent visits in one",
                    )
                taken[root, agent] = node
        return found


def _match_loops(level: _Level, name: str, ends: Ends, shared: _Shared) -> None:
    """The loops with a ring's events are the same ones, in the same order, at both of its ends."""
    producers, consumers = (
        [
            (i, node)
            for i, node in enumerate(level.bodies.get(ends.of(kind), ()))
            if isinstance(node, Turns) and _counts(node, name, kind)
        ]
        for kind in OPENING
    )
    for (i, one), (j, other) in zip(producers, consumers, strict=False):
        if one.bounds != other.bounds:
            raise Refused(
                other.place,
                f"takes slots of ring '{name}' in a loop whose bounds are not those of the loop at {one.place.line} in "
                f"which '{ends.producer}' fills them; their trip counts may differ",
            )
        shared.join((ends.producer, i), (ends.consumer, j))
    if len(producers) != len(consumers):
        more = max(producers, consumers, key=len)[min(len(producers), len(consumers))][1]
        raise Refused(
            more.place,
            f"visits ring '{name}' in a loop of unknown trip count to which no loop at the ring's other end "
            f"corresponds: '{ends.producer}' has {len(producers)} such loops here, '{ends.consumer}' {len(consumers)}",
        )


def _rows_opened(node: Node, name: str) -> set[int]:
    """For how many rows slots of a ring are opened, at any depth."""
    if isinstance(node, Event):
        return {node.rows} if node.ring == name and node.kind in OPENING else set()
    return set().union(*(_rows_opened(inner, name) for inner in node.body))


def _counts(node: Node, name: str, kind: Kind) -> bool:
    if isinstance(node, Event):
        return node.ring == name and SIDES[node.kind] == SIDES[kind]
    return any(_counts(inner, name, kind) for inner in node.body)


def _rings(node: Node) -> set[str]:
    return {node.ring} if isinstance(node, Event) else node.rings()


def _check_rates(level: _Level, name: str, ring: Ring, ends: Ends) -> None:
    """As many slots are filled as are taken, loops aside: these are compared as levels of their own."""
    filled, taken = (len(_numbered(level, name, kind, ends)) for kind in ("acquire", "wait"))
    if filled != taken:
        where, when = (level.loop.place, "in a turn of the loop ") if level.loop else (ring.place, "")
        raise Refused(
            where,
            f"has ring '{name}', of which {when}'{ends.producer}' fills {filled} slots, but '{ends.consumer}' takes "
            f"{taken}",
        )
    _check_rows(level, name, ends)


def _check_rows(level: _Level, name: str, ends: Ends) -> None:
    """Where slots are opened for different numbers of rows, both ends do so alike, between the same loops."""
    opened = {
        kind: [(level.bodies[ends.of(kind)][i], loops) for i, loops in _numbered(level, name, kind, ends)]
        for kind in OPENING
    }
    if len({rows for body in level.bodies.values() for node in body for rows in _rows_opened(node, name)}) < 2:
        return
    for (one, before), (other, after) in zip(*opened.values(), strict=True):
        assert isinstance(one, Event) and isinstance(other, Event)
        if one.rows != other.rows or before != after:
            raise Refused(
                other.place,
                f"takes {other.rows} rows of a slot of ring '{name}' where '{ends.producer}' fills {one.rows}, at "
                f"{one.place.line}",
            )


def _numbered(level: _Level, name: str, kind: Kind, ends: Ends) -> list[tuple[int, int]]:
    """The events of a kind that stand in the level directly: position in the agent's body, and how many of the ring's
    loops stand before."""
    found: list[tuple[int, int]] = []
    loops = 0
    for i, node in enumerate(level.bodies.get(ends.of(kind), ())):
        if isinstance(node, Event):
            if node.ring == name and node.kind == kind:
                found.append((i, loops))
        elif _counts(node, name, kind):
            loops += 1
    return found


def _waits(level: _Level, name: str, ring: Ring, ends: Ends) -> list[tuple[tuple[str, int], tuple[str, int]]]:
    """The waits for a ring of distance 0 between events of the level: (who waits, for whom)."""
    found = []
    for kind, answer in ANSWERS.items():
        done = _numbered(level, name, answer, ends)
        start = level.before[name, answer]
        for number, (i, loops) in enumerate(_numbered(level, name, kind, ends), 1):
            needed = level.before[name, kind] + number - (ring.slots if kind == "acquire" else 0)
            if needed <= start + sum(1 for _, before in done if before < loops):
                continue  # in a loop that its agent has left, in an earlier turn, or before the first one
            if needed > start + len(done):
                place = level.bodies[ends.of(kind)][i].place
                raise Refused(place, f"waits for ring '{name}' more often than '{ends.of(answer)}' does its part")
            on = done[needed - start - 1][0]
            found.append(((ends.of(kind), i), (ends.of(answer), on)))
    return found


def _vertex(agent: str, node: Node) -> _Vertex:
    if isinstance(node, Turns):
        return _Vertex(node.place, f"the loop over {named(node.rings())} ({node.place.line})")
    return _Vertex(node.place, f"the {node.kind} of ring '{node.ring}' in '{agent}' ({node.place.line})")


def _check_cycles(vertices: dict[tuple[str, int], _Vertex], after: dict[tuple[str, int], set[tuple[str, int]]]) -> None:
    """Raises Refused at a cycle of waits; removes, in turn, what waits for nothing more."""
    waiting = {key: len(after.get(key, ())) for key in vertices}
    then: dict[tuple[str, int], list[tuple[str, int]]] = {}
    for key, others in after.items():
        for other in others:
            then.setdefault(other, []).append(key)
    ready = [key for key, count in waiting.items() if not count]
    while ready:
        key = ready.pop()
        del waiting[key]
        for other in then.get(key, ()):
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)
    if not waiting:
        return
    path = [min(waiting)]
    while path[-1] not in path[:-1]:
        path.append(min(key for key in after[path[-1]] if key in waiting))
    cycle = path[path.index(path[-1]) : -1]
    # Program order between two waits of one agent goes without saying.
    ends = [
        key
        for before, key, on in zip([cycle[-1], *cycle], cycle, [*cycle[1:], cycle[0]], strict=False)
        if before[0] != key[0] or key[0] != on[0]
    ]
    shown = ends or cycle
    texts = [vertices[key].text for key in shown[:CYCLE_SHOWN]]
    back = "which waits for" if len(shown) <= CYCLE_SHOWN else f"and so on for {len(shown) - CYCLE_SHOWN} more, back to"
    chain = f"{', which waits for '.join(texts)}, {back} {texts[0]}".replace(", which waits for", " waits for", 1)
    raise Refused(vertices[shown[0]].place, f"closes a cycle of waits: {chain}")


def _inner(
    level: _Level, names: list[str], ends: Mapping[str, Ends], group: dict[tuple[str, int], tuple[str, int]]
) -> list[_Level]:
    """The loops in a level as levels."""
    found = []
    for root in dict.fromkeys(group.values()):
        members = {agent: i for (agent, i), key in group.items() if key == root}
        loops = {agent: node for agent, i in members.items() if isinstance(node := level.bodies[agent][i], Turns)}
        before = dict(level.before)
        for name in names:
            for kind in SIDES:
                if (agent := ends[name].of(kind)) in members:
                    before[name, kind] += sum(i < members[agent] for i, _ in _numbered(level, name, kind, ends[name]))
        bodies = {agent: loop.body for agent, loop in loops.items()}
        found.append(_Level(bodies, before, next(iter(loops.values()))))
    return found
