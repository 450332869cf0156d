"""The code of an agent: its operations, one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod

from kitsune_mlir.codegen.gpu_reduction import Combiner
from kitsune_mlir.codegen.hopper import bulk, cluster, mbarrier, tf32, tma, waits, warps, wgmma
from kitsune_mlir.codegen.hopper.fragments import BLOCK, HALVES, Fragment, Lanes, PairedMemory, blocks_of, is_packed
from kitsune_mlir.codegen.hopper.frame import when_reading
from kitsune_mlir.codegen.hopper.mbarrier import Ring, Slot
from kitsune_mlir.codegen.hopper.quads import QUAD
from kitsune_mlir.codegen.hopper.stores import Boxes, Outbox
from kitsune_mlir.codegen.hopper.tile_ring import TileRing
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.codegen.pipeline.evaluate import Evaluator
from kitsune_mlir.dialects import schedule
from kitsune_mlir.dialects.windows import in_memory, windows_of
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, ir, location, vector, walk
from kitsune_mlir.rows import Structured, producer, shape_of

from . import parts, stores, whole_rows
from .between import BetweenCode, TileSlot, is_between
from .boxes import GlobalBox
from .exchanges import Totals
from .extents import divisor, is_from_tiles, whole_of
from .in_flight import Acc
from .loops import TOTALS, Open, sent_to
from .meetings import TURN, Meetings
from .reductions import own_part, row_combiner
from .stores import Half, RowNumbers
from .windows import first_of

_ASYNCHRONOUS = ("acquire", "copy", "commit", "select", "rank")
_LAZY = (  # computed where elements of them are used
    *("tensor.empty", "tensor.extract_slice", "tensor.expand_shape", "tensor.collapse_shape"),
    *("linalg.generic", "linalg.fill", "linalg.transpose", "kitsune.select"),
)
_ARITHMETIC = {
    "arith.addi": device.add,
    "arith.subi": device.sub,
    "arith.muli": device.mul,
}


@dataclass(frozen=True)
class Ctas:
    """The CTAs that run a part of a kernel: from number `first` on so many; all where that is not known."""

    first: int = 0
    count: int | None = None


@dataclass(frozen=True, kw_only=True)
class KernelAround:
    """What all agents use of the kernel around them."""

    pointers: dict[int, ir.Value]  # tensor -> its address
    outputs: dict[int, tuple[ir.Value, ir.Type]]  # output number -> its address and type
    queues: dict[str, TileRing]  # between roles
    maps: ir.Value | None
    map_of: dict[ir.Operation, int]  # copy -> number of its tensor map
    constant: dict[int, int]  # tensor that no kernel of the program writes -> its number
    rows: ir.Value  # the size that is open until the call
    base: ir.Value  # the address of shared memory
    cluster: int


@dataclass(frozen=True, kw_only=True)
class Surroundings(KernelAround):
    """What agents use of the kernel around them, and of the part of it that their CTA runs."""

    ctas: Ctas
    rings: dict[str, Ring]
    scratch: Int  # the address of what is behind the rings
    outboxes: Int  # that of the boxes through which tiles leave
    meetings: Meetings | None  # of the agent whose copies meet those of other CTAs
    totals: Totals | None  # of the agent whose copies tell those of other CTAs numbers


@dataclass(kw_only=True)
class AgentCode(BetweenCode):
    """The code of one agent."""

    agent: schedule.AgentOp
    around: Surroundings
    words: dict[tuple[int, ir.Block], list[list[ir.Value]]] = field(default_factory=dict)  # of f32, of the last operand

    def emit(self) -> None:
        body = [op.operation for op in walk(self.agent)][1:]
        names = {op.name.removeprefix("kitsune.") for op in body if op.name.startswith("kitsune.") and not _takes(op)}
        rings = [ring for ring in self._rings(self.agent.operation) if ring not in self.around.queues]
        if names <= set(_ASYNCHRONOUS):  # one thread begins what copy engines do, or two
            if self.agent.count > 1:
                raise UnsupportedError(f"agent '{self.agent.label}' only copies, and has {self.agent.count} copies")
            self._feed(rings)
            return
        self.turns = {ring: self._ring_of(ring).start() for ring in rings}
        self._begin_turns()
        if self.agent.warp_count * warps.WARP != wgmma.THREADS:
            raise UnsupportedError(f"agent '{self.agent.label}' multiplies, and has {self.agent.warp_count} warps")
        group = device.div(device.sub(device.thread(), self.first), wgmma.THREADS)
        self.values[hash(self.agent.block.arguments[0])] = group
        with waits.together(device.add(group, 1), wgmma.THREADS, self._leader()):
            for ring, rows in self._short_slots().items():
                self._clear(ring, rows)
            self._block(self.agent.block)
            if self.agent.outbox_bytes:
                self._outbox().finish()

    def _feed(self, rings: Sequence[str]) -> None:
        """A thread fills the rings. Those into which only constant tensors are copied are filled by a thread that does
        not wait for the kernel before (passes/overlap_launches.py), of another warp where there are others."""
        sources: dict[str, set[int]] = {ring: set() for ring in rings}
        maps = set(self.around.map_of.values())
        for copy in walk(self.agent, schedule.CopyOp.OPERATION_NAME):
            found = {hash(in_memory(source)) for source in schedule.candidates(copy.operands[1])}
            sources[schedule.ring_of(copy.operands[0]).label] |= found
            if found <= self.around.constant.keys():
                maps.discard(self.around.map_of.get(copy))
        early = [ring for ring in rings if sources[ring] <= self.around.constant.keys()]
        late = [ring for ring in rings if ring not in early]
        first, apart = device.equal(device.thread(), self.first), self.agent.warp_count > 1
        if late and early and apart:
            with device.when(first):
                for number in sorted(maps):
                    tma.prefetch_map(tma.map_pointer(self.around.maps, number))
        if early and (apart or not late):
            reads = {self.around.constant[source] for ring in early for source in sources[ring]}
            thread = device.equal(device.thread(), self.first + warps.WARP) if late else first
            with when_reading(thread, reads):
                self._fill_rings(early)
        else:
            late = rings
        if late:
            with device.when(first):
                self._fill_rings(late)

    def _fill_rings(self, rings: Sequence[str]) -> None:
        """The agent's operations on these rings."""
        self.values = {hash(self.agent.block.arguments[0]): 0}
        self.turns = {ring: self._ring_of(ring).start() for ring in rings}
        self._block(self.agent.block)

    def _ring_of(self, label: str) -> Ring | Meetings | Totals:
        """What has turns of that name."""
        of_cluster = {TURN: self.around.meetings, TOTALS: self.around.totals}
        if (found := of_cluster.get(label)) is not None:
            return found
        return next(ring for name, ring in self.around.rings.items() if label in (name, sent_to(name)))

    def _short_slots(self) -> dict[str, int]:
        """The rings of left operands that are filled in their first rows only, and those rows."""
        found = {}
        for op in walk(self.agent, schedule.ProductOp.OPERATION_NAME):
            left = op.operands[1]
            if isinstance(left.type, schedule.Slot) and (ring := schedule.ring_of(left)) is not None:
                rows = ir.RankedTensorType(ir.TypeAttr(left.type.elem).value).shape[0]
                if rows < ring.tile.shape[0]:
                    found[ring.label] = rows
        return found

    def _clear(self, label: str, rows: int) -> None:
        """Zeros in the rows of a ring's slots that no copy reaches, before products read them."""
        ring, (word, reached) = self.around.rings[label], (16, rows * wgmma.BOX_ROW)
        zero = vector.from_elements(ir.VectorType.get([word // 4], device.i32()), [device.value(0)] * (word // 4))

        def clear(i: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            for slot in range(ring.slots):
                place = device.add(device.add(ring.data, slot * ring.slot_bytes + reached), device.mul(i, word))
                device.store(zero, device.shared(place), align=word)
            return []

        thread = device.value(device.mod(device.thread(), wgmma.THREADS))
        device.loop(thread, (ring.slot_bytes - reached) // word, wgmma.THREADS, clear)
        tma.fence()
        group = device.sub(device.div(device.thread(), wgmma.THREADS), self.first // wgmma.THREADS)
        warps.barrier(device.add(group, 1), wgmma.THREADS)

    def _block(self, block: ir.Block) -> None:
        for op in block.operations:
            op = op.operation
            name = op.name.removeprefix("kitsune.").replace(".", "_")
            with op.location:
                if op.name in _ARITHMETIC:
                    self.values[hash(op.results[0])] = _ARITHMETIC[op.name](*map(self.number, op.operands))
                elif (method := getattr(self, f"_{name}", None)) is not None:
                    method(op)
                elif op.name not in _LAZY:
                    raise UnsupportedError(f"{location(op.location)}: an agent's {op.name} has no code on this target")

    def number(self, value: ir.Value) -> Int:
        """An index."""
        key = hash(value)
        if key not in self.values:
            self.values[key] = self._from_around(value)
        return self.values[key]

    def _from_around(self, value: ir.Value) -> Int:
        op = None if isinstance(value.owner, ir.Block) else value.owner.operation
        if is_from_tiles(value):
            self._tiles(value)
            return self.values[hash(value)]
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
        own = self.around.ctas
        numbers = device.cta(), device.ctas()
        if own.count is not None:
            numbers = device.sub(device.cta(), own.first), own.count
        first, ctas = (device.div(number, self.around.cluster) for number in numbers)
        for result, bound in zip(op.results, (first, count, ctas)):
            self.values[hash(result)] = bound

    def _rank(self, op: ir.Operation) -> None:
        self.values[hash(op.results[0])] = cluster.rank()

    # ---- rings

    def _opened(self, op: ir.Operation) -> tuple[Ring, Slot]:
        ring = op.operands[0].owner.operation.opview
        code, slot = self.around.rings[ring.label], self.turns[ring.label]
        tile = ir.RankedTensorType(ir.TypeAttr(op.results[0].type.elem).value)
        self.values[hash(op.results[0])] = Open(ring, slot, tile)
        self.turns[ring.label] = code.advance(slot)
        return code, slot

    def _acquire(self, op: ir.Operation) -> None:
        if is_between(op.operands[0]):
            self._open_between(op)
            return
        if op.operands[0].owner.operation.opview.label not in self.turns:
            return  # another thread fills it
        ring, slot = self._opened(op)
        ring.wait_empty(slot)
        mbarrier.expect(ring.full(slot), self.values[hash(op.results[0])].nbytes)

    def _wait(self, op: ir.Operation) -> None:
        if is_between(op.operands[0]):
            self._open_between(op)
            return
        ring, slot = self._opened(op)
        opened = self.values[hash(op.results[0])].ring
        if opened.memory == schedule.DSMEM:
            self._received(opened, slot)
        else:
            ring.wait_full(slot)

    def _commit(self, op: ir.Operation) -> None:
        """The copies' bytes fill the slot; one between roles is told to be full."""
        if isinstance(opened := self.values.get(hash(op.operands[0])), TileSlot):
            self._commit_between(opened)

    def _release(self, op: ir.Operation) -> None:
        for token in list(op.operands)[1:]:
            self.products.wait(self.values[hash(token)])
        opened = self.values[hash(op.operands[0])]
        if isinstance(opened, TileSlot):
            self._release_between(op, opened)
            return
        if opened.ring.memory == schedule.DSMEM:
            self._give_back(opened.ring, opened.slot)
            return
        if opened.ring.sharing == "own":
            self.may_stow = False
            return
        ring = self.around.rings[opened.ring.label]
        lane = device.mod(warps.thread(), warps.WARP)
        ring.release(opened.slot, device.equal(lane, 0) if ring.by_warps else self._leader())

    def _copy(self, op: ir.Operation) -> None:
        copy, opened = op.opview, self.values.get(hash(op.operands[0]))
        if opened is None:
            return  # another thread's slot
        ring, slot = self.around.rings[opened.ring.label], opened.slot
        if copy.elements is not None:
            nbytes = opened.tile.element_type.width // 8
            place = device.add(ring.place(slot), copy.elements.start * nbytes)
            bulk.load(self.around.pointers[hash(op.operands[1])], place, len(copy.elements) * nbytes, ring.full(slot))
            return
        number: Int = self.around.map_of[op]
        if len(schedule.candidates(op.operands[1])) > 1:
            number = device.add(number, self.number(op.operands[1].owner.operands[0]))
        map_ = tma.map_pointer(self.around.maps, number)
        at = [self.number(offset) for offset in list(op.operands)[2:]]
        if isinstance(source := self.values.get(hash(op.operands[1])), TileSlot):
            at[0] = device.add(at[0], source.ring.row(source.tile))
        rows, columns = opened.tile.shape
        along, length, across = (columns, columns, rows) if opened.ring.layout == "rows" else (rows, rows, columns)
        axis = copy.axes[1 if opened.ring.layout == "rows" else 0]
        nbytes = opened.tile.element_type.width // 8
        each, matrix = wgmma.BOX_ROW // nbytes, windows_of(op.operands[1])
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
        over = [tile for value in op.operands if isinstance(tile := self.values.get(hash(value)), Fragment)]
        found = parts.registers(over) if over and len(over) == len(op.operands) else None
        if op.opview.begins:
            if found is None:
                raise UnsupportedError(f"{location(op.location)}: sums begin with wide parts of tiles")
            self.values[hash(op.results[0])] = Acc(found)
            return
        made = Acc(found or wgmma.zeros(columns), is_new=True, is_zero=found is None)
        self.values[hash(op.results[0])] = made

    def _product(self, op: ir.Operation) -> None:
        acc, left, right = (self.values[hash(operand)] for operand in op.operands)
        b_place, b_across = self.around.rings[right.ring.label].place(right.slot), right.ring.layout == "columns"
        b = wgmma.descriptor(b_place, wgmma.CHUNK * wgmma.BOX_ROW) if b_across else wgmma.descriptor(b_place)
        element = str(right.ring.tile.element_type)
        a: ir.Value | list[ir.Value]
        if isinstance(left, Fragment) or element == "f32":
            a = self._left_words(left, right.ring, op)
            steps, a_across = len(a) // wgmma.STEPS, False
        else:
            a, a_across = self._left_box(left, right.ring, op)
            steps = -(-left.tile.shape[1] // wgmma.STEP)
        across = (a_across, b_across)
        if op.opview.is_added_outside:
            total = self.products.settle(acc)
            sums = wgmma.multiply(element, wgmma.zeros(2 * len(total)), a, b, steps, False, across)
            made = self.products.ended(wgmma.add(total, wgmma.wait_for(sums)))
        else:
            made = self.products.add(wgmma.multiply(element, acc.values, a, b, steps, acc.is_new, across))
        self.values[hash(op.results[0])], self.values[hash(op.results[1])] = made

    def _left_words(self, left: Fragment | Open, right: schedule.AllocRingOp, op: ir.Operation) -> list[ir.Value]:
        """The left operand in registers; of f32 the tf32 numbers that are multiplied."""
        if isinstance(left, Fragment) and is_packed(left.element):
            return parts.left_words(left)
        key, piece = (hash(op.operands[1]), ir.InsertionPoint.current.block), op.opview.piece
        if key not in self.words:
            words = parts.left_words(left) if isinstance(left, Fragment) else self._read_box(left, right, op)
            words = self.products.unread(words, op)
            self.words = {key: tf32.operands(words, 1 if piece is None else len(schedule.PIECES))}
        return self.words[key][0 if piece is None else schedule.PIECES.index(piece)]

    def _read_box(self, left: Open, right: schedule.AllocRingOp, op: ir.Operation) -> list[ir.Value]:
        """A slot of f32, each warp its rows."""
        self._check(left.ring, right, op)
        place = self._left_place(left)
        own, steps = Boxes.of(warps.thread(), self._leader()), -(-left.tile.shape[1] * 4 // wgmma.STEP_BYTES)
        return [word for step in range(steps) for word in own.read(place, step)]

    def _left_box(self, left: Open, right: schedule.AllocRingOp, op: ir.Operation) -> tuple[ir.Value, bool]:
        """The descriptor of the left operand in a slot, the copy's part of it, and whether it lies across."""
        self._check(left.ring, right, op)
        place, box = self._left_place(left), wgmma.ROWS * wgmma.BOX_ROW
        across = left.ring.layout == "columns"
        return wgmma.descriptor(place, box) if across else wgmma.descriptor(place), across

    def _left_place(self, left: Open) -> Int:
        """Where the copy's rows of a slot begin, which its products read."""
        if left.ring.memory == schedule.DSMEM:
            return self._own_ring(left.ring).place(left.slot)
        place = self.around.rings[left.ring.label].place(left.slot)
        if left.ring.sharing == "own":
            self._see()
        return place if left.ring.sharing == "all" else device.add(place, self._own_part())

    def _check(self, left: schedule.AllocRingOp, right: schedule.AllocRingOp, op: ir.Operation) -> None:
        nbytes = left.tile.element_type.width // 8
        if left.tile.shape[1] * nbytes != wgmma.BOX_ROW or nbytes == 4 and "columns" in (left.layout, right.layout):
            raise UnsupportedError(
                f"{location(op.location)}: wgmma takes chunks of {wgmma.BOX_ROW} bytes, of f32 along columns"
            )
        if right.layout == "columns" and right.tile.shape[0] % wgmma.CHUNK:
            raise UnsupportedError(f"{location(op.location)}: boxes along columns are {wgmma.CHUNK} wide")
        if left.tile.shape[0] != wgmma.ROWS * (1 if left.sharing == "all" else self.agent.count):
            raise UnsupportedError(f"{location(op.location)}: a copy multiplies {wgmma.ROWS} rows")

    def _settle(self, op: ir.Operation) -> None:
        sums = self.products.settle(self._begun(self.values[hash(op.operands[0])]))
        self._stand(op.results[0])
        each = len(sums) // (len(self.halves) // len(HALVES))  # of 16 rows
        for number, half in enumerate(self.halves):
            tile, h = divmod(number, len(HALVES))
            _know(half, hash(op.results[0]), sums[tile * each : (tile + 1) * each], self.lanes, h)
        if len(self.halves) == len(HALVES):
            self.values[hash(op.results[0])] = parts.of_sums(sums, op.results[0].type, self.lanes)

    def _meet(self, op: ir.Operation) -> None:
        kind, tile = ir.RankedTensorType(op.results[0].type), self.values[hash(op.operands[0])]
        meetings, turn = self.around.meetings, self.turns[TURN]
        sums = parts.registers([tile]) if isinstance(tile, Fragment) else None
        if meetings is None or sums is None:
            raise UnsupportedError(f"{location(op.location)}: what CTAs add up are sums that were settled")
        group = self._group()
        totals = meetings.add_up(sums, turn, group, self._leader(), device.add(group, 1))
        self.turns[TURN] = meetings.advance(turn)
        for h, half in enumerate(self.halves):
            _know(half, hash(op.results[0]), totals, self.lanes, h)
        self.values[hash(op.results[0])] = parts.of_sums(totals, kind, self.lanes)

    def _total(self, op: ir.Operation) -> None:
        value, totals, turn = op.operands[0], self.around.totals, self.turns[TOTALS]
        assert totals is not None
        combine = Combiner(op.opview.join_name, ir.F32Type.get())
        index = [0] * (len(shape_of(value)) - 1)
        numbers = [half.evaluator(value, [half.row, *index]) for half in self.halves]
        own = Boxes.of(warps.thread(), self._leader())
        self._know_rows(op, totals.joined(numbers, combine.join, turn, self._group(), own))
        self.turns[TOTALS] = totals.advance(turn)

    def _stand(self, tile: ir.Value) -> None:
        """Finds, once, where the thread stands in tiles as sums have them."""
        if self.halves:
            return
        own = Boxes.of(warps.thread(), self._leader())
        rows = self._rows_of_sums(own, tile)
        self.lanes = Lanes(rows[:2], rows[:2], own.pair)
        for memory in self.memories.values():
            if isinstance(memory, GlobalBox):
                memory.pair = own.pair
        self.halves = [Half(row, Evaluator(self.memories)) for row in rows]

    def _rows_of_sums(self, own: Boxes, tile: ir.Value) -> tuple[ir.Value, ...]:
        """A thread's rows of a tile of sums: of 16, the first and that 8 rows on."""
        return own.own_row, device.value(device.add(own.own_row, BLOCK))

    # ---- tiles in registers

    def _part(self, op: ir.Operation) -> None:
        self._stand(op.operands[0])
        if len(self.halves) != len(HALVES):
            raise UnsupportedError(f"{location(op.location)}: parts of tiles are for warpgroups")
        self._take_up(op.results[0], parts.part(op.opview, self.halves, self.lanes))

    def _spread(self, op: ir.Operation) -> None:
        tile = parts.leaving(op.operands[0], self.halves, self.lanes, self.values.get(hash(op.operands[0])))
        self._take_up(op.results[0], parts.spread(tile, op.opview.columns))

    def _tensor_concat(self, op: ir.Operation) -> None:
        """Parts side by side are a tile of parts; others' elements are found where they are used."""
        found = [tile for value in op.operands if isinstance(tile := self.values.get(hash(value)), Fragment)]
        if len(found) < len(op.operands) or ir.IntegerAttr(op.attributes["dim"]).value != 1:
            return
        if (tile := parts.joined(found, op.results[0].type)) is not None:
            self._take_up(op.results[0], tile)

    def _read(self, op: ir.Operation) -> None:
        read = op.opview
        at = [self.number(offset) for offset in list(op.operands)[1:]]
        if isinstance(op.operands[0].type, schedule.Slot):
            opened, kind = self.values[hash(op.operands[0])], ir.RankedTensorType(op.results[0].type)
            start = device.mul(at[0], kind.element_type.width // 8)
            place = device.shared(device.add(self.around.rings[opened.ring.label].place(opened.slot), start))
            vector = PairedMemory(place, kind.element_type, tuple(kind.shape), kind.shape[0])
            self.memories[hash(op.results[0])] = vector
            return
        pointer = self._pointer(op.operands[0])
        if "together" in op.attributes:
            self._stand(op.results[0])
            own = Boxes.of(warps.thread(), self._leader())
            self._take_up(op.results[0], whole_rows.read(op, pointer, self.around.rows, at[0], own, self.lanes))
            return
        whole = self._whole(op.operands[0].type, list(op.operands)[1:], read.axes, op.results[0].type)
        box = GlobalBox(pointer, op.operands[0].type, self.around.rows, at, read.axes, whole)
        box.pair = self.lanes.pair if self.lanes else None
        if read.axes:
            box.aligned = divisor(list(op.operands)[1 + read.axes[-1]]) % BLOCK == 0
        self.memories[hash(op.results[0])] = box
        if "ahead" in op.attributes:
            self._stand(op.results[0])
            blocks = blocks_of(ir.RankedTensorType(op.results[0].type).shape[1])
            box.load_ahead([half.row for half in self.halves], [self.lanes.column(block, 0) for block in range(blocks)])

    def _outbox(self) -> Outbox:
        """The boxes of the thread's copy; feeding threads come before those of all copies."""
        if self.first != wgmma.THREADS:
            raise UnsupportedError(f"the tiles of agent '{self.agent.label}' do not leave through boxes")
        return Outbox(self.around.maps, self.around.outboxes, Boxes.of(warps.thread(), self._leader()))

    def _whole(self, kind: ir.Type, at: Sequence[ir.Value], axes: Sequence[int], tile: ir.Type) -> dict[int, int]:
        """`whole_of` with the box's sizes, but for dimensions that end within a block: a thread's columns go on to its
        end."""
        sizes = ir.RankedTensorType(tile).shape
        return {dim: sizes[dim] for dim in whole_of(self.agent, kind, at, axes, tile) if sizes[dim] % BLOCK == 0}

    def _pointer(self, value: ir.Value) -> ir.Value:
        """The address of a tensor in global memory, or of the one that is selected of several."""
        first, *more = [self.around.pointers[hash(source)] for source in schedule.candidates(value)]
        for number, other in enumerate(more, 1):
            here = device.equal(self.number(value.owner.operands[0]), number)
            first = arith.select(here, other, first)
        return first

    def _linalg_generic(self, op: ir.Operation) -> None:
        """Elementwise operators are computed where their elements are used, reductions where they stand: a thread's
        quarter of a row in four sums, then the quarters."""
        s = Structured(op)
        for table in s.tables():
            self._know_table(table)
        if "reduction" not in s.iterators:
            if self._is_of_rows(s):  # once, before the branches in which its elements are written
                if shape_of(op.results[0])[0] == wgmma.ROWS:
                    self._stand(op.results[0])
                index = [0] * (len(s.iterators) - 1)
                self._know_rows(op, [half.evaluator(op.results[0], [half.row, *index]) for half in self.halves])
            return
        self._stand(op.operands[0])
        combine = row_combiner(s)
        width = next(shape_of(value)[-1] for value, map_ in zip(op.operands, s.maps) if len(map_.results) == 2)
        places = [self.lanes.column(block, e) for block in range(blocks_of(width)) for e in (0, 1)]
        columns = [(at, None if device.is_less(at, width) else device.less(at, width)) for at in places]
        numbers = []
        for half in self.halves:
            own = own_part(half.evaluator, s, combine, half.row, columns)
            total = combine.across_warp(own, QUAD)
            index = [half.row, *([0] * (len(shape_of(op.results[0])) - 1))]
            start = half.evaluator(op.operands[s.inputs], index)
            numbers.append(combine.join(start, total))
        self._know_rows(op, numbers)

    def _know_rows(self, op: ir.Operation, numbers: Sequence[ir.Value]) -> None:
        """Numbers of rows, which all threads of a row have."""
        rows = [half.row for half in self.halves]
        self.memories[hash(op.results[0])] = RowNumbers(list(zip(rows, numbers, strict=True)))
        self.of_rows.add(hash(op.results[0]))

    def _is_of_rows(self, s: Structured) -> bool:
        """Whether an elementwise operator is of rows alone: of numbers that all threads of a row have."""
        if len(s.iterators) == 1:
            return True
        inputs = list(s.op.operands)[: s.inputs]
        return shape_of(s.op.results[0])[1:] == [1] and all(hash(value) in self.of_rows for value in inputs)

    def _know_table(self, table: ir.Value) -> None:
        """Rows of a tensor in global memory are gathered, or of columns of one."""
        sliced = producer(table)
        if sliced is not None and sliced.name == "tensor.extract_slice" and len(sliced.operands) == 2:
            whole, first = sliced.operands
            kind, width = ir.RankedTensorType(table.type), shape_of(whole)[1]
            pointer = device.offset(self._pointer(whole), device.value(self.number(first)), kind.element_type)
            self.memories[hash(table)] = PairedMemory(pointer, kind.element_type, tuple(kind.shape), width)
        if hash(table) in self.memories or hash(table) not in self.around.pointers:
            return
        kind = ir.RankedTensorType(table.type)
        sizes = tuple(kind.shape)
        pointer = self.around.pointers[hash(table)]
        self.memories[hash(table)] = PairedMemory(pointer, kind.element_type, sizes, prod(sizes[1:]))

    def _write_rows(self, op: ir.Operation) -> None:
        write, tile, to = op.opview, op.operands[0], op.operands[1]
        first, count, column = map(self.number, list(op.operands)[2:])
        exists = [device.less(device.add(first, half.row), count) for half in self.halves]
        output, type_ = self.around.outputs[write.position]
        numbers = [half.evaluator(to, [half.row]) for half in self.halves]
        found = parts.leaving(tile, self.halves, self.lanes, self.values.get(hash(tile)))
        self.may_send = False
        kind = ir.RankedTensorType(type_)
        whole_rows.write_to(op, output, kind, column, numbers, exists, found, self._outbox())

    def _write(self, op: ir.Operation) -> None:
        write, tile = op.opview, op.operands[0]
        offsets = list(op.operands)[1:]
        if write.engine_name is not None:
            self.may_send = False
            self._stand(tile)
            row, column = map(self.number, offsets)
            found = parts.leaving(tile, self.halves, self.lanes, self.values.get(hash(tile)))
            if write.engine_name == schedule.BY_ROWS:
                pointer, type_ = self.around.outputs[write.position]
                whole_rows.write(pointer, type_, self.around.rows, (row, column), self._outbox(), found)
            else:
                self._depart(self.around.map_of[op], found, (column, row))
            return
        pointer, type_ = self.around.outputs[write.position]
        whole = self._whole(type_, offsets, write.axes, tile.type)
        box = GlobalBox(pointer, type_, self.around.rows, list(map(self.number, offsets)), write.axes, whole)
        if write.is_once:
            stores.column(box, self.halves, self.lanes, tile, device.equal(cluster.rank(), 0))
        elif ir.RankedTensorType(tile.type).rank == 1:
            stores.column(box, self.halves, self.lanes, tile)
        else:
            stores.tile(box, self.halves, self.lanes, tile, divisor(offsets[write.axes[1]]))


def _takes(op: ir.Operation) -> bool:
    """Whether it opens or gives back a slot between roles, to copy out of it."""
    if op.name == schedule.WaitOp.OPERATION_NAME:
        return is_between(op.operands[0])
    return op.name == schedule.ReleaseOp.OPERATION_NAME and schedule.ring_of(op.operands[0]).memory == schedule.L2


def _know(half: Half, key: int, sums: list[ir.Value], lanes: Lanes, number: int) -> None:
    """Tells what stands in registers, of one of a thread's rows, the first or second of 16."""
    for i, x in enumerate(sums):
        block, h, e = i // 4, i // 2 % 2, i % 2
        if h == number:
            half.evaluator.know_key(key, [half.row, lanes.column(block, e)], x)
