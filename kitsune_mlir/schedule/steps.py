"""What the interpreter does for each operation of the schedule level (interpret.py)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import numpy as np

from kitsune_mlir.dialects import schedule as dialect
from kitsune_mlir.dialects.checks import parent_of
from kitsune_mlir.dialects.types import Slot as SlotType
from kitsune_mlir.mlir import ir, location

from . import between, numeric, poison
from .between import TileSlot
from .rings import Copy, Product, Ring, ScheduleFault, Slot, rounded_to_tf32, take_box, tf32_operand


@dataclass
class Output:
    data: np.ndarray
    written: np.ndarray


@dataclass(eq=False)
class Cluster:
    ctas: list[Cta] = field(default_factory=list)
    meetings: dict[tuple[str, int], list[list[np.ndarray]]] = field(default_factory=dict)  # what each CTA brought


@dataclass(eq=False)
class Cta:
    rings: list[Ring]
    outputs: list[Output]
    rank: int
    cluster: Cluster
    copies: list[Copy] = field(default_factory=list)
    products: list[Product] = field(default_factory=list)


@dataclass(eq=False)
class Sums:
    shape: tuple[int, ...]
    last: Product | None = None
    start: np.ndarray | float = 0.0


@dataclass(eq=False)
class Frame:
    """A copy of an agent in a CTA."""

    cta: Cta
    agent: str
    number: int
    copies: int
    text: str
    values: dict[int, Any]
    waits: str = ""
    tile: int = 0  # the turn's of the loop over tiles

    def at(self, where: str) -> str:
        return f"{where}: {self.text}"


Run = Iterator[bool]  # false: blocked
Step = Callable[[Frame], Run | None]


def open_slot(name: str, where: str, ring: int, slot: int, tile: ir.RankedTensorType) -> Step:
    side = "producer" if name == "kitsune.acquire" else "consumer"
    what = "an empty" if side == "producer" else "a full"
    rows, columns = tile.shape

    def step(frame: Frame) -> Run:
        found: Ring = frame.values[ring]
        copies, copy = frame.copies, frame.number
        if found.sharing == "own":
            found, copies, copy = found.of_copy(copy, copies), 1, 0
        found.claim(side, frame.agent, copies, frame.at(where))
        while not found.may_open(side, copy):
            frame.waits = f"{where}: waits for {what} slot of ring '{found.name}'"
            yield False
        frame.waits = ""
        frame.values[slot] = found.take(side, copy, frame.at(where), rows, columns)
        yield True

    return step


def close(name: str, where: str, operands: list[int]) -> Step:
    def step(frame: Frame) -> Run:
        slot, *tokens = [frame.values[o] for o in operands]
        if isinstance(slot, TileSlot):
            yield from between.closes(where, slot, frame)
            return
        close = slot.ring.commit if name == "kitsune.commit" else slot.ring.release
        close(slot, tokens, frame.at(where))
        yield True

    return step


def stow(op: ir.Operation, where: str, operands: list[int], results: list[int]) -> Step:
    rows, columns = ir.RankedTensorType(op.operands[1].type).shape

    def step(frame: Frame) -> Run:
        found: Ring = frame.values[operands[0]].of_copy(frame.number, frame.copies)
        for side in ("producer", "consumer"):
            found.claim(side, frame.agent, 1, frame.at(where))
        while not found.may_open("producer", 0):
            frame.waits = f"{where}: waits for an empty slot of ring '{found.name}'"
            yield False
        frame.waits = ""
        found.fill_with(frame.values[operands[1]], frame.at(where))
        frame.values[results[0]] = found.take("consumer", 0, frame.at(where), rows, columns)
        yield True

    return step


def copy(op: ir.Operation, where: str, operands: list[int], results: list[int]) -> Step:
    elements, dims, last = op.opview.elements, op.opview.axes, op.opview.last_rows
    tile, sizes = dialect.tile_of(op.operands[0]), op.opview.box
    open_sizes = _open_sizes(op) if op.opview.is_longer else []

    def step(frame: Frame) -> None:
        slot, source, *at = [frame.values[o] for o in operands]
        slot.check_open(frame.at(where), "producer")
        if open_sizes:  # the box ends where the call's elements do
            source = source[..., : min(frame.values[tensor].shape[d] for tensor, d in open_sizes)]
        if isinstance(source, TileSlot):
            source.check_open(frame.at(where), "consumer")
            copy = Copy(slot, lambda: take_box(source.buffer, at, dims, sizes, 0))
            source.copies.append(copy)
        elif elements is None:
            found = take_box(source, at, dims, sizes, 0).reshape(tile.shape)
            found = rounded_to_tf32(found, ties_up=False) if op.opview.is_rounded else found
            if last is not None and at[dims[0]] + tile.shape[0] > source.shape[dims[0]]:
                found[last:] = poison.value(found.dtype, slot.ring.source)
            copy = Copy(slot, found)
        else:
            copy = Copy(slot, source.reshape(-1), slice(elements.start, elements.stop))
        slot.writers.append(copy)
        frame.cta.copies.append(copy)
        frame.values[results[0]] = copy

    return step


def _open_sizes(op: ir.Operation) -> list[tuple[int, int]]:
    """Tensors that the kernel of an operation is given, and which of their dimensions are of its open size, or of lines
    of so many elements that have been made longer."""
    kernel = parent_of(op, dialect.KernelOp.OPERATION_NAME)
    given = kernel.opview.inputs if kernel is not None else []
    tensors = [value for value in given if isinstance(value.type, ir.RankedTensorType)]
    kinds = [(hash(value), ir.RankedTensorType(value.type)) for value in tensors]
    return [(tensor, d) for tensor, kind in kinds for d in range(kind.rank) if kind.is_dynamic_dim(d)]


def split(where: str, operands: list[int], is_turned: bool) -> Step:
    def step(frame: Frame) -> None:
        source, *targets = [frame.values[o] for o in operands]
        source.check_open(frame.at(where), "consumer")
        rest = source.read(frame.at(where)).astype(np.float32)
        if is_turned:
            targets[0].check_open(frame.at(where), "producer")
            targets[0].ring.store(targets[0], rest)
            return
        infinite, left = np.isinf(rest), len(targets)
        for number, target in enumerate(targets):
            target.check_open(frame.at(where), "producer")
            left -= 1
            piece = (rest.view(np.int32) & -65536).view(np.float32) if left else numeric.rounded(rest, "bf16")
            if left:
                rest = np.where(infinite, rest, rest - piece)
                piece = np.where(infinite, 0 if number else np.copysign(1, rest), piece)
            target.ring.store(target, piece)

    return step


def sums(op: ir.Operation, operands: list[int], results: list[int]) -> Step:
    shape = tuple(dialect.tile_of(op.results[0]).shape)

    def step(frame: Frame) -> None:
        tiles = [frame.values[o] for o in operands] if op.opview.begins else []
        start = np.concatenate(tiles, axis=1).astype(np.float64) if tiles else 0.0
        frame.values[results[0]] = Sums(shape, start=start)

    return step


def product(op: ir.Operation, where: str, operands: list[int], results: list[int]) -> Step:
    in_f32 = op.opview.engine_name == "wgmma" and isinstance(_element_of(op.operands[2]), ir.F32Type)
    paired = op.opview.is_from_registers or dialect.is_stowed(op.operands[1])
    taken, turned = partial(tf32_operand, op.opview.piece, paired) if in_f32 else None, op.opview.is_turned
    window, right_window = op.opview.window, op.opview.right_window

    def step(frame: Frame) -> Run:
        sums, left, right = [frame.values[o] for o in operands]
        slots = [right] if isinstance(left, np.ndarray) else list(dict.fromkeys((left, right)))
        for slot in slots:
            slot.check_open(frame.at(where), "consumer")
        rows: Any = slice(0, len(left)) if isinstance(left, np.ndarray) else _seen(left, frame)
        fewer = frame.copies == 1 and rows.stop < sums.shape[0]
        own: Any = _seen(right, frame)
        columns = right.buffer.shape[1] if turned else own.stop - own.start
        height = rows.stop - rows.start
        if window is not None:
            rows, height = window.rows(frame.number, sums.shape[0]), sums.shape[0]
        if right_window is not None:
            own, columns = right_window.rows(0, sums.shape[1]), sums.shape[1]
        if not fewer and height != sums.shape[0] or columns != sums.shape[1]:
            names = " and ".join(f"'{slot.ring.name}'" for slot in slots)
            raise ScheduleFault(
                f"{frame.at(where)} multiplies slots of rings {names}, of which its copy sees other rows than its sums "
                "have"
            )
        where_at, height = frame.at(where), sums.shape[0]
        takes = {"taken": taken, "columns": own, "turned": turned}
        product = Product(sums.last, left, right, rows, where_at, height, start=sums.start, **takes)
        for slot in slots:
            slot.readers.append(product)
        frame.cta.products.append(product)
        frame.values[results[0]], frame.values[results[1]] = Sums(sums.shape, product), product
        yield True

    return step


def _element_of(slot: ir.Value) -> ir.Type:
    return dialect.tile_of(slot).element_type


def _seen(slot: Slot, frame: Frame) -> slice:
    """The rows of a slot that a copy of the consuming agent sees."""
    rows = len(slot.buffer)
    if slot.ring.sharing != "split":
        return slice(0, rows)
    return slice(frame.number * rows // frame.copies, (frame.number + 1) * rows // frame.copies)


def settle(op: ir.Operation, operands: list[int], results: list[int]) -> Step:
    name = numeric.element(op.results[0].type)

    def step(frame: Frame) -> None:
        sums: Sums = frame.values[operands[0]]
        if sums.last is None:
            found = np.zeros(sums.shape) + sums.start
        else:
            sums.last.settle()
            found = sums.last.value
        frame.values[results[0]] = numeric.rounded(found, name)

    return step


def meet(where: str, cluster: int, tile: int, share: int) -> Step:
    def step(frame: Frame) -> Run:
        brought = yield from _brought("meet", frame, where, cluster, frame.values[tile])
        total = sum(brought[1:], start=brought[0])
        columns = total.shape[1] // cluster
        frame.values[share] = total[:, frame.cta.rank * columns : (frame.cta.rank + 1) * columns]
        yield True

    return step


def _brought(what: str, frame: Frame, where: str, cluster: int, tile: np.ndarray) -> Generator[bool, None, list]:
    """The tiles of this turn of all CTAs, once they are there."""
    key = f"{what} of {frame.agent}", frame.number
    brought = frame.cta.cluster.meetings.setdefault(key, [[] for _ in range(cluster)])
    own, turn = brought[frame.cta.rank], len(brought[frame.cta.rank])
    own.append(tile)
    while any(len(tiles) <= turn for tiles in brought):
        frame.waits = f"{where}: waits for the other CTAs of its cluster"
        yield False
    frame.waits = ""
    return [tiles[turn] for tiles in brought]


def total(op: ir.Operation, where: str, cluster: int, part: int, total: int) -> Step:
    join, name = numeric.FLOATS[op.opview.join_name], numeric.element(op.results[0].type)

    def step(frame: Frame) -> Run:
        brought = yield from _brought("total", frame, where, cluster, frame.values[part])
        frame.values[total] = reduce(lambda a, b: numeric.rounded(join(a, b), name), brought)
        yield True

    return step


def send(where: str, operands: list[int]) -> Step:
    def step(frame: Frame) -> Run:
        *rings, tile = [frame.values[o] for o in operands]
        ctas, mine = frame.cta.cluster.ctas, [ring.name for ring in frame.cta.rings]
        for number, ring in enumerate(rings, 1):
            peer = ctas[(frame.cta.rank - number) % len(ctas)]
            found = peer.rings[mine.index(ring.name)].of_copy(frame.number, frame.copies)
            found.claim("producer", frame.agent, 1, frame.at(where))
            yield from _give(found, tile, frame, where, " of another CTA")
        yield True

    return step


def _give(ring: Ring, tile: Any, frame: Frame, where: str, whose: str = "") -> Run:
    """Fills the next slot of a ring, as soon as it is empty; `whose` says of the ring whose it is."""
    while not ring.may_open("producer", 0):
        frame.waits = f"{where}: waits for an empty slot of ring '{ring.name}'{whose}"
        yield False
    frame.waits = ""
    ring.fill_with(tile, frame.at(where))


def collect(where: str, cluster: int, operands: list[int]) -> Step:
    def step(frame: Frame) -> Run:
        ring, tile = [frame.values[o] for o in operands]
        found = ring.of_copy(frame.number, frame.copies)
        found.claim("producer", frame.agent, 1, frame.at(where))
        brought = yield from _brought(f"collect in '{ring.name}'", frame, where, cluster, tile)
        for chunk in np.split(np.concatenate(brought, axis=1), found.depth, axis=1):
            yield from _give(found, chunk, frame, where)
        yield True

    return step


def read(op: ir.Operation, where: str, operands: list[int], results: list[int]) -> Step:
    tile = ir.RankedTensorType(op.results[0].type)
    dims, sizes = ([], []) if isinstance(op.operands[0].type, SlotType) else (op.opview.axes, op.opview.box)
    whole = op.opview.is_of_boxes
    source_text = f"numbers from beyond {_named(op.operands[0])}, which {where} reads"
    vectors = whole_vectors(op, where, dims, sizes)

    def step(frame: Frame) -> None:
        source, *at = [frame.values[o] for o in operands]
        if isinstance(source, Slot):
            source.check_open(frame.at(where), "consumer")
            if whole:
                frame.values[results[0]] = source.read(frame.at(where)).copy()
                return
            frame.values[results[0]] = source.read(frame.at(where))[0, at[0] : at[0] + tile.shape[0]].copy()
            return
        beyond = poison.value(source.dtype, source_text)
        found = take_box(source, at, dims, sizes, beyond).reshape(tile.shape)
        there = vectors(source.shape, at)
        if there is not None:
            found[..., there:] = beyond
        frame.values[results[0]] = found

    return step


def whole_vectors(
    op: ir.Operation, where: str, dims: Sequence[int], sizes: Sequence[int]
) -> Callable[[Sequence[int], Sequence[int]], int | None]:
    """Checks what a read or a write says of its columns, given a tensor's shape and where the box is; gives how many
    columns lie in vectors that are all there, None where nothing is said of vectors."""
    whole, aligned = (mark in op.attributes for mark in (dialect.WHOLE, dialect.ALIGNED))
    vector = parent_of(op, dialect.AgentOp.OPERATION_NAME).opview.vector if aligned else 1

    def check(shape: Sequence[int], at: Sequence[int]) -> int | None:
        left = shape[dims[-1]] - at[dims[-1]] if dims else 0
        if whole and left < sizes[-1]:
            raise ScheduleFault(f"{where} says that all of {sizes[-1]} columns are there, {left} are")
        first = [min(place, size - 1) for place, size in zip(at, shape)]
        if aligned and left > 0 and np.ravel_multi_index(first, shape) % vector:
            raise ScheduleFault(f"{where} says that columns begin at a multiple of {vector}, not so at {first}")
        return max(0, left // vector * vector) if aligned else None

    return check


def _named(tensor: ir.Value) -> str:
    """An operand of a kernel, for people."""
    if isinstance(tensor.owner, ir.Block):
        return f"argument {ir.BlockArgument(tensor).arg_number}"
    return f"the result of {location(tensor.owner.location)}"


def fill(where: str, operands: list[int]) -> Step:
    """`kitsune.fill` of a slot in shared memory."""

    def step(frame: Frame) -> None:
        slot, tile, _ = [frame.values[o] for o in operands]
        slot.check_open(frame.at(where), "producer")
        if slot.number % slot.ring.depth in slot.ring.written:
            raise ScheduleFault(f"{frame.at(where)} fills a slot of ring '{slot.ring.name}' again")
        slot.ring.store(slot, tile)

    return step
