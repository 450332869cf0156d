"""Rings between roles as the interpreter has them: a slot is that of a tile, which the copies of one role's agent fill
and agents of other roles copy from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kitsune_mlir.dialects import schedule as dialect
from kitsune_mlir.mlir import ir

from . import numeric, poison
from .rings import Copy, ScheduleFault

_Step = Callable[[Any], Iterator[bool] | None]


class Between:
    """A ring in global memory, of which so many agents take every tile."""

    def __init__(self, op: dialect.AllocRingOp):
        self.name, self.depth = op.label, op.slots
        self.source = f"numbers of ring '{self.name}' that nobody filled in this tile's turn"
        self.data = [
            numeric.empty(list(op.tile.shape), numeric.element(op.tile), self.source) for _ in range(self.depth)
        ]
        self.takers = sum(use.owner.operation.name == dialect.WaitOp.OPERATION_NAME for use in op.results[0].uses)
        self.makers = 1  # copies of the agent that fills it
        self.filled: Counter[int] = Counter()  # by tile, the copies that have done so
        self.taken: Counter[int] = Counter()  # the agents that have

    def is_empty(self, tile: int) -> bool:
        return tile < self.depth or self.taken[tile - self.depth] == self.takers

    def is_full(self, tile: int) -> bool:
        return self.filled[tile] == self.makers

    def check_end(self) -> None:
        if left := [tile for tile in self.filled if self.taken[tile] != self.takers]:
            raise ScheduleFault(f"ring '{self.name}' is left with tile {left[0]}, which not all roles took")


@dataclass(eq=False)
class TileSlot:
    """The slot of a tile as a copy of an agent has opened it."""

    ring: Between
    side: str
    tile: int
    rows: slice  # those that the copy has
    closed: str = ""
    filled: np.ndarray | None = None  # which elements
    copies: list[Copy] = field(default_factory=list)  # out of it

    @property
    def buffer(self) -> np.ndarray:
        return self.ring.data[self.tile % self.ring.depth][self.rows]

    def check_open(self, where: str, side: str) -> None:
        if self.closed or self.side != side:
            state = f"closed at {self.closed}" if self.closed else f"opened as {self.side}"
            raise ScheduleFault(f"{where} uses as {side} a slot of ring '{self.ring.name}' that it {state}")


def opens(name: str, where: str, ring: int, slot: int) -> _Step:
    """`kitsune.acquire` or `kitsune.wait`; `ring` and `slot` are the keys of frames' values."""
    fills = name == dialect.AcquireOp.OPERATION_NAME

    def step(frame: Any) -> Iterator[bool]:
        found: Between = frame.values[ring]
        ready, what = (found.is_empty, "an empty") if fills else (found.is_full, "the full")
        while not ready(frame.tile):
            frame.waits = f"{where}: waits for {what} slot of tile {frame.tile} in ring '{found.name}'"
            yield False
        frame.waits = ""
        height = len(found.data[0])
        rows = slice(0, height)
        if fills:
            found.makers, each = frame.copies, height // frame.copies
            rows = slice(frame.number * each, (frame.number + 1) * each)
        made = TileSlot(found, "producer" if fills else "consumer", frame.tile, rows)
        if fills:
            made.buffer[...] = poison.value(made.buffer.dtype, found.source)
            made.filled = np.zeros(made.buffer.shape, bool)
        frame.values[slot] = made
        yield True

    return step


def closes(where: str, slot: TileSlot, frame: Any) -> Iterator[bool]:
    """`kitsune.commit` or `kitsune.release` of such a slot."""
    slot.check_open(frame.at(where), slot.side)
    while any(not copy.landed for copy in slot.copies):
        frame.waits = f"{where}: waits for copies out of ring '{slot.ring.name}'"
        yield False
    frame.waits = ""
    if slot.filled is not None and not slot.filled.all():
        raise ScheduleFault(f"{frame.at(where)} commits a slot of ring '{slot.ring.name}' that is not filled whole")
    slot.closed = where
    (slot.ring.filled if slot.side == "producer" else slot.ring.taken)[slot.tile] += 1
    yield True


def fill(op: ir.Operation, where: str) -> _Step:
    """`kitsune.fill`."""
    slot, tile, column = (hash(value) for value in op.operands)

    def step(frame: Any) -> None:
        into: TileSlot = frame.values[slot]
        into.check_open(frame.at(where), "producer")
        first, new = frame.values[column], frame.values[tile]
        place = slice(first, first + new.shape[1])
        if into.filled[:, place].any():
            raise ScheduleFault(f"{frame.at(where)} fills elements of a slot of ring '{into.ring.name}' again")
        columns = into.buffer[:, place]
        columns[...] = new[:, : columns.shape[1]]
        into.filled[:, place] = True

    return step
