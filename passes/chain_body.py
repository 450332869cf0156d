"""What a warpgroup does with its rows of a tile in a chained pipeline, in the order in which it is issued.

A product is issued in a few dozen cycles and runs for hundreds. Where nothing but products reads the tile that a
product makes, its columns are computed in the *background*: pieces of 8 columns stand between other products. Wider
products are in two sets of sums. Those columns whose sums are the first set's are computed while the second set is
multiplied, the others while the next product begins. The first are packed into words between the two: the registers of
the words before belong to products that run until then (ptxas would run these one after another, C7513).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from kitsune_mlir import rows
from kitsune_mlir.codegen.hopper.epilogue import is_deferred
from kitsune_mlir.codegen.hopper.operands import is_held, is_read_here
from kitsune_mlir.codegen.hopper.product_plan import Product, Segment
from kitsune_mlir.codegen.hopper.program import Block
from kitsune_mlir.codegen.hopper.rolling import follows_alike, rolls
from kitsune_mlir.codegen.pipeline.nests import PRODUCT, REDUCTION, Nest, StageNests, kitsune_label
from kitsune_mlir.dialects import kitsune, schedule
from kitsune_mlir.mlir import arith, ir, scf, tensor

from .chain_columns import Columns
from .chain_kernel import CHUNK, COPY_ROWS, STREAMED, WEIGHTS, ChainKernel, Fill, Filling, Fills, is_copied, selected
from .schedule_build import constant_index, i64

Operand: TypeAlias = tuple[ir.Value, tuple[ir.Value, ...]]
BLOCK = 8  # columns of a piece
LONG = 4  # chunks of streamed operands; a product of more is a loop


@dataclass
class Pieces:
    """A tile in registers that is made piece by piece: `make` computes that of a number, once."""

    width: int
    each: int  # columns of a piece
    make: Callable[[int], ir.Value]
    made: dict[int, ir.Value] = field(default_factory=dict)

    def piece(self, number: int) -> ir.Value:
        if number not in self.made:
            self.made[number] = self.make(number)
        return self.made[number]

    def columns(self, first: int, end: int) -> ir.Value:
        """The tile's columns from one piece's first to another's last."""
        found = [self.piece(number) for number in range(first // self.each, -(-min(end, self.width) // self.each))]
        return found[0] if len(found) == 1 else beside(found)


@dataclass(frozen=True)
class LoopOfLayers:
    """A loop over equal stages: its counter, and the tensors that each names, by those of the first."""

    counter: ir.Value
    tensors: dict[int, list[ir.Value]]

    def of(self, value: ir.Value) -> list[ir.Value]:
        """The tensor in the place of the first stage's, for each stage."""
        return self.tensors[hash(value)]

    @classmethod
    def over(cls, block: Block, counter: ir.Value) -> LoopOfLayers:
        residents = zip(*(stage.residents for stage in block.stages), strict=True)
        return cls(counter, {hash(first): [first, *more] for first, *more in residents})


@dataclass
class Used:
    """Slots that are given back behind the next product: of weights, where these are not kept, and perhaps of a
    streamed tile, which the products of these tokens read; the last of them reads the weights."""

    weight: ir.Value | None
    tokens: list[ir.Value]
    tile: ir.Value | None = None

    def release(self) -> None:
        if self.weight is not None:
            schedule.ReleaseOp(self.weight, self.tokens[-1:])
        if self.tile is not None:
            schedule.ReleaseOp(self.tile, self.tokens)


class ChainBody:
    """Builds a tile's work, whose first row is at `row`."""

    def __init__(self, kernel: ChainKernel, row: ir.Value):
        self.kernel, self.program, self.row = kernel, kernel.program, row
        self.cloner = rows.RowCloner(COPY_ROWS)
        self.filling: Filling = kernel.filling
        self.background: deque[Callable[[], object]] = deque()
        self.free: dict[int, Callable[[], list[ir.Value]]] = {}  # by set: tiles that nothing needs any more
        self.tiles: dict[int, Pieces] = {}  # in registers
        self.queues: dict[str, ir.Value] = {}  # label -> what was put
        self.deferred: dict[int, Deferred] = {}  # of tiles that are still worked on
        self.layers: LoopOfLayers | None = None  # around
        self.wgmma = ir.StringAttr.get("wgmma")

    def emit(self) -> None:
        for block in self.program.blocks:
            with block.stage.operation.location:
                if len(block.stages) > 1:
                    self._loop(block)
                else:
                    self._stage(block, 0)
        self._settle_background()

    def _stage(self, block: Block, number: int) -> None:
        """Stage `number` of a block, whose products are as those of the first of its equals. In a loop it is the first,
        with the tensors of the loop's layer."""
        stage, products, self.block = block.stages[number], block.products.values(), block
        nests = block.nests if number == 0 else StageNests(stage, self.program.on_chip)
        for get in stage.gets:
            tile = self.queues[kitsune_label(get.operands[0])]
            if hash(tile) in self.tiles:
                self.tiles[hash(get.results[0])] = self.tiles[hash(tile)]
            else:
                self.cloner[get.results[0]] = self._value(tile)
        plans = iter(products)
        for nest in nests:
            with (nest.op or nest.value.owner).location:
                if nest.kind == PRODUCT:
                    product = next(plans)
                    self._product(nest, product)
                    if product.passes > 1:
                        continue
                elif nest.kind == REDUCTION:
                    self._value(nest.value)
                elif is_held(nest) and nest.local:
                    self._keep(nest.value)
                for store in nest.stores:
                    self._write(nest.value, store)
        for put in stage.puts:
            if hash(put.operands[1]) not in self.tiles and len(rows.shape_of(put.operands[1])) == 2:
                self._keep(put.operands[1])
            self.queues[kitsune_label(put.operands[0])] = put.operands[1]

    # ---- equal stages

    def _loop(self, block: Block) -> None:
        """Equal stages: the tile between them goes round. Of a tile that is still worked on when the next stage begins,
        what is there goes round; the first stage then stands before the loop, unless the tile that it takes is left as
        the loop leaves one."""
        if self.kernel.keeps:
            for number in range(len(block.stages)):
                self._stage(block, number)
            return
        (got,), (put,) = ([kitsune_label(op.operands[0]) for op in ops] for ops in (block.stage.gets, block.stage.puts))
        last, begin, outside = block.stages[-1].puts[0], 0, dict(self.queues)
        rolling = rolls(block, self.program) and all(defers(*pair) for pair in _products(block))
        if not rolling:
            self._settle_background()
        elif not self._follows_alike(block, self.queues[got]):
            self._stage(block, 0)
            begin = 1
        tile = self.queues[put if begin else got]
        if hash(tile) not in self.tiles:
            for number in range(len(block.stages)):
                self._stage(block, number)
            return
        carry = self._carry_unfinished if rolling else self._carry_whole
        around, filling, self.filling, tiles = self.cloner, self.filling, [], dict(self.tiles)
        filling.append(Fills("layers", begin, len(block.stages), 1, self.filling))
        loop = scf.ForOp(*map(constant_index, (begin, len(block.stages), 1)), carry(tile))
        with ir.InsertionPoint(loop.body):
            counter, result = loop.induction_variable, block.stage.puts[0].operands[1]
            self.queues[got] = tile
            taken = list(loop.inner_iter_args)
            if rolling:
                before = arith.subi(counter, constant_index(1))
                self.layers, self.cloner = LoopOfLayers.over(block, before), self._inner_cloner()
                self._take_unfinished(block, block.nests, tile, taken)
            else:
                self._take_whole(tile, taken)
            self.layers, self.cloner = LoopOfLayers.over(block, counter), self._inner_cloner()
            self._stage(block, 0)
            if not rolling:
                self._settle_background()
            scf.yield_(carry(result))
        self.layers, self.cloner, self.filling, self.tiles = None, around, filling, tiles
        self.queues = outside | {kitsune_label(last.operands[0]): last.operands[1]}
        if rolling:
            nests = StageNests(block.stages[-1], self.program.on_chip)
            self._take_unfinished(block, nests, last.operands[1], list(loop.results))
        else:
            self._take_whole(last.operands[1], list(loop.results))

    def _follows_alike(self, block: Block, tile: ir.Value) -> bool:
        """Whether a loop over a block begins with its first stage: the stage before leaves its tile as the block's own
        do, and its vectors lie where those of a layer before the first would."""
        if hash(tile) not in self.deferred or not follows_alike(block, self.program):
            return False
        before, vectors = self.program.blocks[self.program.blocks.index(block) - 1], self.kernel.vectors
        own, others = (
            [value for value in each.stage.residents if ir.RankedTensorType(value.type).rank < 2]
            for each in (block, before)
        )
        for value, other in zip(own, others, strict=True):
            step = vectors.step(block, ir.RankedTensorType(value.type).element_type)
            places = vectors.place(block, value), vectors.place(before, other)
            if places[0] is None or places[1] is None or places[0] - step != places[1]:
                return False
        return True

    def _inner_cloner(self) -> rows.RowCloner:
        return rows.RowCloner(COPY_ROWS)

    def _carry_whole(self, tile: ir.Value) -> list[ir.Value]:
        """A tile in registers, chunk by chunk."""
        pieces = self.tiles[hash(tile)]
        return [pieces.columns(first, first + CHUNK) for first in range(0, pieces.width, CHUNK)]

    def _take_whole(self, tile: ir.Value, carried: list[ir.Value]) -> None:
        width = rows.shape_of(tile)[1]
        self.free.clear()
        self.tiles[hash(tile)] = Pieces(width, CHUNK, carried.__getitem__)

    def _carry_unfinished(self, tile: ir.Value) -> list[ir.Value]:
        """Of a tile that is worked on: the columns of the first set, the sums of the last, and the registers that the
        next product's first sums take over."""
        self.background.clear()
        return self.deferred[hash(tile)].carried()

    def _take_unfinished(self, block: Block, nests: StageNests, tile: ir.Value, carried: list[ir.Value]) -> None:
        self.block, (nest,), (product,) = block, nests, block.products.values()
        Deferred(self, nest, product).resume(tile, carried)

    # ---- values

    def _value(self, value: ir.Value) -> ir.Value:
        """A stage's value on the copy's rows; what it is computed from is read, or cloned, first."""
        if hash(value) in self.tiles and hash(value) not in self.cloner.values:
            tile = self.tiles[hash(value)]
            self.cloner[value] = tile.columns(0, tile.width)
        if hash(value) in self.cloner.values:
            return self.cloner[value]
        op = rows.producer(value)
        if op is None or op.parent.name != kitsune.StageOp.OPERATION_NAME:
            self.cloner[value] = self._resident(value)
        elif op.name == kitsune.LoadOp.OPERATION_NAME:
            self.cloner[value] = self._read(op.operands[0], value, (self.row,))
        elif op.name not in rows.SUPPORT:
            for operand in op.operands:
                if rows.is_tensor(operand) and rows.init_of(operand).tensor is not None:
                    self._value(operand)
            self.cloner.clone(op, 1)
        return self.cloner[value]

    def _resident(self, value: ir.Value) -> ir.Value:
        """All of a tensor that is the same for all rows, that of the layer in a loop over layers."""
        layer = None if self.layers is None else self.layers.counter
        if (vector := self.kernel.vector(self.block, value, layer)) is not None:
            return vector
        if self.layers is None:
            return self._read(value, value, ())
        of_layers = self.layers.of(value)
        return self._read(selected(of_layers, self.layers.counter), value, ())

    def _read(self, whole: ir.Value, value: ir.Value, at: Sequence[ir.Value]) -> ir.Value:
        """A box of a tensor: the copy's rows, or all of it."""
        kind = ir.RankedTensorType(value.type)
        type_ = self.cloner.type_of(kind) if at else kind
        offsets = [*at, *[constant_index(0)] * (kind.rank - len(at))]
        read = schedule.ReadOp(whole, offsets, type_)
        read.attributes["dims"] = ir.DenseI64ArrayAttr.get(list(range(kind.rank)))
        return read.results[0]

    def _keep(self, value: ir.Value) -> Pieces:
        """Computes a tile and keeps it: a part for each chunk that products take."""
        if hash(value) not in self.tiles:
            tile = self._value(value)
            width = rows.shape_of(value)[1]
            found = Pieces(width, CHUNK, lambda number: part(tile, number * CHUNK, min(CHUNK, width - number * CHUNK)))
            whole = found.columns(0, width)
            self.tiles[hash(value)] = found
            self.cloner[value] = whole
        return self.tiles[hash(value)]

    def _keep_wide(self, value: ir.Value) -> None:
        """Computes a tile that other operators of the stage read, and keeps it as sums lie."""
        tile, width = self._value(value), rows.shape_of(value)[1]
        self.cloner[value] = part(tile, 0, width, wide=True)

    def _write(self, value: ir.Value, store: kitsune.StoreOp) -> None:
        tile = self._value(value)
        rank = ir.RankedTensorType(tile.type).rank
        offsets = [self.row, *[constant_index(0)] * (rank - 1)]
        write = schedule.WriteOp(tile, offsets, i64(store.position))
        write.attributes["dims"] = ir.DenseI64ArrayAttr.get(list(range(rank)))
        if is_copied(value):
            write.attributes["engine"] = ir.StringAttr.get(schedule.WRITES)

    # ---- products

    def _product(self, nest: Nest, product: Product) -> None:
        assert nest.op is not None
        if product.passes > 1:
            self._passes(nest, product)
            return
        if defers(nest, product):
            deferred = Deferred(self, nest, product)
            self._run(product, self._operands(nest.op), deferred.take)
            deferred.hand_on()
            return
        settled: dict[int, ir.Value] = {}
        self._run(product, self._operands(nest.op), settled.__setitem__)
        sums = [settled[number] for number in range(product.sets)]
        self.cloner[nest.op.results[0]] = sums[0] if len(sums) == 1 else beside(sums)
        width = product.columns * product.sets
        if width > product.n:
            self.cloner[nest.op.results[0]] = first_columns(self.cloner[nest.op.results[0]], product.n)
        if nest.local and is_read_here(nest.value):
            self._keep_wide(nest.value)
        elif nest.local:
            self._keep(nest.value)

    def _run(self, product: Product, operands: list[Operand], ready: Callable[[int, ir.Value], None]) -> None:
        """One pass over k; `ready` is called with the number of a set and its sums where these are there."""
        streamed = all(segment.rows_map is not None for segment in product.segments)
        if streamed and product.chunks > LONG and not self.kernel.keeps:
            self._looped(product, operands, ready)
        else:
            self._unrolled(product, operands, ready)

    def _passes(self, nest: Nest, product: Product) -> None:
        """A product of more columns than registers hold, whose tile is only stored: in a loop over its columns."""
        assert nest.op is not None
        self._settle_background()
        self.free.clear()
        operands = self._operands(nest.op)
        for segment, (value, _) in zip(product.segments, operands, strict=True):
            if segment.rows_map is None:
                self._keep(value)
                self._carry_whole(value)
        filling, self.filling, known = self.filling, [], dict(self.cloner.values)
        filling.append(Fills("passes", 0, product.n, product.pass_columns, self.filling))
        loop = scf.ForOp(*map(constant_index, (0, product.n, product.pass_columns)))
        with ir.InsertionPoint(loop.body):
            settled: dict[int, ir.Value] = {}
            self._run(product, operands, settled.__setitem__)
            sums = beside([settled[number] for number in range(product.sets)])
            first = loop.induction_variable
            columns = Columns(nest, partial(self._columns, product, first))
            value = columns.of(sums, 0, product.pass_columns)
            for store in nest.stores:
                self._write_columns(value, store, first)
            scf.yield_([])
        self.filling, self.cloner.values = filling, known
        self.free.clear()

    def _columns(self, product: Product, first: ir.Value, value: ir.Value, dim: int | None) -> ir.Value:
        """What an epilogue reads beside a pass's sums: the pass's columns of a tensor, from `first` on."""
        if dim is None:
            return self._value(value)
        op, count = rows.producer(value), product.pass_columns
        whole, at = value, [constant_index(0)] * ir.RankedTensorType(value.type).rank
        if op is not None and op.name == kitsune.LoadOp.OPERATION_NAME:
            whole, at[0] = op.operands[0], self.row
        at[dim] = first
        kind = ir.RankedTensorType(value.type)
        sizes = [COPY_ROWS if at[0] is self.row and d == 0 else size for d, size in enumerate(kind.shape)]
        sizes[dim] = count
        read = schedule.ReadOp(whole, at, ir.RankedTensorType.get(sizes, kind.element_type))
        read.attributes["dims"] = ir.DenseI64ArrayAttr.get(list(range(kind.rank)))
        return read.results[0]

    def _write_columns(self, tile: ir.Value, store: kitsune.StoreOp, first: ir.Value) -> None:
        write = schedule.WriteOp(tile, [self.row, first], i64(store.position))
        write.attributes["dims"] = ir.DenseI64ArrayAttr.get([0, 1])
        if is_copied(store.operands[0]):
            write.attributes["engine"] = ir.StringAttr.get(schedule.WRITES)

    def _operands(self, op: ir.Operation) -> list[Operand]:
        """For each part of a product's left operand its tile, and the weight, or those of all layers."""
        found = []
        stack = [op.operands[0]]
        while stack:
            value = stack.pop(0)
            made = rows.producer(value)
            beside_ = made is not None and made.name == "tensor.concat"
            if beside_ and ir.IntegerAttr(made.attributes["dim"]).value == 1:
                stack = [*made.operands, *stack]
            else:
                weights = [op.operands[1]] if self.layers is None else self.layers.of(op.operands[1])
                found.append((value, tuple(map(self.kernel.source, weights))))
        return found

    def _left(self, segment: Segment, value: ir.Value, chunk: int) -> ir.Value:
        """A chunk of a part in registers."""
        return self._keep(value).columns(chunk * CHUNK, chunk * CHUNK + CHUNK)

    def _begin(self, product: Product, number: int) -> ir.Value:
        """New sums of a set, in registers that nothing needs."""
        acc = schedule.Acc.get(ir.RankedTensorType.get([COPY_ROWS, product.columns], ir.F32Type.get()))
        over = self.free.pop(number)() if number in self.free else []
        fits = sum(rows.shape_of(tile)[1] for tile in over) == product.columns
        return schedule.SumsOp(over if fits else [], acc).results[0]

    def _multiply(
        self, product: Product, sums: ir.Value, left: ir.Value, weight: Fill, into: Filling
    ) -> tuple[ir.Value, Used]:
        right = self.kernel.wait(weight, into)
        total, token = schedule.ProductOp(sums, left, right, self.wgmma, sums.type, schedule.Token.get()).results
        return total, Used(None if self.kernel.keeps else right, [token])

    def _weight(
        self, product: Product, segment: Segment, source: tuple[ir.Value, ...], number: int, chunk: int | None
    ) -> Fill:
        """The box of a weight that a set of columns meets at a chunk."""
        column = None if chunk is None else chunk * CHUNK
        ring = f"{WEIGHTS}_{product.columns}" if self.kernel.keeps else WEIGHTS
        row, in_pass = number * product.columns, product.passes > 1
        return Fill(ring, source, row, column, product.columns, segment.start, in_pass)

    def _streamed(self, value: ir.Value, chunk: int | None) -> Fill:
        load = rows.producer(value)
        column = None if chunk is None else chunk * CHUNK
        return Fill(STREAMED, (self.kernel.source(load.operands[0]),), 0, column, 2 * COPY_ROWS)

    def _unrolled(self, product: Product, operands: list[Operand], ready: Callable[[int, ir.Value], None]) -> None:
        turns, used = product.turns(), None
        sums: dict[int, ir.Value] = {}
        ending: tuple[int, ...] = ()  # sets whose last chunk is in flight
        for turn in turns:
            if turn is not turns[0] or len(turn) > 1:
                self._settle_background()  # it may read this set's registers
            chunks = [
                (segment, value, source, chunk)
                for segment, (value, source) in zip(product.segments, operands, strict=True)
                for chunk in range(segment.chunks)
            ]
            for number, (segment, value, source, chunk) in enumerate(chunks):
                slot, tokens = None, []
                if segment.rows_map is not None:
                    left = slot = self.kernel.wait(self._streamed(value, chunk), self.filling)
                else:
                    left = self._left(segment, value, chunk)
                for one in turn:
                    start = sums[one] if one in sums else self._begin(product, one)
                    weight = self._weight(product, segment, source, one, chunk)
                    sums[one], now = self._multiply(product, start, left, weight, self.filling)
                    for ended in ending:
                        ready(ended, self._settled(ended, sums[ended]))
                    ending = ()
                    self._advance(len(chunks) - number)
                    if used is not None:
                        used.release()
                    tokens += now.tokens
                    used = Used(now.weight, tokens, slot) if one == turn[-1] else now
            ending = turn
        self._settle_background()
        for ended in ending:
            ready(ended, self._settled(ended, sums[ended]))
        assert used is not None
        used.release()

    def _settled(self, number: int, sums: ir.Value) -> ir.Value:
        tile = schedule.SettleOp(sums, ir.TypeAttr(sums.type.elem).value).results[0]
        self.free[number] = lambda: [tile]
        return tile

    def _looped(self, product: Product, operands: list[Operand], ready: Callable[[int, ir.Value], None]) -> None:
        """The same of streamed operands with many chunks: a loop over those of each behind the first."""
        self._settle_background()
        (turn,), sums, used = product.turns(), {}, None
        for one in turn:
            sums[one] = self._begin(product, one)
        for segment, (value, source) in zip(product.segments, operands, strict=True):
            used = self._chunk(product, segment, value, source, turn, sums, used, 0, self.filling)
            if segment.chunks == 1:
                continue
            body: Filling = []
            self.filling.append(Fills("chunks", CHUNK, segment.chunks * CHUNK, CHUNK, body))
            assert used.tile is not None
            carried = [*(sums[one] for one in turn), used.weight, used.tile, *used.tokens]
            loop = scf.ForOp(*map(constant_index, (CHUNK, segment.chunks * CHUNK, CHUNK)), carried)
            with ir.InsertionPoint(loop.body):
                inner, last = _taken_up(turn, list(loop.inner_iter_args))
                last = self._chunk(product, segment, value, source, turn, inner, last, None, body)
                assert last.tile is not None
                scf.yield_([*(inner[one] for one in turn), last.weight, last.tile, *last.tokens])
            sums, used = _taken_up(turn, list(loop.results))
        for one in turn:
            ready(one, self._settled(one, sums[one]))
        assert used is not None
        used.release()

    def _chunk(
        self,
        product: Product,
        segment: Segment,
        value: ir.Value,
        source: tuple[ir.Value, ...],
        turn: Sequence[int],
        sums: dict[int, ir.Value],
        used: Used | None,
        chunk: int | None,
        into: Filling,
    ) -> Used:
        """Multiplies a streamed chunk for all sets; gives back what was used before behind the first of them."""
        slot, tokens = self.kernel.wait(self._streamed(value, chunk), into), []
        for one in turn:
            weight = self._weight(product, segment, source, one, chunk)
            sums[one], now = self._multiply(product, sums[one], slot, weight, into)
            if used is not None:
                used.release()
            tokens += now.tokens
            used = now
        assert used is not None
        return Used(used.weight, tokens, slot)

    # ---- the background

    def _advance(self, places: int) -> None:
        """A fair part of what is left, with so many places to come, this one included."""
        for _ in range(-(-len(self.background) // max(1, places))):
            self.background.popleft()()

    def _settle_background(self) -> None:
        self._advance(1)


def defers(nest: Nest, product: Product) -> bool:
    """Whether a product's tile is computed in the background."""
    return product.sets > 1 and product.passes == 1 and is_deferred(nest) and product.n % BLOCK == 0


def _products(block: Block) -> list[tuple[Nest, Product]]:
    nests = (nest for nest in block.nests if nest.kind == PRODUCT and nest.op is not None)
    return list(zip(nests, block.products.values(), strict=True))


def _taken_up(turn: Sequence[int], carried: list[ir.Value]) -> tuple[dict[int, ir.Value], Used]:
    """What a loop over chunks carries: the sums of all sets, the slots in use and the tokens of their products."""
    count = len(turn)
    weight, tile, *tokens = carried[count:]
    return dict(zip(turn, carried)), Used(weight, tokens, tile)


class Deferred:
    """The tile of a product that is computed in the background. `wide` are pieces as they are beside products, by
    block; `sets` the tile's columns that a set's sums make, and `sums` these."""

    def __init__(self, body: ChainBody, nest: Nest, product: Product):
        self.body, self.nest, self.product = body, nest, product
        self.columns = Columns(nest, lambda value, dim: body._value(value))
        self.wide: dict[int, ir.Value] = {}
        self.sets: dict[int, ir.Value] = {}
        self.sums: dict[int, ir.Value] = {}
        self.pieces = Pieces(product.n, BLOCK, self._packed)

    @property
    def each(self) -> int:
        """The blocks of a set."""
        return self.product.columns // BLOCK

    def blocks(self, number: int) -> range:
        return range(number * self.each, min((number + 1) * self.each, self.product.n // BLOCK))

    def take(self, number: int, sums: ir.Value) -> None:
        """A set of the sums is there."""
        first, count = number * self.product.columns, len(self.blocks(number)) * BLOCK
        self.sets[number], self.sums[number] = self.columns.of(sums, first, count), sums
        self.body.free[number] = partial(self._registers, number, sums)
        if number < self.product.sets - 1:
            self.body.background.extend(partial(self._wide, block) for block in self.blocks(number))

    def hand_on(self) -> None:
        """The product has ended: the first sets' columns are packed, the last set's are computed beside what comes."""
        for number in range(self.product.sets - 1):
            for block in self.blocks(number):
                self.pieces.piece(block)
        self.body._settle_background()
        self._leave(self.nest.value)

    def _leave(self, tile: ir.Value) -> None:
        self.body.background.extend(partial(self.pieces.piece, block) for block in self.blocks(self.product.sets - 1))
        self.body.tiles[hash(tile)], self.body.deferred[hash(tile)] = self.pieces, self

    def carried(self) -> list[ir.Value]:
        """What goes round a loop over layers of the tile, of two sets of sums."""
        packed = [self.pieces.piece(block) for block in self.blocks(0)]
        return [*packed, *(self.wide[block] for block in self.blocks(0)), self.sums[1]]

    def resume(self, tile: ir.Value, carried: list[ir.Value]) -> None:
        """Goes on, as the tile of that name, with what was carried."""
        *both, sums = carried
        blocks = self.blocks(0)
        self.pieces.made.update(zip(blocks, both))
        self.wide.update(zip(blocks, both[len(blocks) :]))
        self.body.free[0] = partial(self._registers, 0, sums)
        self.take(1, sums)
        self._leave(tile)

    def _wide(self, block: int) -> ir.Value:
        if block not in self.wide:
            number, local = divmod(block, self.each)
            self.wide[block] = part(self.sets[number], local * BLOCK, BLOCK, wide=True)
        return self.wide[block]

    def _packed(self, block: int) -> ir.Value:
        return part(self._wide(block), 0, BLOCK)

    def _registers(self, number: int, sums: ir.Value) -> list[ir.Value]:
        """What is in the registers of a set when its columns are computed."""
        blocks = self.blocks(number)
        return [self.wide[block] for block in blocks] if all(block in self.wide for block in blocks) else [sums]


def part(tile: ir.Value, first: int, count: int, wide: bool = False) -> ir.Value:
    """Columns of a tile, computed here."""
    kind = ir.RankedTensorType(tile.type)
    made = schedule.PartOp(tile, i64(first), ir.RankedTensorType.get([kind.shape[0], count], kind.element_type))
    if wide:
        made.attributes["wide"] = ir.UnitAttr.get()
    return made.results[0]


def beside(tiles: Sequence[ir.Value]) -> ir.Value:
    """Tiles side by side."""
    if len(tiles) == 1:
        return tiles[0]
    kinds = [ir.RankedTensorType(tile.type) for tile in tiles]
    type_ = ir.RankedTensorType.get([kinds[0].shape[0], sum(kind.shape[1] for kind in kinds)], kinds[0].element_type)
    return tensor.ConcatOp(type_, 1, list(tiles)).result


def first_columns(tile: ir.Value, count: int) -> ir.Value:
    """A tile without those of its columns behind the first so many."""
    kind = ir.RankedTensorType(tile.type)
    type_ = ir.RankedTensorType.get([kind.shape[0], count], kind.element_type)
    return tensor.ExtractSliceOp(type_, tile, [], [], [], [0, 0], list(type_.shape), [1, 1]).result
