"""What the values of an agent stand for while schedule_slots.py goes through its steps: slots, tokens and sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from .schedule import Place, Side


@dataclass(eq=False)
class Sums:
    """Sums as one value: those before, and the last product. `depth` is how many loops of unknown trip counts stand
    around it."""

    depth: int
    before: Sums | None = None
    work: list[Work] = field(default_factory=list)
    settled: bool = False

    def chain(self) -> Iterator[Sums]:
        now: Sums | None = self
        while now is not None:
            yield now
            now = now.before


@dataclass(eq=False)
class Token:
    """The completion of one piece of work, or of those that a loop carries at one position. `depth` is how many loops
    of unknown trip counts stand around the work; None where it is not one piece."""

    depth: int | None = None


@dataclass(eq=False)
class Work:
    """Pending asynchronous work, and what covers it. For a product also sums that begin with one of `sums`."""

    tokens: frozenset[Token]
    sums: frozenset[Sums]
    place: Place
    done: bool = False

    def covered_by(self, thing: Thing) -> bool:
        if isinstance(thing, Token):
            return thing in self.tokens
        return isinstance(thing, Sums) and any(sums in self.sums for sums in thing.chain())


@dataclass(eq=False)
class Slot:
    ring: str
    side: Side
    place: Place
    pending: list[Work] = field(default_factory=list)
    written: bool = False
    parts: list[tuple[int, int]] = field(default_factory=list)  # elements that copies write, where they share the slot
    missing: int = 0  # elements that none of those writes
    read: bool = False  # by threads, for as long as it is open
    into: set[str] = field(default_factory=set)  # rings that it is copied to, whose copies its close waits for
    gone: str = ""  # why it can be used no more
    outside: Place | None = None  # the loop that it was opened before, and that does not carry it
    kept: list[Work] = field(default_factory=list)  # of `pending`, what that loop has nothing to do with


Thing: TypeAlias = Slot | Token | Sums


def line(slot: Slot) -> str:
    return slot.place.line
