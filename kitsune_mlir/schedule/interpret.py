"""Runs a scheduled kernel in numpy: every copy of every agent of every CTA a coroutine, in random order.

Asynchronous work is done at a random later time, but no later than somebody waits for it: a slot is full only after the
copies into it have landed, and a product reads its slots at the latest when a release takes its token or its sums are
settled. So what a schedule forgets to wait for is found as a fault (`rings.py`) or as wrong numbers.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import numpy as np

from kitsune_mlir.dialects import schedule as dialect
from kitsune_mlir.dialects.checks import defined_by
from kitsune_mlir.dialects.types import Slot as SlotType
from kitsune_mlir.errors import UserError
from kitsune_mlir.mlir import ir, location

from . import between, numeric
from .between import Between, TileSlot
from .rings import Copy, Product, Ring, ScheduleFault, Slot, box, take_box, tf32_operand

LANDS, READS = 0.3, 0.2  # how likely a pending copy lands, a pending product is done, at each step of an agent


def run(
    kernel: dialect.KernelOp,
    arguments: Sequence[Any],
    ctas: int = 2,
    seed: int = 0,
    shapes: Sequence[Sequence[int]] = (),
) -> list[np.ndarray]:
    """Runs a kernel once; see `Program.run`."""
    return Program(kernel).run(arguments, ctas, seed, shapes)


@dataclass
class _Output:
    data: np.ndarray
    written: np.ndarray


@dataclass(eq=False)
class _Cluster:
    ctas: list[_Cta] = field(default_factory=list)
    meetings: dict[tuple[str, int], list[list[np.ndarray]]] = field(default_factory=dict)  # what each CTA brought


@dataclass(eq=False)
class _Cta:
    rings: list[Ring]
    outputs: list[_Output]
    rank: int
    cluster: _Cluster
    copies: list[Copy] = field(default_factory=list)
    products: list[Product] = field(default_factory=list)


@dataclass(eq=False)
class _Sums:
    shape: tuple[int, ...]
    last: Product | None = None
    start: np.ndarray | float = 0.0


@dataclass(eq=False)
class _Frame:
    """A copy of an agent in a CTA."""

    cta: _Cta
    agent: str
    number: int
    copies: int
    text: str
    values: dict[int, Any]
    waits: str = ""
    tile: int = 0  # the turn's of the loop over tiles

    def at(self, where: str) -> str:
        return f"{where}: {self.text}"


@dataclass
class _Part:
    """What CTAs do that do the same: agents with their steps."""

    op: Any
    agents: list[tuple[dialect.AgentOp, tuple[list[_Step], list[int]]]]

    @property
    def setup(self) -> list[ir.Operation]:
        """What stands beside agents."""
        ops = (op.operation for op in self.op.block.operations)
        return [op for op in ops if op.name != dialect.AgentOp.OPERATION_NAME]


_Run = Iterator[bool]  # false: blocked
_Step = Callable[[_Frame], _Run | None]


class Program:
    """A kernel that can be run many times."""

    def __init__(self, kernel: dialect.KernelOp):
        self.kernel = kernel
        self._parts = [
            _Part(part, [(agent, self._block(agent.block)) for agent in part.agents]) for part in kernel.parts
        ]
        self._inputs = kernel.inputs
        if len(kernel.result_ops) < len(kernel.written):
            raise UserError(f"kernel '{kernel.label}' writes outputs that no kitsune.result takes")

    def run(
        self, arguments: Sequence[Any], ctas: int = 2, seed: int = 0, shapes: Sequence[Sequence[int]] = ()
    ) -> list[np.ndarray]:
        """The kernel's outputs, bf16 as float32. `arguments` are those of the function that the kernel stands in;
        `shapes` the outputs' sizes, needed where they are not static. Raises ScheduleFault for what a schedule must not
        do."""
        with np.errstate(all="ignore"):
            outside: dict[int, Any] = {}
            for value in self._inputs:
                self._evaluate(value, arguments, outside)
            outputs = [self._output(op, shapes) for op in self.kernel.result_ops]
            if ctas % self.kernel.cluster:
                raise UserError(f"kernel '{self.kernel.label}' runs in clusters of {self.kernel.cluster} CTAs")
            shared = self._between(outside) if self.kernel.has_roles else []
            frames = [
                frame
                for part in self._parts
                for clusters in [[_Cluster() for _ in range(part.op.cta_count or ctas)]]
                for number in range(part.op.cta_count or ctas)
                for frame in self._cta(part, number, part.op.cta_count or ctas, outside, outputs, clusters)
            ]
            _Launch(frames, random.Random(seed)).run()
            for ring in shared:
                ring.check_end()
        for i, output in enumerate(outputs):
            if not output.written.all():
                at = tuple(int(x) for x in np.argwhere(~output.written)[0])
                where = location(self.kernel.operation.location)
                raise ScheduleFault(f"{where}: kernel '{self.kernel.label}' never writes element {at} of output {i}")
        return [output.data for output in outputs]

    def _evaluate(self, value: ir.Value, arguments: Sequence[Any], outside: dict[int, Any]) -> Any:
        """A value from around the kernel: an argument of its function, or computed from those."""
        key = hash(value)
        if key in outside:
            return outside[key]
        owner = value.owner
        if isinstance(owner, ir.Block):
            number = ir.BlockArgument(value).arg_number
            if number >= len(arguments):
                raise UserError(f"kernel '{self.kernel.label}' wants argument {number} of its function")
            outside[key] = numeric.from_array(arguments[number], value.type)
        else:
            op = owner.operation
            operands = [self._evaluate(operand, arguments, outside) for operand in numeric.operands_of(op)]
            outside.update(zip(map(hash, op.results), numeric.compile_op(op)(operands), strict=True))
        return outside[key]

    def _output(self, result: ir.OpView, shapes: Sequence[Sequence[int]]) -> _Output:
        type_ = ir.RankedTensorType(result.results[0].type)
        if shapes:
            shape = list(shapes[result.position])
        elif type_.has_static_shape:
            shape = list(type_.shape)
        else:
            raise UserError(f"kernel '{self.kernel.label}' has an output of open size; give the outputs' shapes")
        return _Output(numeric.empty(shape, numeric.element(type_)), np.zeros(shape, bool))

    def _between(self, outside: dict[int, Any]) -> list[Between]:
        """The rings between roles, and what else stands there, of which all CTAs know."""
        found = []
        for op in (op.operation for op in self.kernel.block.operations):
            if op.name == dialect.AllocRingOp.OPERATION_NAME:
                found.append(Between(op.opview))
                outside[hash(op.results[0])] = found[-1]
            elif op.name != dialect.ROLE:
                values = numeric.compile_op(op)([outside[hash(value)] for value in numeric.operands_of(op)])
                outside.update(zip(map(hash, op.results), values, strict=True))
        return found

    def _cta(
        self,
        part: _Part,
        number: int,
        ctas: int,
        outside: dict[int, Any],
        outputs: list[_Output],
        clusters: list[_Cluster],
    ) -> Iterator[tuple[_Frame, _Run]]:
        """The copies of all agents in a CTA, each with what it is to do."""
        cluster, rank = divmod(number, size := self.kernel.cluster)
        cta, values = _Cta([], outputs, rank, clusters[cluster]), dict(outside)
        clusters[cluster].ctas.append(cta)
        for op in part.setup:
            operands = [values[hash(operand)] for operand in numeric.operands_of(op)]
            match op.name:
                case "kitsune.alloc_ring":
                    cta.rings.append(Ring(op.opview))
                    found = [cta.rings[-1]]
                case "kitsune.tiles":
                    boxes = (-(-extent // size) for extent, size in zip(operands, op.opview.sizes, strict=True))
                    found = [cluster, math.prod(boxes), ctas // size]
                case _:
                    found = numeric.compile_op(op)(operands)
            values.update(zip(map(hash, op.results), found, strict=True))
        place = f"CTA {number}" + (f" of role '{part.op.label}'" if self.kernel.has_roles else "")
        for agent, block in part.agents:
            for copy in range(agent.count):
                text = f"copy {copy} of '{agent.label}' in {place}"
                own = values | {hash(agent.block.arguments[0]): copy}
                frame = _Frame(cta, agent.label, copy, agent.count, text, own)
                yield frame, _go(block, frame)

    def _block(self, block: ir.Block) -> tuple[list[_Step], list[int]]:
        """A block's steps, and what it yields."""
        ops = [op.operation for op in block.operations]
        yields = [hash(v) for v in ops.pop().operands] if ops and ops[-1].name == "scf.yield" else []
        return [self._step(op) for op in ops], yields

    def _step(self, op: ir.Operation) -> _Step:
        operands, results = [hash(v) for v in op.operands], [hash(v) for v in op.results]
        where = location(op.location)
        match op.name:
            case "scf.for":
                return self._for(op, operands, results)
            case "scf.if":
                return self._if(op, operands, results)
            case "kitsune.acquire" | "kitsune.wait":
                if op.operands[0].owner.operation.opview.memory == dialect.L2:
                    return between.opens(op.name, where, operands[0], results[0])
                tile = ir.RankedTensorType(ir.TypeAttr(op.results[0].type.elem).value)
                return _open(op.name, where, operands[0], results[0], tile)
            case "kitsune.fill":
                return between.fill(op, where)
            case "kitsune.commit" | "kitsune.release":
                return _close(op.name, where, operands)
            case "kitsune.stow":
                return _stow(op, where, operands, results)
            case "kitsune.copy":
                return _copy(op, where, operands, results)
            case "kitsune.sums":
                return _sums(op, operands, results)
            case "kitsune.product":
                return _product(op, where, operands, results)
            case "kitsune.settle":
                return _settle(op, operands, results)
            case "kitsune.rank":
                return lambda frame: frame.values.update({results[0]: frame.cta.rank})
            case "kitsune.meet":
                return _meet(where, self.kernel.cluster, operands[0], results[0])
            case "kitsune.send":
                return _send(where, operands)
            case "kitsune.total":
                return _total(op, where, self.kernel.cluster, operands[0], results[0])
            case "kitsune.read":
                return _read(op, where, operands, results)
            case "kitsune.prefetch":
                return lambda frame: frame.values[operands[0]].check_open(frame.at(where), "producer")
            case "kitsune.write":
                return _write(op, where, operands)
            case "kitsune.write_rows":
                return _write_rows(op, where, operands)
        function, operands = numeric.compile_op(op), [hash(v) for v in numeric.operands_of(op)]

        def compute(frame: _Frame) -> None:
            frame.values.update(zip(results, function([frame.values[o] for o in operands])))

        return compute

    def _for(self, op: ir.Operation, operands: list[int], results: list[int]) -> _Step:
        block = op.regions[0].blocks[0]
        body, (turn, *arguments) = self._block(block), [hash(argument) for argument in block.arguments]
        over_tiles = defined_by(op.operands[0], dialect.TilesOp.OPERATION_NAME)

        def loop(frame: _Frame) -> _Run:
            values = frame.values
            lower, upper, step, *carried = [values[o] for o in operands]
            for i in range(lower, upper, step):
                values.update(zip(arguments, carried, strict=True))
                values[turn] = i
                if over_tiles:
                    frame.tile = i
                yield from _go(body, frame)
                carried = [values[y] for y in body[1]]
            values.update(zip(results, carried))

        return loop

    def _if(self, op: ir.Operation, operands: list[int], results: list[int]) -> _Step:
        blocks = [self._block(region.blocks[0]) if len(region.blocks) else ([], []) for region in op.regions]

        def branch(frame: _Frame) -> _Run:
            taken = blocks[0 if frame.values[operands[0]] else 1]
            yield from _go(taken, frame)
            frame.values.update(zip(results, [frame.values[y] for y in taken[1]]))

        return branch


class _Launch:
    """Agents that run beside each other, and asynchronous work beside them."""

    def __init__(self, frames: list[tuple[_Frame, _Run]], random_: random.Random):
        self.frames, self.random = frames, random_

    def run(self) -> None:
        ready, blocked = list(self.frames), []
        while ready:
            i = self.random.randrange(len(ready))
            going = next(ready[i][1], None)
            if going:
                self._some_work(ready[i][0].cta)
                ready, blocked = ready + blocked, []
                continue
            ended = ready.pop(i)
            if going is False:
                blocked.append(ended)
            if not ready and blocked:
                self._land_or_fail(blocked)
                ready, blocked = blocked, []
        for cta in dict.fromkeys(frame.cta for frame, _ in self.frames):
            for ring in cta.rings:
                ring.check_end()

    def _some_work(self, cta: _Cta) -> None:
        if cta.products and self.random.random() < READS:
            cta.products.pop(self.random.randrange(len(cta.products))).finish()
        if cta.copies and self.random.random() < LANDS:
            cta.copies.pop(self.random.randrange(len(cta.copies))).land()

    def _land_or_fail(self, blocked: list[tuple[_Frame, _Run]]) -> None:
        """Nobody can go on: some copy lands, or all wait for ever."""
        pending = [cta for cta in dict.fromkeys(frame.cta for frame, _ in blocked) if cta.copies]
        if not pending:
            raise ScheduleFault("deadlock: " + "; ".join(frame.at(frame.waits) for frame, _ in blocked))
        copies = self.random.choice(pending).copies
        copies.pop(self.random.randrange(len(copies))).land()


def _go(block: tuple[list[_Step], list[int]], frame: _Frame) -> _Run:
    for step in block[0]:
        waiting = step(frame)
        if waiting is not None:
            yield from waiting


def _open(name: str, where: str, ring: int, slot: int, tile: ir.RankedTensorType) -> _Step:
    side = "producer" if name == "kitsune.acquire" else "consumer"
    what = "an empty" if side == "producer" else "a full"
    rows, columns = tile.shape

    def step(frame: _Frame) -> _Run:
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


def _close(name: str, where: str, operands: list[int]) -> _Step:
    def step(frame: _Frame) -> _Run:
        slot, *tokens = [frame.values[o] for o in operands]
        if isinstance(slot, TileSlot):
            yield from between.closes(where, slot, frame)
            return
        close = slot.ring.commit if name == "kitsune.commit" else slot.ring.release
        close(slot, tokens, frame.at(where))
        yield True

    return step


def _stow(op: ir.Operation, where: str, operands: list[int], results: list[int]) -> _Step:
    rows, columns = ir.RankedTensorType(op.operands[1].type).shape

    def step(frame: _Frame) -> _Run:
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


def _copy(op: ir.Operation, where: str, operands: list[int], results: list[int]) -> _Step:
    elements, dims = op.opview.elements, op.opview.axes
    tile = ir.RankedTensorType(ir.TypeAttr(op.operands[0].type.elem).value)

    def step(frame: _Frame) -> None:
        slot, source, *at = [frame.values[o] for o in operands]
        slot.check_open(frame.at(where), "producer")
        if isinstance(source, TileSlot):
            source.check_open(frame.at(where), "consumer")
            copy = Copy(slot, lambda: take_box(source.buffer, at, dims, tile, 0.0))
            source.copies.append(copy)
        elif elements is None:
            copy = Copy(slot, take_box(source, at, dims, tile, 0.0))
        else:
            copy = Copy(slot, source.reshape(-1), slice(elements.start, elements.stop))
        slot.writers.append(copy)
        frame.cta.copies.append(copy)
        frame.values[results[0]] = copy

    return step


def _sums(op: ir.Operation, operands: list[int], results: list[int]) -> _Step:
    shape = tuple(ir.RankedTensorType(ir.TypeAttr(op.results[0].type.elem).value).shape)

    def step(frame: _Frame) -> None:
        tiles = [frame.values[o] for o in operands] if op.opview.begins else []
        start = np.concatenate(tiles, axis=1).astype(np.float64) if tiles else 0.0
        frame.values[results[0]] = _Sums(shape, start=start)

    return step


def _product(op: ir.Operation, where: str, operands: list[int], results: list[int]) -> _Step:
    in_f32 = op.opview.engine_name == "wgmma" and isinstance(_element_of(op.operands[2]), ir.F32Type)
    paired = op.opview.is_from_registers or dialect.is_stowed(op.operands[1])
    taken = partial(tf32_operand, op.opview.piece, paired) if in_f32 else None

    def step(frame: _Frame) -> _Run:
        sums, left, right = [frame.values[o] for o in operands]
        slots = [right] if isinstance(left, np.ndarray) else list(dict.fromkeys((left, right)))
        for slot in slots:
            slot.check_open(frame.at(where), "consumer")
        rows = slice(0, len(left)) if isinstance(left, np.ndarray) else _seen(left, frame)
        fewer = frame.copies == 1 and rows.stop < sums.shape[0]
        if not fewer and rows.stop - rows.start != sums.shape[0] or _seen(right, frame) != slice(0, len(right.buffer)):
            names = " and ".join(f"'{slot.ring.name}'" for slot in slots)
            raise ScheduleFault(
                f"{frame.at(where)} multiplies slots of rings {names}, of which its copy sees other rows than its sums "
                "have"
            )
        where_at, height = frame.at(where), sums.shape[0]
        product = Product(sums.last, left, right, rows, where_at, height, start=sums.start, taken=taken)
        for slot in slots:
            slot.readers.append(product)
        frame.cta.products.append(product)
        frame.values[results[0]], frame.values[results[1]] = _Sums(sums.shape, product), product
        yield True

    return step


def _element_of(slot: ir.Value) -> ir.Type:
    return ir.RankedTensorType(ir.TypeAttr(slot.type.elem).value).element_type


def _seen(slot: Slot, frame: _Frame) -> slice:
    """The rows of a slot that a copy of the consuming agent sees."""
    rows = len(slot.buffer)
    if slot.ring.sharing != "split":
        return slice(0, rows)
    return slice(frame.number * rows // frame.copies, (frame.number + 1) * rows // frame.copies)


def _settle(op: ir.Operation, operands: list[int], results: list[int]) -> _Step:
    name = numeric.element(op.results[0].type)

    def step(frame: _Frame) -> None:
        sums: _Sums = frame.values[operands[0]]
        if sums.last is None:
            found = np.zeros(sums.shape) + sums.start
        else:
            sums.last.settle()
            found = sums.last.value
        frame.values[results[0]] = numeric.rounded(found, name)

    return step


def _meet(where: str, cluster: int, tile: int, share: int) -> _Step:
    def step(frame: _Frame) -> _Run:
        brought = yield from _brought("meet", frame, where, cluster, frame.values[tile])
        total = sum(brought[1:], start=brought[0])
        columns = total.shape[1] // cluster
        frame.values[share] = total[:, frame.cta.rank * columns : (frame.cta.rank + 1) * columns]
        yield True

    return step


def _brought(what: str, frame: _Frame, where: str, cluster: int, tile: np.ndarray) -> Generator[bool, None, list]:
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


def _total(op: ir.Operation, where: str, cluster: int, part: int, total: int) -> _Step:
    join, name = numeric.FLOATS[op.opview.join_name], numeric.element(op.results[0].type)

    def step(frame: _Frame) -> _Run:
        brought = yield from _brought("total", frame, where, cluster, frame.values[part])
        frame.values[total] = reduce(lambda a, b: numeric.rounded(join(a, b), name), brought)
        yield True

    return step


def _send(where: str, operands: list[int]) -> _Step:
    def step(frame: _Frame) -> _Run:
        *rings, tile = [frame.values[o] for o in operands]
        ctas, mine = frame.cta.cluster.ctas, [ring.name for ring in frame.cta.rings]
        for number, ring in enumerate(rings, 1):
            peer = ctas[(frame.cta.rank - number) % len(ctas)]
            found = peer.rings[mine.index(ring.name)].of_copy(frame.number, frame.copies)
            found.claim("producer", frame.agent, 1, frame.at(where))
            while not found.may_open("producer", 0):
                frame.waits = f"{where}: waits for an empty slot of ring '{found.name}' of another CTA"
                yield False
            frame.waits = ""
            found.fill_with(tile, frame.at(where))
        yield True

    return step


def _read(op: ir.Operation, where: str, operands: list[int], results: list[int]) -> _Step:
    tile = ir.RankedTensorType(op.results[0].type)
    dims = [] if isinstance(op.operands[0].type, SlotType) else op.opview.axes

    def step(frame: _Frame) -> None:
        source, *at = [frame.values[o] for o in operands]
        if isinstance(source, Slot):
            source.check_open(frame.at(where), "consumer")
            frame.values[results[0]] = source.read(frame.at(where))[0, at[0] : at[0] + tile.shape[0]].copy()
            return
        frame.values[results[0]] = take_box(source, at, dims, tile, np.nan)

    return step


def _write(op: ir.Operation, where: str, operands: list[int]) -> _Step:
    dims, type_, index = op.opview.axes, ir.RankedTensorType(op.operands[0].type), op.opview.position
    once = op.opview.is_once

    def step(frame: _Frame) -> None:
        if once and frame.cta.rank:
            return
        tile, *at = [frame.values[o] for o in operands]
        output = frame.cta.outputs[index]
        inside, own = box(output.data, at, dims, type_)
        part, done = output.data[inside], output.written[inside]
        others = [d for d in range(output.data.ndim) if d not in dims]
        order = [*others, *dims]
        new = tile[own].reshape([part.shape[d] for d in order]).transpose(np.argsort(order))
        if (done & ~((part == new) | (np.isnan(part) & np.isnan(new)))).any():
            raise ScheduleFault(f"{frame.at(where)} writes elements of output {index} again, with other values")
        output.data[inside], output.written[inside] = new, True

    return step


def _write_rows(op: ir.Operation, where: str, operands: list[int]) -> _Step:
    index, adds = op.opview.position, op.opview.adds

    def step(frame: _Frame) -> None:
        tile, to, first, count, column = [frame.values[o] for o in operands]
        output = frame.cta.outputs[index]
        columns = slice(column, column + tile.shape[1])
        tile = tile[:, : output.data.shape[1] - column]
        if adds and not output.written.any():
            output.data[...], output.written[...] = 0.0, True  # it begins at zero
        for row, place in zip(tile[: max(0, count - first)], to, strict=False):
            if adds:
                if 0 <= place < len(output.data):
                    output.data[place, columns] += row
                continue
            if not 0 <= place < len(output.data) or output.written[place, columns].any():
                raise ScheduleFault(
                    f"{frame.at(where)} writes row {place} of output {index}, which is not there or was"
                )
            output.data[place, columns], output.written[place, columns] = row, True

    return step
