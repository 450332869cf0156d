"""The code of an agent: its operations, one after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

from kitsune_mlir.codegen.hopper import cluster, waits, warps, wgmma
from kitsune_mlir.codegen.hopper.fragments import BLOCK, HALVES, Fragment, Lanes, PairedMemory, blocks_of
from kitsune_mlir.codegen.hopper.mbarrier import Slot
from kitsune_mlir.codegen.hopper.quads import QUAD
from kitsune_mlir.codegen.hopper.stores import Boxes, Outbox
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.codegen.pipeline.evaluate import Evaluator
from kitsune_mlir.dialects import schedule
from kitsune_mlir.dialects.captures import captures
from kitsune_mlir.dialects.checks import defined_by
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, attr_int, ir, location, walk
from kitsune_mlir.operations import producer
from kitsune_mlir.rows import Structured, shape_of

from . import parts, stores, whole_rows
from .boxes import patch_of
from .extents import divisor, is_from_tiles, whole_of
from .loops import Open
from .products import ProductCode
from .reductions import own_part, row_combiner
from .splitting import split, turn
from .stores import Half, Place, RowNumbers
from .vectors import VectorBox

_ASYNCHRONOUS = ("acquire", "copy", "commit", "select", "rank", "look_up")
_LAZY = (  # computed where elements of them are used
    *("tensor.empty", "tensor.extract_slice", "tensor.expand_shape", "tensor.collapse_shape"),
    *("linalg.generic", "linalg.fill", "linalg.transpose", "kitsune.select"),
)
_ARITHMETIC = {
    "arith.addi": device.add,
    "arith.subi": device.sub,
    "arith.muli": device.mul,
    "arith.divui": device.div,
    "arith.remui": device.mod,
    "arith.ceildivui": lambda a, b: device.div(device.add(a, b - 1), b),
    "arith.minui": device.least,
    "arith.maxui": device.most,
    "arith.maxsi": device.most,
}


@dataclass(kw_only=True)
class AgentCode(ProductCode):
    """The code of one agent."""

    def emit(self) -> None:
        body = [op.operation for op in walk(self.agent)][1:]
        names = {op.name.removeprefix("kitsune.") for op in body if op.name.startswith("kitsune.") and not _takes(op)}
        rings = [ring for ring in self._rings(self.agent.operation) if ring not in self.around.queues]
        if names <= set(_ASYNCHRONOUS):  # one thread begins what copy engines do, or two
            if self.agent.count > 1:
                raise UnsupportedError(f"agent '{self.agent.label}' only copies, and has {self.agent.count} copies")
            self._feed(rings)
            return
        if any(map(_takes, body)):
            raise UnsupportedError(f"agent '{self.agent.label}' takes tiles of other roles, and does not only copy")
        if "copy" in names:
            raise UnsupportedError(f"agent '{self.agent.label}' copies, and does not only that")
        if self.first % wgmma.THREADS:
            raise UnsupportedError(f"agent '{self.agent.label}' is warpgroups, and begins at thread {self.first}")
        self.turns = {ring: Slot.first() for ring in rings}
        self._begin_turns()
        if self.agent.warp_count * warps.WARP != wgmma.THREADS:
            raise UnsupportedError(f"agent '{self.agent.label}' multiplies, and has {self.agent.warp_count} warps")
        group = device.div(device.sub(device.thread(), self.first), wgmma.THREADS)
        self.values[hash(self.agent.block.arguments[0])] = group
        with waits.together(self._barrier(group), wgmma.THREADS, self._leader()):
            for ring, rows in self._short_slots().items():
                self._clear(ring, rows)
            self._block(self.agent.block)
            if self.agent.outbox_bytes:
                self._outbox().finish()

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
        op = producer(value)
        if is_from_tiles(value):
            self._tiles(value)
            return self.values[hash(value)]
        if op is not None and op.name == "arith.constant":
            return attr_int(op, "value")
        if op is not None and op.name == "tensor.dim":
            return self.around.size_of(value)
        if op is not None and op.name in _ARITHMETIC:  # of sizes
            return _ARITHMETIC[op.name](*map(self.number, op.operands))
        raise UnsupportedError(f"an agent uses {value}, which is no number that the kernel is given")

    # ---- numbers

    def _arith_constant(self, op: ir.Operation) -> None:
        if isinstance(op.results[0].type, ir.IndexType):
            self.values[hash(op.results[0])] = attr_int(op, "value")

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

    def _stand(self, tile: ir.Value) -> None:
        """Finds, once, where the thread stands in tiles as sums have them."""
        if self.halves:
            return
        own = self._own_boxes()
        rows = self._rows_of_sums(own, tile)
        self.lanes = Lanes(rows[:2], rows[:2], own.pair)
        for memory in self.memories.values():
            if isinstance(memory, VectorBox):
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
        tile = self._leaving(op.operands[0])
        self._take_up(op.results[0], parts.spread(tile, op.opview.columns))

    def _tensor_concat(self, op: ir.Operation) -> None:
        """Parts side by side are a tile of parts; others' elements are found where they are used."""
        found = [tile for value in op.operands if isinstance(tile := self.values.get(hash(value)), Fragment)]
        if len(found) < len(op.operands) or attr_int(op, "dim") != 1:
            return
        if (tile := parts.joined(found, op.results[0].type)) is not None:
            self._take_up(op.results[0], tile)

    def _read(self, op: ir.Operation) -> None:
        read = op.opview
        if read.is_of_boxes:
            self._read_boxes(op)
            return
        if isinstance(op.operands[0].type, schedule.Slot):
            opened, kind = self.values[hash(op.operands[0])], ir.RankedTensorType(op.results[0].type)
            start = device.mul(self.number(op.operands[1]), kind.element_type.width // 8)
            place = device.shared(device.add(self.around.place(opened), start))
            vector = PairedMemory(place, kind.element_type, tuple(kind.shape), kind.shape[0])
            self.memories[hash(op.results[0])] = vector
            return
        if "together" in op.attributes:
            if divisor(op.operands[2]) * ir.RankedTensorType(op.results[0].type).element_type.width % 128:
                raise UnsupportedError(
                    f"{location(op.location)}: rows are loaded together from no multiple of 16 bytes on"
                )
            row, column = map(self.number, list(op.operands)[1:])
            pointer = self._pointer(op.operands[0])
            self._stand(op.results[0])
            found = whole_rows.read(
                op, pointer, self._open_sizes(op.operands[0]), (row, column), self._own_boxes(), self.lanes
            )
            self._take_up(op.results[0], found)
            return
        box = self._box(op, self._whole(op.operands[0].type, list(op.operands)[1:], read))
        box.pair = self.lanes.pair if self.lanes else None
        if read.axes:
            first = divisor(list(op.operands)[1 + read.axes[-1]])
            box.aligned, box.even = first % BLOCK == 0, first % 2 == 0
        self.memories[hash(op.results[0])] = box
        if "ahead" in op.attributes:
            self._stand(op.results[0])
            *outer, width = ir.RankedTensorType(op.results[0].type).shape
            columns = [self.lanes.column(block, 0) for block in range(blocks_of(width))]
            if outer:
                box.load_ahead([half.row for half in self.halves], columns)
            elif parts.is_along_columns(op.results[0]):
                box.load_columns_ahead(columns)

    def _read_boxes(self, op: ir.Operation) -> None:
        """The tile of a slot, each warp its rows."""
        opened, kind = self.values[hash(op.operands[0])], ir.RankedTensorType(op.results[0].type)
        self._stand(op.results[0])
        own, tile = self._own_boxes(), Fragment(self.lanes, kind.element_type, tuple(kind.shape))
        for number, box in enumerate(self._boxes(opened)):
            for step in range(wgmma.STEPS):
                blocks = [len(HALVES) * (number * wgmma.STEPS + step) + i for i in (0, 1)]
                places = [(block, h) for block in blocks for h in HALVES]
                tile.words.update(zip(places, own.read(box, step), strict=True))
        self._take_up(op.results[0], tile)

    def _fill_boxes(self, op: ir.Operation) -> None:
        """A slot gets a tile, of which each warp stores its rows."""
        opened, tile = self.values[hash(op.operands[0])], self._leaving(op.operands[1])
        own = self._own_boxes()
        for number, box in enumerate(self._boxes(opened)):
            own.write(box, tile, number)

    def _split(self, op: ir.Operation) -> None:
        source, *targets = [self.values[hash(slot)] for slot in op.operands]
        lines, length = source.tile.shape if source.ring.layout == "rows" else source.tile.shape[::-1]
        places = [self.around.place(opened) for opened in (source, *targets)]
        thread = device.value(device.mod(device.thread(), wgmma.THREADS))
        if op.opview.is_turned:
            turn(*places, source.ring.slot_bytes, thread)
        else:
            split(places[0], places[1:], lines, length, thread)

    def _boxes(self, opened: Open) -> list[Int]:
        """Where the boxes of an open slot begin."""
        first, (rows, columns) = self.around.place(opened), opened.tile.shape
        if rows != wgmma.ROWS or columns % wgmma.CHUNK:
            raise UnsupportedError(
                f"threads fill and read slots of {wgmma.ROWS} rows and whole boxes, not {opened.tile}"
            )
        return [device.add(first, number * rows * wgmma.BOX_ROW) for number in range(columns // wgmma.CHUNK)]

    def _outbox(self) -> Outbox:
        """The boxes of the thread's copy; feeding threads come before those of all copies."""
        if self.first != wgmma.THREADS:
            raise UnsupportedError(f"the tiles of agent '{self.agent.label}' do not leave through boxes")
        boxes = self._own_boxes()
        return Outbox(self.around.maps, self.around.outboxes, boxes, self.agent.outboxes)

    def _whole(
        self, kind: ir.Type, at: Sequence[ir.Value], moves: schedule.ReadOp | schedule.WriteOp
    ) -> dict[int, int]:
        """`whole_of` with the box's sizes, but for dimensions that end within a block: a thread's columns go on to its
        end."""
        sizes = moves.box
        found = whole_of(self.agent, kind, at, moves.axes, sizes)
        return {dim: sizes[dim] for dim in found if sizes[dim] % BLOCK == 0}

    def _box(self, op: ir.Operation, whole: Mapping[int, int] = MappingProxyType({})) -> VectorBox:
        """The box that an operation reads or writes; the tensor has all of it along the dimensions in `whole`."""
        if op.name == schedule.ReadOp.OPERATION_NAME:
            pointer, type_, open_ = self._pointer(op.operands[0]), op.operands[0].type, self._open_sizes(op.operands[0])
        else:
            pointer, type_, open_ = self.around.outputs[op.opview.position]
        at = [self.number(offset) for offset in list(op.operands)[1 : 1 + ir.RankedTensorType(type_).rank]]
        return VectorBox(pointer, type_, open_, at, op.opview.axes, whole, *patch_of(op))

    def _open_sizes(self, value: ir.Value) -> list[ir.Value]:
        """The sizes of a tensor in global memory that are open until the call, or of all that one is selected of."""
        return self.around.sizes[hash(schedule.candidates(value)[0])]

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
        self._know_indices(op)
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

    def _know_indices(self, op: ir.Operation) -> None:
        """The numbers from around an operator that its body uses."""
        for value in captures(op):
            if isinstance(value.type, ir.IndexType) and not defined_by(value, "arith.constant"):
                self.memories[hash(value)] = Place(self.number(value))

    def _know_rows(self, op: ir.Operation, numbers: Sequence[ir.Value]) -> None:
        """Numbers of rows, which all threads of a row have."""
        rows = [half.row for half in self.halves]
        self.memories[hash(op.results[0])] = RowNumbers(list(zip(rows, numbers, strict=True)))
        self.of_rows.add(hash(op.results[0]))

    def _is_of_rows(self, s: Structured) -> bool:
        """Whether an elementwise operator is of rows alone: of numbers that all threads of a row have."""
        if len(s.iterators) == 1:
            return not parts.is_along_columns(s.op.results[0])
        inputs = s.given
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
        self._stand(tile)
        first, count, column = map(self.number, list(op.operands)[2:5])
        exists = [device.less(device.add(first, half.row), count) for half in self.halves]
        output, type_, _ = self.around.outputs[write.position]
        numbers = [half.evaluator(to, [half.row]) for half in self.halves]
        found = self._leaving(tile)
        self.may_send = False
        kind = ir.RankedTensorType(type_)
        whole_rows.write_to(op, output, kind, column, numbers, exists, found, self._outbox())

    def _write(self, op: ir.Operation) -> None:
        write, tile = op.opview, op.operands[0]
        offsets = list(op.operands)[1:]
        self._stand(tile)
        if write.engine_name is not None:
            self.may_send = False
            *batch, row, column = map(self.number, offsets)
            found = self._leaving(tile)
            found.loads = parts.is_of_tensors(tile)
            if schedule.PATCH in op.attributes:
                self._depart(self.around.map_of[op], found, (column, row, *reversed(batch)))
            elif write.engine_name == schedule.BY_ROWS:
                matrix = whole_rows.of_batch(*self.around.outputs[write.position], batch)
                whole_rows.write(*matrix, (row, column), self._outbox(), found)
            else:
                self._depart(self.around.map_of[op], found, (column, row))
            return
        _, type_, _ = self.around.outputs[write.position]
        box = self._box(op, self._whole(type_, offsets, write))
        if write.is_once:
            stores.column(box, self.halves, self.lanes, tile, device.equal(cluster.rank(), 0))
        elif ir.RankedTensorType(tile.type).rank == 1:
            stores.column(box, self.halves, self.lanes, tile)
        else:
            stores.tile(box, self.halves, self.lanes, tile, divisor(offsets[write.axes[-1]]))


def _takes(op: ir.Operation) -> bool:
    """Whether it opens or gives back a slot between roles, to copy out of it."""
    if op.name == schedule.WaitOp.OPERATION_NAME:
        return schedule.is_between(op.operands[0])
    return op.name == schedule.ReleaseOp.OPERATION_NAME and schedule.ring_of(op.operands[0]).is_between_roles
