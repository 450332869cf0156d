"""The life of every slot, token and sum of one agent: each slot is closed once, in order, by one who knows that its
readers and writers are done. Gives the agent's ring events, loops of a known number of turns unrolled.

Steps are run once on symbols. A *slot* is open from its `Open` to its `Close`; the open slots of a ring stand in a
queue, of which only the first may be closed. A *piece of work* (a copy, a product) is pending on the slots it touches
until one of the things that *cover* it is waited for: its token by the slot's own close, or sums that contain it by a
`Settle`.

**Loops of unknown trip counts** are run on what holds at the head of every turn:

- the queues of open slots have the length that they had before the loop, and each place in them holds what the loop
  carries at a certain position, or a slot from outside, which no turn closes;
- of each slot in them, every piece of pending work is covered by all of what the loop carries at the positions of one
  set out of a *family* of sets.

The first is compared at the end of the turn. The second is the least fixed point: the family before the loop and the
one after a turn, united, until it grows no more; there are finitely many. So both hold at the head of every turn and
behind the loop, whatever the trip count, 0 included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from .schedule import (
    Agent,
    Branch,
    Carried,
    Close,
    Copy,
    Done,
    Event,
    Kind,
    Loop,
    Meet,
    Node,
    Open,
    Place,
    Product,
    Read,
    Refused,
    Settle,
    Side,
    Step,
    Sums,
    Touch,
    Turns,
    Use,
    Value,
    named,
    opens,
)

MOST_STEPS = 200_000  # of one agent, its loops of constant bounds unrolled
OPENS: dict[Side, Kind] = {"producer": "acquire", "consumer": "wait"}
CLOSES: dict[Side, Kind] = {"producer": "commit", "consumer": "release"}


def events(agent: Agent, decided: Mapping[str, bool]) -> tuple[Node, ...]:
    """The ring events of an agent when branches go as `decided` (by condition). Raises Refused at the first operation
    for which the rules above do not hold."""
    walk = _Walk(agent, decided)
    walk.run(agent.steps)
    for (ring, _), queue in walk.queues.items():
        if queue:
            raise Refused(queue[0].place, f"opens a slot of ring '{ring}' that '{agent.name}' never closes")
    return tuple(walk.nodes)


@dataclass(eq=False)
class _Sums:
    """Sums as one value: those before, and the last product. `depth` is how many loops of unknown trip counts stand
    around it."""

    depth: int
    before: _Sums | None = None
    work: list[_Work] = field(default_factory=list)
    settled: bool = False

    def chain(self) -> Iterator[_Sums]:
        now: _Sums | None = self
        while now is not None:
            yield now
            now = now.before


@dataclass(eq=False)
class _Token:
    """The completion of one piece of work, or of those that a loop carries at one position."""


@dataclass(eq=False)
class _Work:
    """Pending asynchronous work, and what covers it. For a product also sums that begin with one of `sums`."""

    tokens: frozenset[_Token]
    sums: frozenset[_Sums]
    place: Place
    done: bool = False

    def covered_by(self, thing: _Thing) -> bool:
        if isinstance(thing, _Token):
            return thing in self.tokens
        return isinstance(thing, _Sums) and any(sums in self.sums for sums in thing.chain())


@dataclass(eq=False)
class _Slot:
    ring: str
    side: Side
    place: Place
    pending: list[_Work] = field(default_factory=list)
    written: bool = False
    parts: list[tuple[int, int]] = field(default_factory=list)  # elements that copies write, where they share the slot
    missing: int = 0  # elements that none of those writes
    read: bool = False  # by threads, for as long as it is open
    into: set[str] = field(default_factory=set)  # rings that it is copied to, whose copies its close waits for
    gone: str = ""  # why it can be used no more
    outside: Place | None = None  # the loop that it was opened before, and that does not carry it
    kept: list[_Work] = field(default_factory=list)  # of `pending`, what that loop has nothing to do with


_Thing: TypeAlias = _Slot | _Token | _Sums
_Family: TypeAlias = frozenset[frozenset[int]]


class _Walk:
    def __init__(self, agent: Agent, decided: Mapping[str, bool]):
        self.agent, self.decided = agent, decided
        self.things: dict[Value, _Thing] = {}
        self.queues: dict[tuple[str, Side], list[_Slot]] = {}
        self.nodes: list[Node] = []
        self.count, self.depth = 0, 0
        self.ends: str | None = None  # the ring of a slot that was read, and is closed now

    def run(self, steps: tuple[Step, ...]) -> None:
        for step in steps:
            self.count += 1
            if self.ends is not None and not isinstance(step, Close):
                raise Refused(
                    step.place,
                    f"stands behind the release of a slot of ring '{self.ends}' that tiles were read from, whose "
                    "elements it may use",
                )
            if self.count > MOST_STEPS:
                raise Refused(
                    step.place, f"is beyond the {MOST_STEPS} steps, loops unrolled, up to which an agent is proven"
                )
            match step:
                case Open():
                    self._open(step)
                case Close():
                    self._close(step)
                case Copy():
                    self._copy(step)
                case Done():
                    self._done(step)
                case Read():
                    self._read(step)
                case Touch():
                    self._touch(step)
                case Use() | Meet():
                    pass
                case Sums():
                    self.things[step.sums] = _Sums(self.depth)
                case Product():
                    self._product(step)
                case Settle():
                    self._settle(step)
                case Branch():
                    self._branch(step)
                case Loop():
                    self._loop(step)

    def _open(self, step: Open) -> None:
        slot = _Slot(step.ring, step.side, step.place)
        self.things[step.slot] = slot
        self.queues.setdefault((step.ring, step.side), []).append(slot)
        self.nodes.append(Event(step.ring, OPENS[step.side], step.place, step.rows))

    def _close(self, step: Close) -> None:
        slot = self._slot(step.slot, step.place)
        ring, queue = slot.ring, self.queues[slot.ring, slot.side]
        if slot.side != step.side:
            raise Refused(
                step.place, f"closes as {step.side} a slot of ring '{ring}' opened as {slot.side} at {_at(slot)}"
            )
        if slot.outside:
            raise Refused(
                step.place,
                f"closes, in a loop, a slot of ring '{ring}' that was opened before the loop at {slot.outside.line}; "
                "the loop must carry it",
            )
        if queue[0] is not slot:
            raise Refused(
                step.place, f"closes a slot of ring '{ring}' before the one that was opened earlier, at {_at(queue[0])}"
            )
        tokens = [self._token(token, step.place) for token in step.tokens]
        if step.side == "producer" and not slot.written:
            raise Refused(step.place, f"commits a slot of ring '{ring}' into which nothing was copied")
        if slot.missing:
            raise Refused(step.place, f"commits a slot of ring '{ring}' without {slot.missing} of its elements")
        for into in sorted(slot.into):
            for other in self.queues.get((into, "producer"), []):
                if not other.written or other.missing:
                    raise Refused(
                        step.place,
                        f"closes a slot of ring '{ring}', which is copied to ring '{into}', before the slot opened at "
                        f"{_at(other)} is filled there, which it would wait for",
                    )
        if slot.read:
            if self.depth:
                raise Refused(step.place, f"closes, in a loop, a slot of ring '{ring}' that tiles are read from")
            self.ends = ring
        if step.side == "producer" and not all(_on(slot, token) for token in tokens):
            raise Refused(step.place, f"commits a slot of ring '{ring}' with the token of work on another slot")
        for work in slot.pending:
            if not work.done and not any(work.covered_by(token) for token in tokens):
                what = "copy into it" if step.side == "producer" else "product that reads it"
                raise Refused(
                    step.place,
                    f"closes a slot of ring '{ring}' without the token of the {what} at {work.place.line}, "
                    "which may still be going on",
                )
        queue.pop(0)
        slot.gone = f"was closed at {step.place.line}"
        self.nodes.append(Event(ring, CLOSES[step.side], step.place))

    def _copy(self, step: Copy) -> None:
        slot = self._slot(step.slot, step.place)
        if slot.side != "producer":
            raise Refused(step.place, f"writes to a slot of ring '{slot.ring}' opened to read, at {_at(slot)}")
        if step.part is not None and not slot.outside:
            first, end, count = step.part
            if any(first < other_end and other < end for other, other_end in slot.parts):
                raise Refused(step.place, f"copies twice into elements of the slot of ring '{slot.ring}'")
            slot.parts.append((first, end))
            slot.missing = count - sum(end - first for first, end in slot.parts)
        elif slot.written or slot.outside:
            raise Refused(step.place, f"may copy twice into the slot of ring '{slot.ring}' opened at {_at(slot)}")
        if step.last is not None and step.last[0] < step.last[1]:
            rows, left = step.last
            raise Refused(
                step.place, f"copies {rows} last rows to a slot of ring '{slot.ring}' where the tensor may have {left}"
            )
        token = _Token()
        slot.written = True
        slot.pending.append(_Work(frozenset([token]), frozenset(), step.place))
        self.things[step.token] = token

    def _touch(self, step: Touch) -> None:
        slot = self._slot(step.slot, step.place)
        if slot.side != step.side:
            raise Refused(step.place, f"uses as {step.side} a slot of ring '{slot.ring}' opened as {slot.side}")
        if step.into is not None:
            slot.into.add(step.into)

    def _done(self, step: Done) -> None:
        slot = self._slot(step.slot, step.place)
        if slot.side != "producer":
            raise Refused(step.place, f"fills a slot of ring '{slot.ring}' opened to read, at {_at(slot)}")
        if slot.outside:
            raise Refused(step.place, f"fills, in a loop, a slot of ring '{slot.ring}' opened before it")
        if step.whole and slot.written:
            raise Refused(step.place, f"may write twice into the slot of ring '{slot.ring}' opened at {_at(slot)}")
        slot.written = True

    def _read(self, step: Read) -> None:
        slot = self._slot(step.slot, step.place)
        if slot.side != "consumer":
            raise Refused(step.place, f"reads a slot of ring '{slot.ring}' opened to fill, at {_at(slot)}")
        slot.read = True

    def _product(self, step: Product) -> None:
        token, total = _Token(), _Sums(self.depth, self._sums(step.sums, step.place))
        work = _Work(frozenset([token]), frozenset([total]), step.place)
        total.work.append(work)
        for value in step.slots:
            slot = self._slot(value, step.place)
            if slot.side != "consumer":
                raise Refused(step.place, f"reads a slot of ring '{slot.ring}' opened to fill, at {_at(slot)}")
            slot.pending.append(work)
        self.things[step.total], self.things[step.token] = total, token

    def _settle(self, step: Settle) -> None:
        for sums in self._sums(step.sums, step.place).chain():
            if sums.settled or sums.depth < self.depth:  # a loop that may have no turn settles nothing from before it
                break
            sums.settled = True
            for work in sums.work:
                work.done = True

    def _branch(self, step: Branch) -> None:
        if not any(_matters(step) for step in step.then + step.otherwise) and not step.results:
            return
        if step.condition is None:
            touched = named(step.ring for step in opens(step.then + step.otherwise))
            raise Refused(step.place, f"decides about {touched} by a value that agents may not know alike")
        taken = self.decided[step.condition]
        self.run(step.then if taken else step.otherwise)
        for yes, no, result in step.results:
            self.things[result] = self._thing(yes if taken else no, step.place)

    def _loop(self, step: Loop) -> None:
        if not any(_matters(inner) for inner in step.body) and not step.carried:
            return
        if step.trips is not None:
            for _ in range(step.trips):
                self._bind([(c.argument, c.init) for c in step.carried], step.place)
                self.run(step.body)
                step = Loop(step.bounds, step.trips, step.body, _next(step.carried), step.place)
            self._bind([(c.result, c.init) for c in step.carried], step.place)
        elif step.bounds is None:
            touched = named(step.ring for step in opens(step.body))
            raise Refused(step.place, f"touches {touched} in a loop whose trip count agents may not know alike")
        else:
            self._unknown_loop(step, step.bounds)

    def _unknown_loop(self, step: Loop, bounds: str) -> None:
        inits = [self._thing(c.init, step.place) for c in step.carried]
        before = {key: list(queue) for key, queue in self.queues.items() if queue}
        nodes, things = self.nodes, self.things
        families = {slot: _family(slot, inits) for queue in before.values() for slot in queue}
        for slot, family in families.items():
            if slot not in inits:
                families[slot] = family - {frozenset()}
        for init in inits:
            if isinstance(init, _Slot):
                if init.gone:
                    raise Refused(step.place, f"carries a slot of ring '{init.ring}' that {init.gone}")
                init.gone = f"is carried by the loop at {step.place.line}"
        self.depth += 1
        while True:
            self.nodes, self.things = [], dict(things)
            arguments, stands_for = self._turn(before, inits, families, step.place)
            for c, argument in zip(step.carried, arguments, strict=True):
                self.things[c.argument] = argument
            self.run(step.body)
            for slot, stand_in in stands_for.items():
                slot.read = slot.read or stand_in.read
                slot.into |= stand_in.into
            yields = [self._thing(c.yielded, step.place) for c in step.carried]
            found = self._after_turn(before, inits, yields, stands_for, step)
            grown = {slot: _least(family | found[slot]) for slot, family in families.items()}
            if grown == families:
                break
            families = grown
        self.depth -= 1
        body, self.nodes, self.things = tuple(self.nodes), nodes, things
        if body:
            self.nodes.append(Turns(bounds, body, step.place))
        results, _ = self._turn(before, inits, families, None)
        for c, result in zip(step.carried, results, strict=True):
            self.things[c.result] = result

    def _turn(
        self,
        before: dict[tuple[str, Side], list[_Slot]],
        inits: list[_Thing],
        families: dict[_Slot, _Family],
        loop: Place | None,
    ) -> tuple[list[_Thing], dict[_Slot, _Slot]]:
        """New things for what the loop carries and for the slots from outside, as they are at the head of a turn of the
        `loop`. Without one: as they are behind it, where slots from outside are again what they were before. The second
        result says which slot stands for which."""
        arguments: list[_Thing] = [_Sums(self.depth) if isinstance(init, _Sums) else _Token() for init in inits]
        stands_for: dict[_Slot, _Slot] = {}
        places = {slot: slot.pending[-1].place if slot.pending else slot.place for slot in families}
        for key, queue in before.items():
            self.queues[key] = []
            for slot in queue:
                kept = [work for work in slot.pending if not any(work.covered_by(init) for init in inits)]
                if slot in inits:
                    new = _Slot(slot.ring, slot.side, slot.place, written=slot.written)
                elif loop is None:
                    new = slot
                    new.pending = kept
                else:
                    new = _Slot(slot.ring, slot.side, slot.place, list(kept), slot.written, outside=loop, kept=kept)
                for positions in families[slot]:
                    covers = [arguments[i] for i in positions]
                    tokens = frozenset(thing for thing in covers if isinstance(thing, _Token))
                    sums = frozenset(thing for thing in covers if isinstance(thing, _Sums))
                    work = _Work(tokens, sums, places[slot])
                    for total in sums:
                        total.work.append(work)
                    new.pending.append(work)
                stands_for[slot] = new
                self.queues[key].append(new)
        for i, init in enumerate(inits):
            if isinstance(init, _Slot):
                arguments[i] = stands_for[init]
        for value, thing in list(self.things.items()):
            if isinstance(thing, _Slot) and thing in stands_for and thing not in inits:
                self.things[value] = stands_for[thing]
        return arguments, stands_for

    def _after_turn(
        self,
        before: dict[tuple[str, Side], list[_Slot]],
        inits: list[_Thing],
        yields: list[_Thing],
        stands_for: dict[_Slot, _Slot],
        step: Loop,
    ) -> dict[_Slot, _Family]:
        """Compares the queues behind a turn with those at its head; gives the families of the pending work."""
        found: dict[_Slot, _Family] = {}
        for key in sorted(before.keys() | self.queues.keys()):
            head, tail = before.get(key, []), self.queues.get(key, [])
            if len(head) != len(tail):
                ring = (head + tail)[0].ring
                raise Refused(
                    step.place,
                    f"has {len(head)} open slots of ring '{ring}' before a turn, {len(tail)} behind it",
                )
            for old, new in zip(head, tail, strict=True):
                wanted = yields[inits.index(old)] if old in inits else stands_for[old]
                if new is not wanted or new.written != old.written:
                    raise Refused(
                        step.place,
                        f"does not hand the slot of ring '{old.ring}' opened at {_at(new)} on to the next turn in the "
                        f"place of the one opened at {_at(old)}",
                    )
                found[old] = _family(new, yields, new.kept)
        for init, yielded in zip(inits, yields, strict=True):
            if isinstance(init, _Slot) and (not isinstance(yielded, _Slot) or yielded.ring != init.ring):
                raise Refused(step.place, f"hands on something else in the place of a slot of ring '{init.ring}'")
        return found

    def _bind(self, pairs: list[tuple[Value, Value]], place: Place) -> None:
        things = [self._thing(value, place) for _, value in pairs]
        for (name, _), thing in zip(pairs, things, strict=True):
            self.things[name] = thing

    def _thing(self, value: Value, place: Place) -> _Thing:
        if value not in self.things:
            raise Refused(place, "uses a slot, a token or sums of which it is not known where they come from")
        return self.things[value]

    def _slot(self, value: Value, place: Place) -> _Slot:
        slot = self._thing(value, place)
        if not isinstance(slot, _Slot):
            raise Refused(place, "wants a slot")
        if slot.gone:
            raise Refused(place, f"uses a slot of ring '{slot.ring}', opened at {_at(slot)}, that {slot.gone}")
        return slot

    def _token(self, value: Value, place: Place) -> _Token:
        token = self._thing(value, place)
        if not isinstance(token, _Token):
            raise Refused(place, "wants a token")
        return token

    def _sums(self, value: Value, place: Place) -> _Sums:
        sums = self._thing(value, place)
        if not isinstance(sums, _Sums):
            raise Refused(place, "wants sums")
        return sums


def _matters(step: Step) -> bool:
    if isinstance(step, Loop):
        return bool(step.carried) or any(_matters(inner) for inner in step.body)
    if isinstance(step, Branch):
        return bool(step.results) or any(_matters(inner) for inner in step.then + step.otherwise)
    return not isinstance(step, Use)


def _next(carried: tuple[Carried, ...]) -> tuple[Carried, ...]:
    """What a turn begins with after another one."""
    return tuple(Carried(c.yielded, c.argument, c.yielded, c.result) for c in carried)


def _family(slot: _Slot, things: list[_Thing], without: Sequence[_Work] = ()) -> _Family:
    """For each piece of pending work, but those `without`, the positions of the things that cover it."""
    pending = [work for work in slot.pending if not work.done and work not in without]
    sets = [frozenset(i for i, thing in enumerate(things) if work.covered_by(thing)) for work in pending]
    return _least(frozenset(sets))


def _least(family: _Family) -> _Family:
    """Without sets that contain another: work that is covered by less stands for them."""
    return frozenset(one for one in family if not any(other < one for other in family))


def _on(slot: _Slot, token: _Token) -> bool:
    return any(work.covered_by(token) for work in slot.pending)


def _at(slot: _Slot) -> str:
    return slot.place.line
