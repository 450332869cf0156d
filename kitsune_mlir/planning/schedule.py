"""A scheduled kernel as plain data: rings, and agents whose bodies are trees of ring events. What the proof reasons
about. No MLIR.

Values are numbers: a slot, a token or sums, whatever the IR calls so. Equal numbers are one value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

Value: TypeAlias = int
Side: TypeAlias = Literal["producer", "consumer"]
Kind: TypeAlias = Literal["acquire", "commit", "wait", "release"]


@dataclass(frozen=True)
class Place:
    """Where a step stands: which operation of the kernel it is, and the model's line."""

    op: int = 0
    line: str = "unknown location"


@dataclass(frozen=True)
class Ring:
    """With `own` each copy of an agent fills and takes a part of every slot for itself: a ring of its own. One that is
    `between` roles takes no shared memory."""

    name: str
    slots: int
    slot_bytes: int = 0
    place: Place = Place()
    own: bool = False
    between: bool = False


@dataclass(frozen=True)
class Open:
    """`acquire` (the producer's) or `wait` (a consumer's): the next slot of a ring, for so many rows of its tile."""

    ring: str
    side: Side
    slot: Value
    place: Place = Place()
    rows: int = 0


@dataclass(frozen=True)
class Close:
    """`commit` or `release`: the slot is given on once the work of these tokens is done."""

    side: Side
    slot: Value
    tokens: tuple[Value, ...] = ()
    place: Place = Place()


@dataclass(frozen=True)
class Copy:
    """Begins to write a slot: all of it, or the elements of `part`: first, end, and how many the slot has. With `last`
    a box that reaches behind a tensor's last row has so many rows alone, and the tensor at most so many left there."""

    slot: Value
    token: Value
    place: Place = Place()
    part: tuple[int, int, int] | None = None
    last: tuple[int, int] | None = None


@dataclass(frozen=True)
class Done:
    """Does, at once, what a slot that holds nothing stands for: who waits for it knows that it was done. Or, `whole`,
    stores all that the slot holds."""

    slot: Value
    place: Place = Place()
    whole: bool = False


@dataclass(frozen=True)
class Read:
    """Reads a slot from here on, for as long as it is open."""

    slot: Value
    place: Place = Place()


@dataclass(frozen=True)
class Touch:
    """Loads out of a slot, at once; or copies out of it or into it, which its close waits for by itself: out of it
    `into` a slot of a ring, or into it from registers."""

    slot: Value
    side: Side
    place: Place = Place()
    into: str | None = None


@dataclass(frozen=True)
class Use:
    """Uses elements of tiles, of which some may be read from slots."""

    place: Place = Place()


@dataclass(frozen=True)
class Sums:
    """New sums, in which no product is in flight."""

    sums: Value
    place: Place = Place()


@dataclass(frozen=True)
class Product:
    """Begins to read slots, and to add to sums; `total` is the sums with it in flight."""

    sums: Value
    slots: tuple[Value, ...]
    total: Value
    token: Value
    place: Place = Place()


@dataclass(frozen=True)
class Settle:
    """Waits for all products of the sums."""

    sums: Value
    place: Place = Place()


@dataclass(frozen=True)
class Meet:
    """Waits for the same copy of the agent in the other CTAs of the cluster."""

    place: Place = Place()


@dataclass(frozen=True)
class Carried:
    """A slot, a token or sums that a loop takes round: what it begins with, its name in a turn, what the turn gives the
    next one, and what is left behind the loop."""

    init: Value
    argument: Value
    yielded: Value
    result: Value


@dataclass(frozen=True)
class Loop:
    """`bounds` is a text that is equal for two loops only if they have equally many turns, in the same turn of the
    loops around them, whenever the kernel runs; None if agents cannot know that. `trips` is the number of turns where
    it is a constant."""

    bounds: str | None
    trips: int | None
    body: tuple[Step, ...]
    carried: tuple[Carried, ...] = ()
    place: Place = Place()


@dataclass(frozen=True)
class Branch:
    """One of two bodies. `condition` is a text that is equal for two branches only if they decide alike, everywhere and
    in every turn; None if that is not known. `results` are slots, tokens or sums: from either body, and their name
    behind."""

    condition: str | None
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...] = ()
    results: tuple[tuple[Value, Value, Value], ...] = ()
    place: Place = Place()


Step: TypeAlias = Open | Close | Copy | Done | Read | Touch | Use | Sums | Product | Settle | Meet | Loop | Branch


@dataclass(frozen=True)
class Agent:
    """`copies` times `warps` warps that all run the same steps."""

    name: str
    steps: tuple[Step, ...]
    copies: int = 1
    warps: int = 1
    registers: int = 24
    place: Place = Place()


@dataclass(frozen=True)
class Schedule:
    name: str
    rings: tuple[Ring, ...]
    agents: tuple[Agent, ...]
    place: Place = Place()
    ctas: int = 1  # that an SM is to hold at once
    outbox_bytes: int = 0  # shared memory of the boxes through which tiles leave, and of what CTAs send each other
    tiles: str | None = None  # of a role: the bounds of loops over its tiles, which count as one loop


@dataclass(frozen=True)
class Event:
    """One of an agent's four kinds of ring operation; of those that open a slot the rows that they open it for."""

    ring: str
    kind: Kind
    place: Place
    rows: int = 0


@dataclass(frozen=True)
class Turns:
    """A loop of unknown trip count in which an agent touches rings."""

    bounds: str
    body: tuple[Node, ...]
    place: Place

    def rings(self) -> set[str]:
        """The rings that are touched in it, at any depth."""
        found: set[str] = set()
        for node in self.body:
            found |= {node.ring} if isinstance(node, Event) else node.rings()
        return found


Node: TypeAlias = Event | Turns


@dataclass(frozen=True)
class Fault:
    """Why a schedule must not be launched: at which operation, and in a sentence whose subject is that operation."""

    place: Place
    message: str

    def __str__(self) -> str:
        return f"{self.place.line}: {self.message}"


def named(rings: Iterable[str]) -> str:
    """Rings, for people."""
    names = sorted(f"'{name}'" for name in set(rings))
    return f"ring{'s' * (len(names) > 1)} {' and '.join(names)}" if names else "slots, tokens or sums"


class Refused(Exception):
    """Ends a part of the proof at its first fault."""

    def __init__(self, place: Place, message: str):
        self.fault = Fault(place, message)
        super().__init__(str(self.fault))


def opens(steps: tuple[Step, ...]) -> Iterator[Open]:
    """All that open slots, at any depth."""
    for step in steps:
        if isinstance(step, Open):
            yield step
        elif isinstance(step, Loop):
            yield from opens(step.body)
        elif isinstance(step, Branch):
            yield from opens(step.then + step.otherwise)


def conditions(steps: tuple[Step, ...]) -> Iterator[Branch]:
    """All branches, at any depth."""
    for step in steps:
        if isinstance(step, Branch):
            yield step
            yield from conditions(step.then + step.otherwise)
        elif isinstance(step, Loop):
            yield from conditions(step.body)
