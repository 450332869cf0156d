"""The code of an agent: its operations, one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import gcd, prod

from kitsune_mlir.codegen.hopper import mbarrier, tma, waits, warps, wgmma
from kitsune_mlir.codegen.hopper.fragments import BLOCK, HALVES, Lanes, blocks_of, pack
from kitsune_mlir.codegen.hopper.mbarrier import Ring, Slot
from kitsune_mlir.codegen.hopper.stores import Boxes
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int, Offset
from kitsune_mlir.codegen.pipeline.evaluate import Evaluator
from kitsune_mlir.dialects import schedule
from kitsune_mlir.dialects.windows import windows_of
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, ir, location, walk
from kitsune_mlir.rows import Structured, shape_of

from .boxes import GlobalBox
from .quads import QUAD, transposed
from .reductions import own_part, row_combiner
from .windows import first_of

_TOGETHER = 8  # pairs of columns that a thread computes before it stores them
_ASYNCHRONOUS = ("acquire", "copy", "commit")
_ARITHMETIC = {
    "arith.addi": device.add,
    "arith.subi": device.sub,
    "arith.muli": device.mul,
}


@dataclass(frozen=True)
class Surroundings:
    """What agents use of the kernel around them."""

    pointers: dict[int, ir.Value]  # tensor -> its address
    outputs: dict[int, tuple[ir.Value, ir.Type]]  # output number -> its address and type
    rings: dict[str, Ring]
    maps: ir.Value | None
    map_of: dict[ir.Operation, int]  # copy -> number of its tensor map
    rows: ir.Value  # the size that is open until the call
    scratch: Int  # the address of shared memory behind the rings


@dataclass
class _Acc:
    """Sums in registers; `number` counts the agent's products up to the last that was added."""

    values: list[ir.Value]
    number: int = 0


@dataclass(frozen=True)
class _Open:
    """An open slot."""

    ring: schedule.AllocRingOp
    slot: Slot


@dataclass(frozen=True)
class _Half:
    """One of a thread's two rows of a tile: what is known of it."""

    row: ir.Value
    evaluator: Evaluator


@dataclass
class AgentCode:
    """The code of one agent, whose threads begin at `first`."""

    agent: schedule.AgentOp
    around: Surroundings
    first: int
    values: dict[int, object] = field(default_factory=dict)
    turns: dict[str, Slot] = field(default_factory=dict)  # by ring, the next slot
    memories: dict[int, GlobalBox] = field(default_factory=dict)  # what was read
    lanes: Lanes | None = None  # where a thread stands in the tile that was settled
    halves: list[_Half] = field(default_factory=list)  # of that tile
    issued: int = 0  # products
    waited: int = 0  # of them, those that are known to have ended

    def emit(self) -> None:
        body = [op.operation for op in walk(self.agent)][1:]
        names = {op.name.removeprefix("kitsune.") for op in body if op.name.startswith("kitsune.")}
        self.turns = {ring: self.around.rings[ring].start() for ring in self._rings(self.agent.operation)}
        if names <= set(_ASYNCHRONOUS):  # one thread begins what copy engines do
            if self.agent.count > 1:
                raise UnsupportedError(f"agent '{self.agent.label}' only copies, and has {self.agent.count} copies")
            with device.when(device.equal(device.thread(), self.first)):
                self.values[hash(self.agent.block.arguments[0])] = 0
                self._block(self.agent.block)
            return
        if self.agent.warp_count * warps.WARP != wgmma.THREADS:
            raise UnsupportedError(f"agent '{self.agent.label}' multiplies, and has {self.agent.warp_count} warps")
        group = device.div(device.sub(device.thread(), self.first), wgmma.THREADS)
        self.values[hash(self.agent.block.arguments[0])] = group
        with waits.together(device.add(group, 1), wgmma.THREADS, self._leader()):
            self._block(self.agent.block)

    @staticmethod
    def _leader() -> ir.Value:
        """Holds in one thread of each warpgroup."""
        return device.equal(device.mod(device.thread(), wgmma.THREADS), 0)

    def _rings(self, op: ir.Operation) -> list[str]:
        """The rings whose slots are opened in it."""
        opened = walk(op, schedule.AcquireOp.OPERATION_NAME, schedule.WaitOp.OPERATION_NAME)
        return list(dict.fromkeys(o.operands[0].owner.operation.opview.label for o in opened))

    def _block(self, block: ir.Block) -> None:
        for op in block.operations:
            op = op.operation
            name = op.name.removeprefix("kitsune.").replace(".", "_")
            with op.location:
                if op.name in _ARITHMETIC:
                    self.values[hash(op.results[0])] = _ARITHMETIC[op.name](*map(self.number, op.operands))
                elif (method := getattr(self, f"_{name}", None)) is not None:
                    method(op)
                elif op.name not in ("scf.yield", "tensor.empty", "linalg.generic", "linalg.fill"):
                    raise UnsupportedError(f"{location(op.location)}: an agent's {op.name} has no code on this target")

    def number(self, value: ir.Value) -> Int:
        """An index."""
        key = hash(value)
        if key not in self.values:
            self.values[key] = self._from_around(value)
        return self.values[key]

    def _from_around(self, value: ir.Value) -> Int:
        op = None if isinstance(value.owner, ir.Block) else value.owner.operation
        if op is not None and op.name == "arith.constant":
            return ir.IntegerAttr(op.attributes["value"]).value
        if op is not None and op.name == "tensor.dim":
            return self.around.rows
        raise UnsupportedError(f"an agent uses {value}, which is no number that the kernel is given")

    # ---- numbers

    def _arith_constant(self, op: ir.Operation) -> None:
        if isinstance(op.results[0].type, ir.IndexType):
            self.values[hash(op.results[0])] = ir.IntegerAttr(op.attributes["value"]).value

    def _arith_remui(self, op: ir.Operation) -> None:
        self._divided(op, device.mod, arith.remui)

    def _arith_divui(self, op: ir.Operation) -> None:
        self._divided(op, device.div, arith.divui)

    def _divided(self, op: ir.Operation, fold: Callable[..., Int], make: Callable[..., ir.Value]) -> None:
        a, b = map(self.number, op.operands)
        self.values[hash(op.results[0])] = fold(a, b) if isinstance(b, int) else make(device.value(a), b)

    def _arith_ceildivui(self, op: ir.Operation) -> None:
        a, b = map(self.number, op.operands)
        self.values[hash(op.results[0])] = device.div(device.add(a, b - 1), b)

    def _arith_minui(self, op: ir.Operation) -> None:
        self.values[hash(op.results[0])] = device.least(*map(self.number, op.operands))

    def _tiles(self, value: ir.Value) -> None:
        """The kernel's tiles, as this CTA's bounds."""
        op = value.owner.operation
        count: Int = 1
        for extent, size in zip(op.operands, op.opview.sizes):
            count = device.mul(count, device.div(device.add(self.number(extent), size - 1), size))
        for result, bound in zip(op.results, (device.cta(), count, device.ctas())):
            self.values[hash(result)] = bound

    def _scf_for(self, op: ir.Operation) -> None:
        for bound in list(op.operands)[:3]:
            owner = None if isinstance(bound.owner, ir.Block) else bound.owner.operation
            if owner is not None and owner.name == schedule.TilesOp.OPERATION_NAME and hash(bound) not in self.values:
                self._tiles(bound)
        bounds = [self.number(bound) for bound in list(op.operands)[:3]]
        rings = self._rings(op)
        starts = [self.values[hash(value)] for value in list(op.operands)[3:]]
        if not all(isinstance(start, _Acc) for start in starts):
            raise UnsupportedError(f"{location(op.location)}: a loop of an agent carries something besides sums")
        for start in starts:
            self._wait_for(start)
        counts = [len(start.values) for start in starts]
        block = op.regions[0].blocks[0]

        def body(counter: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            rest = self._resume(rings, carried)
            self.values[hash(block.arguments[0])] = counter
            self._turn()
            for argument, count in zip(list(block.arguments)[1:], counts):
                self.values[hash(argument)] = _Acc(rest[:count], self.issued)
                rest = rest[count:]
            self._block(block)
            given = [self.values[hash(value)] for value in list(block.operations)[-1].operation.operands]
            for acc in given:
                self._wait_for(acc)
            return [*self._turns(rings), *(x for acc in given for x in acc.values)]

        rest = device.loop(*bounds, body, [*self._turns(rings), *(x for start in starts for x in start.values)])
        rest = self._resume(rings, rest)
        for result, count in zip(op.results, counts):
            self.values[hash(result)] = _Acc(rest[:count], self.issued)
            rest = rest[count:]

    def _turn(self) -> None:
        """A turn of a loop begins: what was computed in another is not known."""
        self.memories, self.halves = {}, []

    def _turns(self, rings: list[str]) -> list[ir.Value]:
        return [x for ring in rings for x in (self.turns[ring].number, self.turns[ring].parity)]

    def _resume(self, rings: list[str], carried: list[ir.Value]) -> list[ir.Value]:
        for i, ring in enumerate(rings):
            self.turns[ring] = Slot(*carried[2 * i : 2 * i + 2])
        return carried[2 * len(rings) :]

    # ---- rings

    def _opened(self, op: ir.Operation) -> tuple[Ring, Slot]:
        ring = op.operands[0].owner.operation.opview
        code, slot = self.around.rings[ring.label], self.turns[ring.label]
        self.values[hash(op.results[0])] = _Open(ring, slot)
        self.turns[ring.label] = code.advance(slot)
        return code, slot

    def _acquire(self, op: ir.Operation) -> None:
        ring, slot = self._opened(op)
        ring.wait_empty(slot)
        mbarrier.expect(ring.full(slot), ring.slot_bytes)

    def _wait(self, op: ir.Operation) -> None:
        ring, slot = self._opened(op)
        ring.wait_full(slot)

    def _commit(self, op: ir.Operation) -> None:
        """The copies' bytes fill the slot."""

    def _release(self, op: ir.Operation) -> None:
        for token in list(op.operands)[1:]:
            self._wait_for(self.values[hash(token)])
        opened = self.values[hash(op.operands[0])]
        self.around.rings[opened.ring.label].release(opened.slot, self._leader())

    def _copy(self, op: ir.Operation) -> None:
        copy, opened = op.opview, self.values[hash(op.operands[0])]
        ring, slot = self.around.rings[opened.ring.label], opened.slot
        map_ = tma.map_pointer(self.around.maps, self.around.map_of[op])
        at = [self.number(offset) for offset in list(op.operands)[2:]]
        rows, columns = opened.ring.tile.shape
        along, length, across = (columns, columns, rows) if opened.ring.layout == "rows" else (rows, rows, columns)
        axis = copy.axes[1 if opened.ring.layout == "rows" else 0]
        each, matrix = wgmma.CHUNK, windows_of(op.operands[1])
        for number in range(length // each):
            place = list(at)
            place[axis] = device.add(at[axis], number * each)
            target = device.add(ring.place(slot), number * across * wgmma.BOX_ROW)
            if matrix is None:
                tma.load(map_, place[::-1], target, ring.full(slot))
            else:
                begin, offsets = first_of(matrix, place)
                tma.load_windows(map_, begin[::-1], offsets[::-1], target, ring.full(slot))

    # ---- products

    def _sums(self, op: ir.Operation) -> None:
        _, columns = ir.RankedTensorType(ir.TypeAttr(op.results[0].type.elem).value).shape
        self.values[hash(op.results[0])] = _Acc(wgmma.zeros(columns))

    def _product(self, op: ir.Operation) -> None:
        acc, left, right = (self.values[hash(operand)] for operand in op.operands)
        self._check(left.ring, right.ring, op)
        a_place, b_place = (self.around.rings[o.ring.label].place(o.slot) for o in (left, right))
        box = wgmma.ROWS * wgmma.BOX_ROW
        if left.ring.sharing == "split":
            group = device.sub(device.div(warps.thread(), wgmma.THREADS), self.first // wgmma.THREADS)
            a_place = device.add(a_place, device.mul(group, box))
        across = (left.ring.layout == "columns", right.ring.layout == "columns")
        b = wgmma.descriptor(b_place, wgmma.CHUNK * wgmma.BOX_ROW) if across[1] else wgmma.descriptor(b_place)
        a = wgmma.descriptor(a_place, box) if across[0] else wgmma.descriptor(a_place)
        element = str(left.ring.tile.element_type)
        if op.opview.is_added_outside:
            self._wait_for(acc)
            sums = wgmma.multiply(element, wgmma.zeros(2 * len(acc.values)), a, b, wgmma.STEPS, False, across)
            self.issued += 1
            sums = wgmma.add(acc.values, wgmma.wait_for(sums))
            self.waited = self.issued
        else:
            sums = wgmma.multiply(element, acc.values, a, b, wgmma.STEPS, False, across)
            self.issued += 1
        self.values[hash(op.results[0])] = self.values[hash(op.results[1])] = _Acc(sums, self.issued)

    def _check(self, left: schedule.AllocRingOp, right: schedule.AllocRingOp, op: ir.Operation) -> None:
        if left.tile.shape[1] != wgmma.CHUNK or left.tile.element_type.width != 16:
            raise UnsupportedError(f"{location(op.location)}: wgmma takes chunks of {wgmma.CHUNK} columns of 16 bits")
        if right.layout == "columns" and right.tile.shape[0] % wgmma.CHUNK:
            raise UnsupportedError(f"{location(op.location)}: boxes along columns are {wgmma.CHUNK} wide")
        if left.tile.shape[0] != wgmma.ROWS * (self.agent.count if left.sharing == "split" else 1):
            raise UnsupportedError(f"{location(op.location)}: a copy multiplies {wgmma.ROWS} rows")

    def _settle(self, op: ir.Operation) -> None:
        acc = self.values[hash(op.operands[0])]
        self._wait_for(acc)
        own = Boxes.of(warps.thread(), self._leader())
        rows = (own.own_row, device.value(device.add(own.own_row, BLOCK)))
        self.lanes = Lanes(rows, rows, own.pair)
        for memory in self.memories.values():
            memory.pair = own.pair
        self.halves = [_Half(rows[half], Evaluator(self.memories)) for half in HALVES]
        for half in HALVES:
            _know(self.halves[half].evaluator, hash(op.results[0]), acc, self.lanes, half)

    def _wait_for(self, acc: _Acc) -> None:
        """Until the product that made these sums has ended; those after it may go on."""
        if acc.number <= self.waited:
            return
        acc.values[:] = wgmma.wait_for(acc.values, self.issued - acc.number)
        self.waited = acc.number

    # ---- tiles in registers

    def _read(self, op: ir.Operation) -> None:
        read = op.opview
        at = [self.number(offset) for offset in list(op.operands)[1:]]
        pointer = self.around.pointers[hash(op.operands[0])]
        whole = self._whole(op.operands[0].type, list(op.operands)[1:], read.axes, op.results[0].type)
        box = GlobalBox(pointer, op.operands[0].type, self.around.rows, at, read.axes, whole)
        box.pair = self.lanes.pair if self.lanes else None
        self.memories[hash(op.results[0])] = box

    def _linalg_generic(self, op: ir.Operation) -> None:
        """Elementwise operators are computed where their elements are used, reductions where they stand: a thread's
        quarter of a row in four sums, then the quarters."""
        s = Structured(op)
        if "reduction" not in s.iterators:
            if len(s.iterators) == 1:  # of a row alone: once, before the branches in which its elements are written
                for half in self.halves:
                    half.evaluator(op.results[0], [half.row])
            return
        combine = row_combiner(s)
        width = next(shape_of(value)[-1] for value, map_ in zip(op.operands, s.maps) if len(map_.results) == 2)
        columns = [self.lanes.column(block, e) for block in range(blocks_of(width)) for e in (0, 1)]
        for half in self.halves:
            own = own_part(half.evaluator, s, combine, half.row, [(column, None) for column in columns])
            total = combine.across_warp(own, QUAD)
            start = half.evaluator(op.operands[s.inputs], [half.row])
            half.evaluator.know(op.results[0], [half.row], combine.join(start, total))

    def _write(self, op: ir.Operation) -> None:
        write, tile = op.opview, op.operands[0]
        at = [self.number(offset) for offset in list(op.operands)[1:]]
        pointer, type_ = self.around.outputs[write.position]
        whole = self._whole(type_, list(op.operands)[1:], write.axes, tile.type)
        box = GlobalBox(pointer, type_, self.around.rows, at, write.axes, whole)
        shape = ir.RankedTensorType(tile.type).shape
        for half in self.halves:
            if len(shape) == 1:
                x = half.evaluator(tile, [half.row])
                first = device.equal(self.lanes.pair, 0)
                with device.when(arith.andi(box.is_inside(0, half.row), first)):
                    box.store([half.row], x)
                continue
            blocks = range(blocks_of(shape[1]))
            words = (
                box.takes_words and len(blocks) % QUAD == 0 and _divisor(op.operands[1 + write.axes[1]]) % BLOCK == 0
            )
            for first in blocks[::_TOGETHER]:
                self._write_blocks(box, half, tile, blocks[first : first + _TOGETHER], words)

    def _whole(self, kind: ir.Type, at: Sequence[ir.Value], axes: Sequence[int], tile: ir.Type) -> list[int]:
        """The dimensions of a box along which a tensor of that type has all of it, wherever it is. Where copies of the
        agent have boxes one behind the other, the tensor may have nothing of the last of them."""
        sizes, box = ir.RankedTensorType(kind), ir.RankedTensorType(tile).shape
        known = [(dim, sizes.shape[axis], at[axis]) for dim, axis in enumerate(axes) if not sizes.is_dynamic_dim(axis)]
        return [
            dim
            for dim, size, start in known
            if _divisor(start) % box[dim] == 0 and size % (box[dim] * self._boxes_behind(start)) == 0
        ]

    def _boxes_behind(self, start: ir.Value) -> int:
        """How many copies of the agent have boxes that begin at an index and behind it."""
        values = [start]
        while values:
            value = values.pop()
            if value == self.agent.block.arguments[0]:
                return self.agent.count
            if not isinstance(value.owner, ir.Block):
                values += value.owner.operands
        return 1

    def _write_blocks(self, box: GlobalBox, half: _Half, tile: ir.Value, blocks: Sequence[int], words: bool) -> None:
        """Blocks of columns: all are computed, by all threads, then all stored, for no load can pass a store before it.
        With `words` a thread stores a block of a row, for which the four that share it exchange their pairs."""
        evaluator = half.evaluator.fork()
        columns = [self.lanes.column(block, 0) for block in blocks]
        values = [[evaluator(tile, [half.row, c]) for c in (column, column.moved(1))] for column in columns]
        if words:
            pairs = [pack(*pair, box.element) for pair in values]
            lane = device.div(self.lanes.pair, 2)
            own = [transposed(pairs[i : i + QUAD], lane) for i in range(0, len(pairs), QUAD)]
            start = device.mul(self.lanes.pair, BLOCK // 2)
            with box.where_inside(0, half.row):
                for block, whole in zip(blocks[::QUAD], own, strict=True):
                    column = Offset(start, BLOCK * block)
                    with box.where_inside(1, column):
                        box.store_word([half.row, column], whole)
            return
        with box.where_inside(0, half.row):
            for column, pair in zip(columns, values, strict=True):
                if box.takes_pairs:
                    with box.where_inside(1, column):
                        box.store_pair([half.row, column], pair)
                    continue
                for c, x in zip((column, column.moved(1)), pair, strict=True):
                    with box.where_inside(1, c):
                        box.store([half.row, c], x)


def _divisor(index: ir.Value) -> int:
    """A number that divides an index; 0 divides 0 alone."""
    op = None if isinstance(index.owner, ir.Block) else index.owner.operation
    if op is not None and op.name == "arith.constant":
        return ir.IntegerAttr(op.attributes["value"]).value
    if op is not None and op.name == "arith.muli":
        return prod(map(_divisor, op.operands))
    if op is not None and op.name == "arith.addi":
        return gcd(*map(_divisor, op.operands))
    return 1


def _know(evaluator: Evaluator, key: int, acc: _Acc, lanes: Lanes, half: int) -> None:
    """Tells what stands in registers, of one of a thread's rows."""
    for i, x in enumerate(acc.values):
        block, h, e = i // 4, i // 2 % 2, i % 2
        if h == half:
            evaluator.know_key(key, [lanes.rows[h], lanes.column(block, e)], x)
