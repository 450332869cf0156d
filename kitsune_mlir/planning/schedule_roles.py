"""The proof of a scheduled kernel whose CTAs differ in what they do: each role by itself, and the rings in L2 between
them. `docs/proof.md` says why that is enough ("Roles").

In a turn of its loop over tiles a role opens the tile's slot of a ring, fills each of its columns once or copies out of
it, and closes it. Wherever a wait leads, tile
numbers do not grow, and from a role to one that fills its rings they stay equal: so if no role fills, by way of others,
a ring that it takes itself, nobody waits in a circle, however few slots there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .schedule import Fault, Place, Ring, Schedule, Side
from .target import Target

DOES: dict[Side, str] = {"producer": "fills", "consumer": "takes"}


@dataclass(frozen=True)
class Piece:
    """Columns of a slot that each copy of an agent stores in its rows of it, or copies out of it: from one to before
    another, or some that are not known."""

    place: Place
    columns: tuple[int, int] | None


@dataclass(frozen=True)
class End:
    """Where a role opens slots of a ring between roles, of so many columns, in an agent of so many copies. `in_turn`:
    in each turn of the agent's loop over tiles once, if no other end of the role does, and it closes them in that turn.
    `pieces` are what is copied into them, or out of them, in a turn."""

    ring: str
    side: Side
    place: Place
    in_turn: bool
    copies: int = 1
    columns: int = 1
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True)
class Role:
    """What `ctas` CTAs do. In its schedule a ring between roles stands as if the agent at this end were at the other
    end too. `tiles` is a text that is equal for two roles only if they have the same tiles."""

    schedule: Schedule
    ctas: int
    tiles: str
    ends: tuple[End, ...]


@dataclass(frozen=True)
class Roles:
    """A kernel of several roles, and the rings between them."""

    name: str
    rings: tuple[Ring, ...]
    roles: tuple[Role, ...]
    place: Place = Place()


def faults(kernel: Roles, target: Target) -> Iterator[Fault]:
    """What is wrong between roles; each is proven by itself elsewhere."""
    first = kernel.roles[0]
    for role in kernel.roles[1:]:
        if role.tiles != first.tiles:
            yield Fault(role.schedule.place, f"deals out other tiles than role '{first.schedule.name}'")
    for role in kernel.roles:
        yield from _ends(role)
    for ring in kernel.rings:
        yield from _users(kernel, ring)
    yield from _circles(kernel)
    if (ctas := sum(role.ctas for role in kernel.roles)) > target.sms:
        yield Fault(
            kernel.place, f"has {ctas} CTAs, which wait for one another, but {target.name} has {target.sms} SMs"
        )


def _ends(role: Role) -> Iterator[Fault]:
    seen = set[tuple[str, Side]]()
    for end in role.ends:
        if not end.in_turn:
            yield Fault(
                end.place,
                f"{DOES[end.side]} ring '{end.ring}', between roles, elsewhere than in a turn of the loop over tiles, "
                "which opens and closes the tile's slot",
            )
        if end.side == "consumer" and end.copies > 1:
            yield Fault(end.place, f"takes slots of ring '{end.ring}' in {end.copies} copies of an agent; wants one")
        if not end.pieces:
            way = "into" if end.side == "producer" else "out of"
            yield Fault(end.place, f"{DOES[end.side]} slots of ring '{end.ring}', {way} which nothing is copied")
        elif end.side == "producer":
            yield from _filled(end)
        if (end.ring, end.side) in seen:
            yield Fault(end.place, f"{DOES[end.side]} the slot of ring '{end.ring}' again that is the turn's")
        seen.add((end.ring, end.side))


def _filled(end: End) -> Iterator[Fault]:
    """Each column of a slot is stored once: its rows are the copies', and each copy does the same."""
    left, following = 0, end.columns  # columns that no piece has
    for piece in sorted(end.pieces, key=lambda piece: piece.columns or (-1, -1)):
        if piece.columns is None:
            yield Fault(
                piece.place,
                f"fills columns of a slot of ring '{end.ring}' that are not known: they may be constants, or counted "
                "by loops of constant bounds, in no branch of the turn",
            )
            return
        first, last = piece.columns
        if not 0 <= first < end.columns:
            yield Fault(piece.place, f"fills column {first} of a slot of ring '{end.ring}', which has {end.columns}")
            return
        if first < left:
            again = f"columns {first} to {min(left, last) - 1} of a slot of ring '{end.ring}'"
            yield Fault(piece.place, f"fills {again}, which are filled already")
            return
        if left < first:
            following = first
            break
        left = last
    if left < end.columns:
        missing = f"columns {left} to {following - 1} of {end.columns}"
        yield Fault(end.place, f"fills slots of ring '{end.ring}' without {missing}")


def _users(kernel: Roles, ring: Ring) -> Iterator[Fault]:
    """One role fills a ring, one or more take it."""
    users = {side: [role for role in kernel.roles if _uses(role, ring.name, side)] for side in DOES}
    for side, does in DOES.items():
        if not users[side]:
            yield Fault(ring.place, f"has ring '{ring.name}', which no role {does}")
    for role in users["producer"][1:]:
        other = users["producer"][0].schedule.name
        place = next(end.place for end in role.ends if (end.ring, end.side) == (ring.name, "producer"))
        yield Fault(place, f"fills ring '{ring.name}' in role '{role.schedule.name}', where '{other}' fills it too")


def _uses(role: Role, ring: str, side: Side) -> bool:
    return any((end.ring, end.side) == (ring, side) for end in role.ends)


def _circles(kernel: Roles) -> Iterator[Fault]:
    """A role that takes, by way of others, what it fills."""
    before = {
        role.schedule.name: {
            other.schedule.name
            for other in kernel.roles
            for end in role.ends
            if end.side == "consumer" and _uses(other, end.ring, "producer")
        }
        for role in kernel.roles
    }
    left = dict(before)
    while ready := [name for name, waits in left.items() if not waits & left.keys()]:
        for name in ready:
            del left[name]
    if not left:
        return
    path = [min(left)]
    while path[-1] not in path[:-1]:
        path.append(min(before[path[-1]] & left.keys()))
    cycle = path[path.index(path[-1]) :]
    place = next(role.schedule.place for role in kernel.roles if role.schedule.name == cycle[0])
    yield Fault(
        place, "closes a cycle of roles: " + ", which takes what ".join(f"'{name}'" for name in cycle) + " fills"
    )
