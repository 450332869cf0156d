"""The life of every slot, token and sum of one agent: each slot is closed once, in order, by one who knows that its
readers and writers are done. Gives the agent's ring events, loops of a known number of turns unrolled.

Steps are run once on symbols. A *slot* is open from its `Open` to its `Close`; the open slots of a ring stand in a
queue, of which only the first may be closed. A *piece of work* (a copy, a product) is pending on the slots it touches
until one of the things that *cover* it is waited for: its token by the slot's own close, or sums that contain it by a
`Settle`. schedule_turns.py says how loops of unknown trip counts are run.
"""

from __future__ import annotations

from collections.abc import Mapping

from . import schedule_turns
from . import schedule_values as values
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


class _Walk:
    def __init__(self, agent: Agent, decided: Mapping[str, bool]):
        self.agent, self.decided = agent, decided
        self.things: dict[Value, values.Thing] = {}
        self.queues: dict[tuple[str, Side], list[values.Slot]] = {}
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
                    self.things[step.sums] = values.Sums(self.depth)
                case Product():
                    self._product(step)
                case Settle():
                    self._settle(step)
                case Branch():
                    self._branch(step)
                case Loop():
                    self._loop(step)

    def _open(self, step: Open) -> None:
        slot = values.Slot(step.ring, step.side, step.place)
        self.things[step.slot] = slot
        self.queues.setdefault((step.ring, step.side), []).append(slot)
        self.nodes.append(Event(step.ring, OPENS[step.side], step.place, step.rows))

    def _close(self, step: Close) -> None:
        slot = self._slot(step.slot, step.place)
        ring, queue = slot.ring, self.queues[slot.ring, slot.side]
        if slot.side != step.side:
            raise Refused(
                step.place,
                f"closes as {step.side} a slot of ring '{ring}' opened as {slot.side} at {values.line(slot)}",
            )
        if slot.outside:
            raise Refused(
                step.place,
                f"closes, in a loop, a slot of ring '{ring}' that was opened before the loop at {slot.outside.line}; "
                "the loop must carry it",
            )
        if queue[0] is not slot:
            raise Refused(
                step.place,
                f"closes a slot of ring '{ring}' before the one that was opened earlier, at {values.line(queue[0])}",
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
                        f"{values.line(other)} is filled there, which it would wait for",
                    )
        if slot.read:
            if self.depth:
                raise Refused(step.place, f"closes, in a loop, a slot of ring '{ring}' that tiles are read from")
            self.ends = ring
        if step.side == "producer" and not all(_is_on(slot, token) for token in tokens):
            raise Refused(step.place, f"commits a slot of ring '{ring}' with the token of work on another slot")
        for work in slot.pending:
            if not work.done and not any(work.covered_by(token) for token in tokens):
                what = "copy into it" if step.side == "producer" else "product that reads it"
                raise Refused(
                    step.place,
                    f"closes a slot of ring '{ring}' without the token of the {what} at {work.place.line}, "
                    "which may still be going on",
                )
        if step.side == "consumer":
            self._wait_for(tokens)
        queue.pop(0)
        slot.gone = f"was closed at {step.place.line}"
        self.nodes.append(Event(ring, CLOSES[step.side], step.place))

    def _wait_for(self, tokens: list[values.Token]) -> None:
        """What an agent has waited for is done for the other slots that it reads, too. Of a loop that may have no turn
        nothing follows for work from before it."""
        waited = [token for token in tokens if token.depth == self.depth]
        for queue in self.queues.values():
            for work in (work for slot in queue for work in slot.pending):
                work.done |= any(token in work.tokens for token in waited)

    def _copy(self, step: Copy) -> None:
        slot = self._slot(step.slot, step.place)
        if slot.side != "producer":
            raise Refused(step.place, f"writes to a slot of ring '{slot.ring}' opened to read, at {values.line(slot)}")
        if step.part is not None and not slot.outside:
            first, end, count = step.part
            if any(first < other_end and other < end for other, other_end in slot.parts):
                raise Refused(step.place, f"copies twice into elements of the slot of ring '{slot.ring}'")
            slot.parts.append((first, end))
            slot.missing = count - sum(end - first for first, end in slot.parts)
        elif slot.written or slot.outside:
            raise Refused(
                step.place, f"may copy twice into the slot of ring '{slot.ring}' opened at {values.line(slot)}"
            )
        if step.last is not None and step.last[0] < step.last[1]:
            rows, left = step.last
            raise Refused(
                step.place, f"copies {rows} last rows to a slot of ring '{slot.ring}' where the tensor may have {left}"
            )
        token = values.Token()
        slot.written = True
        slot.pending.append(values.Work(frozenset([token]), frozenset(), step.place))
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
            raise Refused(step.place, f"fills a slot of ring '{slot.ring}' opened to read, at {values.line(slot)}")
        if slot.outside:
            raise Refused(step.place, f"fills, in a loop, a slot of ring '{slot.ring}' opened before it")
        if step.whole and slot.written:
            raise Refused(
                step.place, f"may write twice into the slot of ring '{slot.ring}' opened at {values.line(slot)}"
            )
        slot.written = True

    def _read(self, step: Read) -> None:
        slot = self._slot(step.slot, step.place)
        if slot.side != "consumer":
            raise Refused(step.place, f"reads a slot of ring '{slot.ring}' opened to fill, at {values.line(slot)}")
        slot.read = True

    def _product(self, step: Product) -> None:
        token, total = values.Token(self.depth), values.Sums(self.depth, self._sums(step.sums, step.place))
        work = values.Work(frozenset([token]), frozenset([total]), step.place)
        total.work.append(work)
        for value in step.slots:
            slot = self._slot(value, step.place)
            if slot.side != "consumer":
                raise Refused(step.place, f"reads a slot of ring '{slot.ring}' opened to fill, at {values.line(slot)}")
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
        families = {slot: schedule_turns.family(slot, inits) for queue in before.values() for slot in queue}
        for slot, family in families.items():
            if slot not in inits:
                families[slot] = family - {frozenset()}
        for init in inits:
            if isinstance(init, values.Slot):
                if init.gone:
                    raise Refused(step.place, f"carries a slot of ring '{init.ring}' that {init.gone}")
                init.gone = f"is carried by the loop at {step.place.line}"
        self.depth += 1
        while True:
            self.nodes, self.things = [], dict(things)
            arguments, stands_for = schedule_turns.turn(
                self.queues, self.things, self.depth, before, inits, families, step.place
            )
            for c, argument in zip(step.carried, arguments, strict=True):
                self.things[c.argument] = argument
            self.run(step.body)
            for slot, stand_in in stands_for.items():
                slot.read = slot.read or stand_in.read
                slot.into |= stand_in.into
            yields = [self._thing(c.yielded, step.place) for c in step.carried]
            found = schedule_turns.after_turn(self.queues, before, inits, yields, stands_for, step)
            grown = {slot: schedule_turns.least(family | found[slot]) for slot, family in families.items()}
            if grown == families:
                break
            families = grown
        self.depth -= 1
        body, self.nodes, self.things = tuple(self.nodes), nodes, things
        if body:
            self.nodes.append(Turns(bounds, body, step.place))
        results, _ = schedule_turns.turn(self.queues, self.things, self.depth, before, inits, families, None)
        for c, result in zip(step.carried, results, strict=True):
            self.things[c.result] = result

    def _bind(self, pairs: list[tuple[Value, Value]], place: Place) -> None:
        things = [self._thing(value, place) for _, value in pairs]
        for (name, _), thing in zip(pairs, things, strict=True):
            self.things[name] = thing

    def _thing(self, value: Value, place: Place) -> values.Thing:
        if value not in self.things:
            raise Refused(place, "uses a slot, a token or sums of which it is not known where they come from")
        return self.things[value]

    def _slot(self, value: Value, place: Place) -> values.Slot:
        slot = self._thing(value, place)
        if not isinstance(slot, values.Slot):
            raise Refused(place, "wants a slot")
        if slot.gone:
            raise Refused(place, f"uses a slot of ring '{slot.ring}', opened at {values.line(slot)}, that {slot.gone}")
        return slot

    def _token(self, value: Value, place: Place) -> values.Token:
        token = self._thing(value, place)
        if not isinstance(token, values.Token):
            raise Refused(place, "wants a token")
        return token

    def _sums(self, value: Value, place: Place) -> values.Sums:
        sums = self._thing(value, place)
        if not isinstance(sums, values.Sums):
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


def _is_on(slot: values.Slot, token: values.Token) -> bool:
    return any(work.covered_by(token) for work in slot.pending)
