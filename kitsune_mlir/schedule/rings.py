"""Rings, and the asynchronous work on their slots, as the interpreter has them: with full numbers in place of parities,
and what is asked of whoever touches a slot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kitsune_mlir.dialects import schedule as dialect
from kitsune_mlir.mlir import location

from . import numeric, poison

_UPPER = -8192  # a tf32's bits of a word
_PAIRED = [0, 2, 4, 6, 1, 3, 5, 7]


class ScheduleFault(Exception):
    """A schedule did what no kernel may do. The message names the ring, the agent and the operation's line."""


@dataclass(eq=False)
class Copy:
    """A copy into a slot, which lands some time, and is read then where `box` says how."""

    slot: Slot
    box: np.ndarray | Callable[[], np.ndarray]
    elements: slice | None = None  # of a dense slot that it writes
    landed: bool = False

    def land(self) -> None:
        if self.landed:
            return
        self.landed = True
        box = self.box() if callable(self.box) else self.box
        self.slot.buffer[... if self.elements is None else (0, self.elements)] = box
        self.slot.ring.fill(self.slot)


@dataclass(eq=False)
class Product:
    """A product, which reads its slots some time; `value` is what the sums then are."""

    before: Product | None
    left: Slot | np.ndarray
    right: Slot
    rows: slice | list[int]
    where: str
    height: int = 0  # rows of the sums, of which those behind the left operand's have no value
    value: np.ndarray | None = None
    settled: bool = False
    awaited: bool = False  # by a release that was given its token
    start: np.ndarray | float = 0.0  # what the first of the sums is added to
    taken: Callable[[np.ndarray], np.ndarray] | None = None  # what is multiplied of the left operand; None: it itself
    columns: slice | list[int] | None = None  # the rows of the right operand that are multiplied; None: all
    turned: bool = False  # the right operand's columns do

    def finish(self) -> None:
        """Products of the same sums are done in order."""
        pending: list[Product] = []
        now: Product | None = self
        while now is not None and now.value is None:
            pending.append(now)
            now = now.before
        for product in reversed(pending):
            left = product.left if isinstance(product.left, np.ndarray) else product.left.read(product.where)
            left = left if product.taken is None else product.taken(left)
            right = product.right.read(product.where).astype(np.float64)
            right = right.T if product.turned else right[product.columns or slice(None)]
            value = left.astype(np.float64)[product.rows] @ right[:, : left.shape[1]].T
            if len(value) < product.height:
                none = poison.nan("rows of sums behind those that a product computes")
                value = np.pad(value, ((0, product.height - len(value)), (0, 0)), constant_values=none)
            product.value = value + (product.start if product.before is None else product.before.value)

    def settle(self) -> None:
        """Waits for this product and those before it."""
        self.finish()
        now: Product | None = self
        while now is not None and not now.settled:
            now.settled, now = True, now.before


@dataclass(eq=False)
class Slot:
    """A slot as one copy of an agent has opened it."""

    ring: Ring
    side: str
    number: int
    copy: int
    where: str  # it was opened
    closed: str = ""  # where
    committed: bool = False
    writers: list[Copy] = field(default_factory=list)
    after: list[Copy] = field(default_factory=list)
    readers: list[Product] = field(default_factory=list)

    rows: int = 0  # of the ring's tile, those that it was opened for
    columns: int | None = None  # likewise; None: all

    @property
    def buffer(self) -> np.ndarray:
        return self.ring.data[self.number % self.ring.depth][: self.rows, : self.columns]

    def empty(self) -> None:
        """Nobody has filled it in this turn, nor what lies behind its rows and columns."""
        buffer = self.ring.data[self.number % self.ring.depth]
        buffer[...] = poison.value(buffer.dtype, self.ring.source)

    def check_open(self, where: str, side: str) -> None:
        if self.closed:
            raise ScheduleFault(f"{where} uses a slot of ring '{self.ring.name}' that was closed at {self.closed}")
        if self.side != side:
            does = "writes to" if side == "producer" else "reads"
            raise ScheduleFault(f"{where} {does} a slot of ring '{self.ring.name}' that it opened as {self.side}")

    def read(self, where: str) -> np.ndarray:
        if self.closed:
            raise ScheduleFault(f"{where} reads a slot of ring '{self.ring.name}' after its close at {self.closed}")
        if self.number % self.ring.depth not in self.ring.written:
            raise ScheduleFault(f"{where} reads a slot of ring '{self.ring.name}' that was never filled")
        return self.buffer


class Ring:
    """A ring in the shared memory of one CTA."""

    def __init__(self, op: dialect.AllocRingOp):
        self.name, self.depth, self.sharing = op.label, op.slots, op.sharing
        self.where = location(op.operation.location)
        shape, self.element = list(op.tile.shape), numeric.element(op.tile)
        self.source = f"numbers of ring '{self.name}' that nobody filled in this turn"
        self.data = [numeric.empty(shape, self.element, self.source) for _ in range(self.depth)]
        self.written: set[int] = set()  # buffers that a copy has landed in since they were acquired
        self.owners: dict[str, str] = {}  # side -> agent
        self.full: set[int] = set()
        self.opened = {"producer": [0], "consumer": [0]}  # by copy
        self.closed = {"producer": [0], "consumer": [0]}
        self.open: list[Slot] = []
        self._op, self._parts = op, list[Ring]()  # of a ring that is each copy's own, those of the copies

    def of_copy(self, number: int, copies: int) -> Ring:
        """The part of a copy in a ring that is each copy's own."""
        if not self._parts:
            self._parts = [Ring(self._op) for _ in range(copies)]
            for part in self._parts:
                part.data = [buffer[: len(buffer) // copies] for buffer in part.data]
        return self._parts[number]

    def fill_with(self, tile: np.ndarray, where: str) -> None:
        """Fills the next slot, which is empty, at once."""
        slot = self.take("producer", 0, where, *tile.shape)
        self.store(slot, tile)
        self.commit(slot, [], where)

    def store(self, slot: Slot, tile: np.ndarray) -> None:
        """Threads store all that a slot holds."""
        slot.buffer[...] = tile
        self.written.add(slot.number % self.depth)

    def claim(self, side: str, agent: str, copies: int, where: str) -> None:
        """One agent stands at each side, a producer in one copy."""
        if side not in self.owners:
            self.owners[side] = agent
            if side == "consumer":
                self.opened[side], self.closed[side] = [0] * copies, [0] * copies
        if self.owners[side] != agent or (side == "producer" and copies > 1):
            other = f"agent '{self.owners[side]}'" if self.owners[side] != agent else f"its {copies} copies"
            raise ScheduleFault(f"{where} opens a slot of ring '{self.name}' as {side}, as does {other}")

    def may_open(self, side: str, copy: int) -> bool:
        number = self.opened[side][copy]
        return number in self.full if side == "consumer" else number - self.depth < min(self.closed["consumer"])

    def take(self, side: str, copy: int, where: str, rows: int, columns: int | None = None) -> Slot:
        slot = Slot(self, side, self.opened[side][copy], copy, where, rows=rows, columns=columns)
        self.opened[side][copy] += 1
        self.open.append(slot)
        if side == "producer":
            self.written.discard(slot.number % self.depth)
            slot.empty()
        return slot

    def close(self, slot: Slot, side: str, where: str) -> None:
        if slot.closed:
            raise ScheduleFault(f"{where} closes a slot of ring '{self.name}' that was closed at {slot.closed}")
        if slot.side != side:
            raise ScheduleFault(f"{where} closes as {side} a slot of ring '{self.name}' that it opened as {slot.side}")
        if slot.number != self.closed[side][slot.copy]:
            raise ScheduleFault(f"{where} closes a slot of ring '{self.name}' before one that was opened earlier")
        slot.closed = where
        self.closed[side][slot.copy] += 1
        self.open.remove(slot)

    def commit(self, slot: Slot, tokens: list[Copy | Product], where: str) -> None:
        if any(token not in slot.writers for token in tokens):
            raise ScheduleFault(f"{where} commits a slot of ring '{self.name}' with the token of other work")
        if any(writer not in tokens for writer in slot.writers):
            raise ScheduleFault(f"{where} commits a slot of ring '{self.name}' without the token of a copy into it")
        self.close(slot, "producer", where)
        slot.committed, slot.after = True, [token for token in tokens if isinstance(token, Copy)]
        self.fill(slot)

    def fill(self, slot: Slot) -> None:
        """The slot is full once it is committed and all copies have landed."""
        if any(writer.landed for writer in slot.writers):
            self.written.add(slot.number % self.depth)
        if slot.committed and all(copy.landed for copy in slot.after):
            self.full.add(slot.number)

    def release(self, slot: Slot, tokens: list[Copy | Product], where: str) -> None:
        for token in tokens:
            if isinstance(token, Product):
                token.finish()
                token.awaited = True
        for product in slot.readers:
            if not product.awaited and not product.settled:
                raise ScheduleFault(
                    f"{where} releases a slot of ring '{self.name}' without the token of its reader, {product.where}"
                )
        self.close(slot, "consumer", where)

    def check_end(self) -> None:
        """Nothing is left behind when all agents have ended."""
        for part in self._parts:
            part.check_end()
        for slot in self.open:
            raise ScheduleFault(f"{slot.where} opens a slot of ring '{self.name}' that is never closed")
        if len({*self.closed["producer"], *self.closed["consumer"]}) > 1:
            filled, taken = self.closed["producer"][0], self.closed["consumer"]
            raise ScheduleFault(f"ring '{self.name}' at {self.where} is left with {filled} slots filled, {taken} taken")


def tf32_operand(piece: str | None, paired: bool, left: np.ndarray) -> np.ndarray:
    """The numbers of a left operand of f32 that are multiplied, in the order of the right operand's columns."""
    left = np.ascontiguousarray(left, np.float32)
    if piece is None:
        found = rounded_to_tf32(left, ties_up=True)
    else:
        high = (left.view(np.int32) & _UPPER).view(np.float32)
        found = high if piece == "high" else left - high
    if not paired:
        return found
    padded = np.pad(found, ((0, 0), (0, -found.shape[1] % len(_PAIRED))))
    return padded.reshape(len(found), -1, len(_PAIRED))[:, :, _PAIRED].reshape(len(found), -1)


def rounded_to_tf32(x: np.ndarray, ties_up: bool) -> np.ndarray:
    """The nearest tf32 numbers: of two the larger, as threads round, or the even one, as the copy engine does."""
    bits = np.ascontiguousarray(x, np.float32).view(np.int32)
    half = 1 << 12 if ties_up else (1 << 12) - 1 + (bits >> 13 & 1)
    found = ((bits + half) & _UPPER).view(np.float32)
    return np.where(np.isfinite(x), found, x)


def box(array: np.ndarray, at: list[int], dims: list[int], sizes: list[int]) -> tuple[tuple, tuple]:
    """Where the part of a box that lies within a tensor is: in the tensor, with the box's dimensions in its order, and
    in the box."""
    inside, own = [], {}
    for d, (start, size) in enumerate(zip(at, array.shape, strict=True)):
        length = sizes[dims.index(d)] if d in dims else 1
        low = max(0, start)
        high = max(low, min(size, start + length))
        inside.append(slice(low, high))
        own[d] = slice(low - start, high - start)
    return tuple(inside), tuple(own[d] for d in dims)


def take_box(array: np.ndarray, at: list[int], dims: list[int], sizes: list[int], beyond: Any) -> np.ndarray:
    """The box of a tensor that begins at `at`; elements outside the tensor are `beyond`."""
    found = np.full(sizes, beyond, array.dtype)
    inside, own = box(array, at, dims, sizes)
    part = array[inside]
    if part.size:
        others = [d for d in range(array.ndim) if d not in dims]
        found[own] = part.transpose([*others, *dims]).reshape([part.shape[d] for d in dims])
    return found
