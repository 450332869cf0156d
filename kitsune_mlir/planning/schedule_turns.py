"""Loops of unknown trip counts, which schedule_slots.py runs on what holds at the head of every turn:

- the queues of open slots have the length that they had before the loop, and each place in them holds what the loop
  carries at a certain position, or a slot from outside, which no turn closes;
- of each slot in them, every piece of pending work is covered by all of what the loop carries at the positions of one
  set out of a *family* of sets.

The first is compared at the end of the turn. The second is the least fixed point: the family before the loop and the
one after a turn, united, until it grows no more; there are finitely many. So both hold at the head of every turn and
behind the loop, whatever the trip count, 0 included.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from .schedule import Loop, Place, Refused, Side, Value
from .schedule_values import Slot, Sums, Thing, Token, Work, line

Family: TypeAlias = frozenset[frozenset[int]]


def turn(
    queues: dict[tuple[str, Side], list[Slot]],
    things: dict[Value, Thing],
    depth: int,
    before: dict[tuple[str, Side], list[Slot]],
    inits: list[Thing],
    families: dict[Slot, Family],
    loop: Place | None,
) -> tuple[list[Thing], dict[Slot, Slot]]:
    """New things for what the loop carries and for the slots from outside, as they are at the head of a turn of the
    `loop`. Without one: as they are behind it, where slots from outside are again what they were before. The second
    result says which slot stands for which."""
    arguments: list[Thing] = [Sums(depth) if isinstance(init, Sums) else Token() for init in inits]
    stands_for: dict[Slot, Slot] = {}
    places = {slot: slot.pending[-1].place if slot.pending else slot.place for slot in families}
    for key, queue in before.items():
        queues[key] = []
        for slot in queue:
            kept = [work for work in slot.pending if not any(work.covered_by(init) for init in inits)]
            if slot in inits:
                new = Slot(slot.ring, slot.side, slot.place, written=slot.written)
            elif loop is None:
                new = slot
                new.pending = kept
            else:
                new = Slot(slot.ring, slot.side, slot.place, list(kept), slot.written, outside=loop, kept=kept)
            for positions in families[slot]:
                covers = [arguments[i] for i in positions]
                tokens = frozenset(thing for thing in covers if isinstance(thing, Token))
                sums = frozenset(thing for thing in covers if isinstance(thing, Sums))
                work = Work(tokens, sums, places[slot])
                for total in sums:
                    total.work.append(work)
                new.pending.append(work)
            stands_for[slot] = new
            queues[key].append(new)
    for i, init in enumerate(inits):
        if isinstance(init, Slot):
            arguments[i] = stands_for[init]
    for value, thing in list(things.items()):
        if isinstance(thing, Slot) and thing in stands_for and thing not in inits:
            things[value] = stands_for[thing]
    return arguments, stands_for


def after_turn(
    queues: dict[tuple[str, Side], list[Slot]],
    before: dict[tuple[str, Side], list[Slot]],
    inits: list[Thing],
    yields: list[Thing],
    stands_for: dict[Slot, Slot],
    step: Loop,
) -> dict[Slot, Family]:
    """Compares the queues behind a turn with those at its head; gives the families of the pending work."""
    found: dict[Slot, Family] = {}
    for key in sorted(before.keys() | queues.keys()):
        head, tail = before.get(key, []), queues.get(key, [])
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
                    f"does not hand the slot of ring '{old.ring}' opened at {line(new)} on to the next turn in the "
                    f"place of the one opened at {line(old)}",
                )
            found[old] = family(new, yields, new.kept)
    for init, yielded in zip(inits, yields, strict=True):
        if isinstance(init, Slot) and (not isinstance(yielded, Slot) or yielded.ring != init.ring):
            raise Refused(step.place, f"hands on something else in the place of a slot of ring '{init.ring}'")
    return found


def family(slot: Slot, things: list[Thing], without: Sequence[Work] = ()) -> Family:
    """For each piece of pending work, but those `without`, the positions of the things that cover it."""
    pending = [work for work in slot.pending if not work.done and work not in without]
    sets = [frozenset(i for i, thing in enumerate(things) if work.covered_by(thing)) for work in pending]
    return least(frozenset(sets))


def least(family: Family) -> Family:
    """Without sets that contain another: work that is covered by less stands for them."""
    return frozenset(one for one in family if not any(other < one for other in family))
