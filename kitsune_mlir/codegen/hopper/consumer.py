"""A consumer warpgroup at work on its 64 rows of a tile: products, epilogues, row reductions, stores.

What the code computes comes from the stage bodies through the evaluator (codegen/pipeline/evaluate.py); this file
says where it stands: sums and held tiles in registers, boxes of weights in the rings.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.codegen.pipeline.evaluate import Evaluator
from kitsune_mlir.codegen.pipeline.loops import IDENTITY, combine, combiner_of, is_zero, loop_extents, unflatten
from kitsune_mlir.codegen.pipeline.memory import Memory, element_of, shape_of
from kitsune_mlir.codegen.pipeline.nests import MAP, PRODUCT, Nest, kitsune_label
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, ir

from . import mbarrier, wgmma
from .exchange import Exchange
from .fragments import BLOCK, HALVES, Fragment, Lanes, PairedMemory, blocks_of, is_packed, pack
from .mbarrier import Ring, Slot
from .operands import is_exchanged, is_held, is_loaded, is_only_operand
from .program import Block, Product, Program, Segment
from .stash import Stash
from .stores import BOX_BYTES, BoxWriter, Outbox
from .tile_ring import TileRing

QUAD = (1, 2)  # lane distances between the four threads of a row


@dataclass
class Rings:
    """The rings that a warpgroup reads, each with the slot it comes to next, and its end of the cluster's exchange."""

    weights: Ring
    tiles: Ring | None
    weight: Slot
    tile: Slot | None
    exchange: Exchange | None = None

    def state(self) -> list[ir.Value]:
        slots = [self.weight] if self.tile is None else [self.weight, self.tile]
        counted = [] if self.exchange is None else self.exchange.state()
        return [*(x for slot in slots for x in (slot.number, slot.parity)), *counted]

    def resume(self, state: list[ir.Value]) -> None:
        self.weight, rest = Slot(*state[:2]), state[2:]
        if self.tile is not None:
            self.tile, rest = Slot(*rest[:2]), rest[2:]
        if self.exchange is not None:
            self.exchange.resume(rest)


@dataclass
class Around:
    """What a warpgroup uses from the kernel around it. `tensors` and `outputs` give addresses of whole tensors by
    the value's key and by the output's number, `vectors` is the address of the vectors in shared memory."""

    tensors: dict[int, ir.Value]
    outputs: dict[int, ir.Value]
    vectors: ir.Value
    first_row: ir.Value  # of the tile, i64
    valid: ir.Value  # rows of the tile that exist
    group_rows: Int  # first row of the warpgroup in the tile
    leader: ir.Value  # i1: the thread that arrives for the warpgroup
    outbox: Outbox | None
    first_column: ir.Value | None = None  # of the tile, where the grid deals out columns too
    tile: ir.Value | None = None  # its number
    queues: dict[str, TileRing] = field(default_factory=dict)  # to and from other CTAs
    stashes: Int = 0  # the warpgroup's boxes for tiles that wait
    writer: BoxWriter | None = None


class Consumer:
    """Emits the code of one tile. `sums` are registers handed from product to product."""

    def __init__(self, program: Program, lanes: Lanes, rings: Rings, around: Around, sums: list[ir.Value]):
        self._program, self._lanes, self._rings, self._around = program, lanes, rings, around
        self._sums = sums
        self._tiles: dict[str, Fragment | Stash] = {}  # by queue
        self._shares = {columns: self._share_lanes(columns) for columns in program.shares()}

    def _share_lanes(self, columns: int) -> tuple[Lanes, Int]:
        """The thread in the CTA's share of a tile, of so many columns, and the share's first column."""
        exchange = self._rings.exchange
        if exchange is None:
            return self._lanes, 0
        start = device.mul(exchange.rank, columns)
        return self._lanes.shifted(device.value(start), columns * exchange.ctas), start

    def share(self, width: int) -> tuple[int, Lanes, Int]:
        """How many columns of a tile `width` wide the CTA computes, where its threads stand there, and the first."""
        columns = self._program.share(width)
        if columns == width:
            return columns, self._lanes, 0
        return columns, *self._shares[columns]

    def stash(self, value: ir.Value) -> Stash | None:
        """Where a tile waits for a later product."""
        box = self._program.stashes.get(hash(value))
        return None if box is None else Stash(device.add(self._around.stashes, box * BOX_BYTES))

    @property
    def writer(self) -> BoxWriter:
        assert self._around.writer is not None
        return self._around.writer

    @property
    def exchange(self) -> Exchange | None:
        return self._rings.exchange

    def emit(self) -> None:
        for block in self._program.blocks:
            with block.stage.operation.location:
                if len(block.stages) == 1:
                    self._stage(block, 0)
                else:
                    self._loop(block)

    def _loop(self, block: Block) -> None:
        """Equal stages: the tile between them, the sums and the rings' slots go round."""
        got, put = (kitsune_label(op.operands[0]) for op in (block.stage.gets[0], block.stages[-1].puts[0]))
        tile = self._tiles[got]
        assert isinstance(tile, Fragment)
        carried_words = tile.words
        if self.exchange is not None and all(is_only_operand(get.results[0]) for get in block.stage.gets):
            carried_words = {}  # products read the exchanged tile
        elif tile.values:
            raise UnsupportedError("equal stages that hand on f32 tiles are not chained")
        keys, words = list(carried_words), list(carried_words.values())

        def body(number: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            count = len(self._sums)
            self._sums, rest = carried[:count], carried[count:]
            self._tiles[got] = Fragment(tile.lanes, tile.element, tile.shape, dict(zip(keys, rest)))
            self._rings.resume(rest[len(keys) :])
            self._stage(block, number)
            result = self._tiles[kitsune_label(block.stage.puts[0].operands[0])]
            return [*self._sums, *(result.words[key] for key in keys), *self._rings.state()]

        start = [*self._sums, *words, *self._rings.state()]
        count = len(self._sums)
        results = device.loop(0, len(block.stages), 1, body, start)
        self._sums, rest = results[:count], results[count:]
        self._tiles[put] = Fragment(tile.lanes, tile.element, tile.shape, dict(zip(keys, rest)))
        self._rings.resume(rest[len(keys) :])

    def _stage(self, block: Block, number: Int) -> None:
        """Stage `number` of a block."""
        memories: dict[int, Memory] = {}
        for get in block.stage.gets:
            if (label := kitsune_label(get.operands[0])) not in self._around.queues:
                memories[hash(get.results[0])] = self._tiles[label]
        for load in block.stage.loads:
            memories[hash(load.results[0])] = self._rows_of(load)
        for value in block.stage.residents:
            memories[hash(value)] = self._resident(block, value, number)
        stage = _Stage(self, block, number, memories)
        for nest in block.nests:
            with (nest.op or nest.value.owner).location:
                stage.emit(nest)
        for put in block.stage.puts:
            if (label := kitsune_label(put.operands[0])) not in self._around.queues:
                tile = memories[hash(put.operands[1])]
                assert isinstance(tile, Fragment | Stash)
                self._tiles[label] = tile
        self._hand_over(block.stage)

    def _hand_over(self, stage: kitsune.StageOp) -> None:
        """Tells other CTAs that tiles are there, and that slots are free."""
        queues = self._around.queues
        with device.when(self._around.leader):
            for get in stage.gets:
                if (queue := queues.get(kitsune_label(get.operands[0]))) is not None:
                    queue.release(self._around.tile)
            for put in stage.puts:
                if (queue := queues.get(kitsune_label(put.operands[0]))) is not None:
                    queue.publish(self._around.tile)

    def put(self, tile: Fragment, put: kitsune.PutOp, columns: int, start: Int) -> None:
        """Sends columns of a tile to other CTAs; a slot is waited for before the first of them."""
        label = kitsune_label(put.operands[0])
        queue, number = self._around.queues[label], self._around.tile
        condition = self._around.leader
        if not isinstance(start, int):
            condition = arith.andi(condition, device.equal(start, 0))
        with device.when(condition):
            queue.wait_empty(number)
        assert self._around.outbox is not None
        row = device.add(queue.row(number), self._around.group_rows)
        self._around.outbox.store(self._program.put_maps[label], tile, columns, (start, row))

    def _rows_of(self, load: ir.Operation) -> PairedMemory:
        """The tile's rows of a whole tensor."""
        pointer = self._around.tensors[hash(load.operands[0])]
        return self._tile_rows(pointer, load.results[0])

    def _tile_rows(self, pointer: ir.Value, tile: ir.Value) -> PairedMemory:
        element, shape = element_of(tile), shape_of(tile)
        memory = PairedMemory(pointer, element, shape, prod(shape[1:]), self._lanes)
        i64 = ir.IntegerType.get_signless(64)
        start = arith.muli(self._around.first_row, arith.constant(i64, memory.stride))
        memory.pointer = device.offset(pointer, start, element)
        return memory

    def _resident(self, block: Block, value: ir.Value, number: Int) -> Memory:
        shape = shape_of(value)
        if (at := block.vectors.get(hash(value))) is None:
            return PairedMemory(self._around.tensors[hash(value)], element_of(value), shape, prod(shape[1:]))
        place = device.add(device.mul(number, block.vector_step), at)
        pointer = device.offset(self._around.vectors, place, ir.IntegerType.get_signless(8))
        return PairedMemory(pointer, element_of(value), shape, prod(shape[1:]))

    # Products

    def product(self, product: Product, operands: list[Fragment | Stash | None]) -> list[ir.Value]:
        """The sums of one pass over k. An operand that comes through a ring or from other CTAs is None."""
        count, element = product.columns // 2, str(element_of(product.op.operands[1]))
        sums, waiting, first = self._sums[:count], None, True
        wgmma.fence()
        for segment, operand in zip(product.segments, operands):
            for part, chunk in itertools.product(range(segment.parts), range(segment.chunks)):
                if part == 1 and chunk == 0:
                    assert self.exchange is not None
                    self.exchange.receive()
                self._rings.weights.wait_full(self._rings.weight)
                b = wgmma.descriptor(self._rings.weights.place(self._rings.weight))
                steps = segment.steps(chunk)
                if isinstance(operand, Stash):
                    a = operand.chunk(chunk)
                elif operand is not None:
                    start = chunk * wgmma.CHUNK // wgmma.STEP
                    a = [word for step in range(steps) for word in operand.step(start + step)]
                elif segment.parts > 1:
                    assert self.exchange is not None
                    a = wgmma.descriptor(self.exchange.box(self.exchange.part(part), chunk))
                else:
                    a = self._streamed_chunk()
                sums = wgmma.multiply(element, sums, a, b, steps, first)
                if waiting is not None:
                    wgmma.wait(1)
                    self._release(waiting)
                waiting, first = self._step_on(segment.rows_map is not None), False
        sums = wgmma.wait_for(sums)
        assert waiting is not None
        self._release(waiting)
        if product.frees:
            assert self.exchange is not None
            self.exchange.release()
        self._sums = sums + self._sums[count:]
        return sums

    def long_product(self, product: Product, segment: Segment) -> list[ir.Value]:
        """As `product`, of one streamed operand with many chunks: a loop over k."""
        count, element = product.columns // 2, str(element_of(product.op.operands[1]))
        rings = self._rings
        assert rings.tiles is not None
        wgmma.fence()

        def chunk(number: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            sums, before, state = carried[:count], carried[count : count + 4], carried[count + 4 :]
            rings.resume(state)
            rings.weights.wait_full(rings.weight)
            b = wgmma.descriptor(rings.weights.place(rings.weight))
            a = self._streamed_chunk()
            first = device.equal(number, 0)
            sums = wgmma.multiply(element, sums, a, b, wgmma.CHUNK // wgmma.STEP, first)
            wgmma.wait(1)
            self._release((Slot(*before[:2]), Slot(*before[2:])), unless=first)
            weight, tile = self._step_on(True)
            assert tile is not None
            return [*sums, weight.number, weight.parity, tile.number, tile.parity, *rings.state()]

        start = rings.state()
        results = device.loop(0, segment.chunks, 1, chunk, [*self._sums[:count], *start[:4], *start])
        sums, last, state = results[:count], results[count : count + 4], results[count + 4 :]
        rings.resume(state)
        sums = wgmma.wait_for(sums)
        self._release((Slot(*last[:2]), Slot(*last[2:])))
        self._sums = sums + self._sums[count:]
        return sums

    def _streamed_chunk(self) -> ir.Value:
        """Waits for 64 columns of the tile's rows; a descriptor of the warpgroup's own."""
        tiles, slot = self._rings.tiles, self._rings.tile
        assert tiles is not None and slot is not None
        tiles.wait_full(slot)
        own = device.mul(self._around.group_rows, wgmma.CHUNK * 2)
        return wgmma.descriptor(device.add(tiles.place(slot), own))

    def _step_on(self, streamed: bool) -> tuple[Slot, Slot | None]:
        """Goes to the next slots; gives those just used."""
        rings = self._rings
        used = rings.weight, rings.tile if streamed else None
        rings.weight = rings.weights.advance(rings.weight)
        if streamed:
            assert rings.tiles is not None and rings.tile is not None
            rings.tile = rings.tiles.advance(rings.tile)
        return used

    def _release(self, slots: tuple[Slot, Slot | None], unless: ir.Value | None = None) -> None:
        condition = self._around.leader
        if unless is not None:
            condition = arith.andi(condition, arith.xori(unless, arith.constant(unless.type, 1)))
        for ring, slot in zip((self._rings.weights, self._rings.tiles), slots):
            if slot is not None:
                assert ring is not None
                mbarrier.arrive(ring.empty(slot), condition)

    def passes(self, product: Product, each: Callable[[Lanes, Int], None]) -> None:
        """Calls `each`, in code, for every pass over the product's columns with the lanes standing there and the
        first column."""
        limit = product.n if product.n % product.columns == 0 else None
        lanes, share = self._shares[product.n]
        if product.passes == 1:
            each(lanes, share)
            return
        if self._around.first_column is not None:
            each(self._lanes.shifted(self._around.first_column, limit), self._around.first_column)
            return

        def body(start: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            count = len(self._sums)
            self._sums = carried[:count]
            self._rings.resume(carried[count:])
            each(lanes.shifted(start, limit and lanes.limit or limit), device.add(share, start))
            return [*self._sums, *self._rings.state()]

        count = len(self._sums)
        results = device.loop(0, product.n, product.columns, body, [*self._sums, *self._rings.state()])
        self._sums = results[:count]
        self._rings.resume(results[count:])

    @property
    def lanes(self) -> Lanes:
        return self._lanes

    def store(self, tile: Fragment, store: kitsune.StoreOp, columns: int, start: Int) -> None:
        """Writes `columns` columns of a tile to an output, from column `start` on."""
        if store.position not in self._around.outputs:
            return
        map_, sent = self._program.store_maps.get(store.position), 0
        if map_ is not None and tile.words:
            assert self._around.outbox is not None
            # A box that reaches into another CTA's columns would overwrite them.
            sent = columns if self.exchange is None else columns // wgmma.CHUNK * wgmma.CHUNK
            row = arith.trunci(device.i32(), self._around.first_row)
            self._around.outbox.store(map_, tile, sent, (start, device.add(row, self._around.group_rows)))
        if sent < columns:
            memory = self._tile_rows(self._around.outputs[store.position], store.operands[0])
            self._store_directly(tile, memory, range(sent // BLOCK, blocks_of(columns)))

    def _store_directly(self, tile: Fragment, memory: PairedMemory, blocks: range) -> None:
        """Thread by thread: what the copy engine cannot store."""
        lanes, width = tile.lanes, tile.width
        for h in HALVES:
            with device.when(device.less(lanes.rows[h], self._around.valid)):
                for block, e in itertools.product(blocks, (0, 1)):
                    column, x = lanes.column(block, e), tile.element_at(block, h, e)
                    if device.is_less(column, width) is True:
                        memory.store(lanes.rows[h], column, x)
                    else:
                        with device.when(device.less(column, width)):
                            memory.store(lanes.rows[h], column, x)


LONG = 4  # chunks of a streamed operand from which a product is a loop


@dataclass
class _Stage:
    """One stage of a tile; `memories` says where its values stand."""

    consumer: Consumer
    block: Block
    number: Int
    memories: dict[int, Memory]

    def emit(self, nest: Nest) -> None:
        if nest.kind == PRODUCT:
            self._product(nest)
        elif nest.kind == MAP:
            if is_held(nest) or nest.stores or nest.puts:
                width = prod(shape_of(nest.value)[1:])
                columns, lanes, start = width, self.consumer.lanes, 0
                if not is_loaded(nest.value):
                    columns, lanes, start = self.consumer.share(width)
                self._tile(nest, lanes, start, Evaluator(self.memories), columns)
        else:
            self._reduction(nest)

    def _product(self, nest: Nest) -> None:
        assert nest.op is not None
        op, total = nest.op, nest.op.results[0]
        product = self.block.products[hash(total)]
        from_shared = [s.rows_map is not None or s.parts > 1 for s in product.segments]
        operands = [None if shared else self._fragment(s.value) for s, shared in zip(product.segments, from_shared)]

        def one_pass(lanes: Lanes, start: Int) -> None:
            if len(operands) == 1 and product.segments[0].rows_map is not None and product.segments[0].chunks > LONG:
                sums = self.consumer.long_product(product, product.segments[0])
            else:
                sums = self.consumer.product(product, operands)
            evaluator = Evaluator(self.memories)
            adds = None if _starts_from_zero(op) else op.operands[2]
            for block in range(blocks_of(product.columns)):
                for h in HALVES:
                    for e in (0, 1):
                        index = [lanes.rows[h], lanes.column(block, e)]
                        x = sums[4 * block + 2 * h + e]
                        if adds is not None:
                            x = arith.addf(x, evaluator(adds, index))
                        evaluator.know(total, index, x)
            self._tile(nest, lanes, start, evaluator, product.columns)

        self.consumer.passes(product, one_pass)

    def _fragment(self, value: ir.Value) -> Fragment | Stash:
        """A product's operand in registers, or where it waits."""
        held = self.memories.get(hash(value))
        if isinstance(held, Fragment | Stash):
            return held
        lanes = self.consumer.lanes
        tile = Fragment(lanes, element_of(value), shape_of(value))
        evaluator = Evaluator(self.memories)
        for block in range(blocks_of(tile.width)):
            for h in HALVES:
                pair = [self._element(evaluator, value, lanes, block, h, e) for e in (0, 1)]
                tile.words[block, h] = pack(*pair, tile.element)
        return tile

    def _element(self, evaluator: Evaluator, value: ir.Value, lanes: Lanes, block: int, h: int, e: int) -> ir.Value:
        """One element of a tile; zero beyond its columns."""
        column, shape = lanes.column(block, e), shape_of(value)
        width = prod(shape[1:])
        x = evaluator(value, [lanes.rows[h], *unflatten(column, shape[1:])])
        if device.is_less(column, width) is not True:
            x = arith.select(device.less(column, width), x, arith.constant(x.type, 0.0))
        return x

    def _tile(self, nest: Nest, lanes: Lanes, start: Int, evaluator: Evaluator, columns: int) -> None:
        """Computes a nest's tile, `columns` of it from column `start` on, where `lanes` stand; keeps and stores it."""
        element = element_of(nest.value)
        tile = Fragment(lanes, element, shape_of(nest.value))
        packs = is_packed(element) and not (nest.kind == PRODUCT and _is_read_here(nest.value))
        for block in range(blocks_of(columns)):
            for h in HALVES:
                pair = [self._element(evaluator, nest.value, lanes, block, h, e) for e in (0, 1)]
                if packs:
                    tile.words[block, h] = pack(*pair, element)
                else:
                    tile.values[block, h, 0], tile.values[block, h, 1] = pair
        if (stash := self.consumer.stash(nest.value)) is not None:
            stash.write(tile if tile.words else _both(tile), self.consumer.writer)
            self.memories[hash(nest.value)] = stash
        elif is_held(nest):
            self.memories[hash(nest.value)] = tile if packs or not is_packed(element) else _both(tile)
            if self.consumer.exchange is not None and is_exchanged(nest):
                self.consumer.exchange.send(tile)
        for put in nest.puts:
            self.consumer.put(tile if tile.words else _both(tile), put, columns, start)
        for store in nest.stores:
            self.consumer.store(tile if tile.words or not is_packed(element) else _both(tile), store, columns, start)

    def _reduction(self, nest: Nest) -> None:
        """A row's columns to one number: each thread its own columns, then the four threads of the row."""
        op = nest.op
        assert op is not None
        s = rows.Structured(op)
        combiner = combiner_of(s)
        result = op.results[0]
        if combiner is None or prod(shape_of(result)[1:]) != 1 or s.inputs < 1:
            raise UnsupportedError("a reduction inside rows that is not to one number is not chained by warpgroups")
        reduced = [loop for loop, kind in enumerate(s.iterators) if kind == "reduction"]
        extents = loop_extents(s)
        width = prod(extents[loop] for loop in reduced)
        columns, lanes, _ = self.consumer.share(width)
        row_loop = ir.AffineDimExpr(list(s.maps[s.inputs].results)[0]).position
        tile = Fragment(lanes, element_of(result), shape_of(result))
        evaluator = Evaluator(self.memories)
        totals = []
        for h in HALVES:
            total = arith.constant(ir.F32Type.get(), IDENTITY[combiner.name])
            for block in range(blocks_of(columns)):
                for e in (0, 1):
                    column = lanes.column(block, e)
                    loops: list[Int] = [0] * len(s.iterators)
                    loops[row_loop] = lanes.rows[h]
                    for loop, i in zip(reduced, unflatten(column, [extents[loop] for loop in reduced])):
                        loops[loop] = i
                    added = evaluator.body(s, loops, {0: total})[0]
                    if device.is_less(column, width) is not True:
                        added = arith.select(device.less(column, width), added, total)
                    total = added
            for distance in QUAD:
                mode = ir.Attribute.parse("#gpu<shuffle_mode xor>")
                other = device.gpu.ShuffleOp(total, device.value(distance), device.value(32), mode).results[0]
                total = combine(combiner, total, other)
            totals.append(total)
        if columns < width:
            assert self.consumer.exchange is not None
            totals = self.consumer.exchange.add_up(totals, partial(combine, combiner))
        for h in HALVES:
            start = evaluator(op.operands[s.inputs], [lanes.rows[h], *[0] * (len(shape_of(result)) - 1)])
            tile.values[0, h, 0] = combine(combiner, start, totals[h])
        self.memories[hash(result)] = _RowValues(tile)


class _RowValues(Memory):
    """One number a row, in registers."""

    def __init__(self, tile: Fragment):
        self._tile = tile

    def load(self, index: list[Int]) -> ir.Value:
        return self._tile.values[0, self._tile.lanes.half(index[0]), 0]


def _both(tile: Fragment) -> Fragment:
    """A tile of 16-bit elements kept as f32 for elementwise use, with the words that products and queues want."""
    for (block, h, e), x in list(tile.values.items()):
        if e == 0:
            tile.words[block, h] = pack(x, tile.values[block, h, 1], tile.element)
    return tile


def _is_read_here(value: ir.Value) -> bool:
    """Whether more than products and queues read a value."""
    outward = ("linalg.matmul", kitsune.PutOp.OPERATION_NAME, kitsune.StoreOp.OPERATION_NAME)
    return any(use.owner.operation.name not in outward for use in value.uses)


def _starts_from_zero(op: ir.Operation) -> bool:
    init = rows.init_of(op.operands[2])
    return init.scalar is not None and is_zero(init.scalar)
