"""What a warpgroup does with its rows of a tile in a chained pipeline, in the order in which it is issued.

A product is issued in a few dozen cycles and runs for hundreds. Where nothing but products reads the tile that a
product makes, its columns are computed in the *background*: pieces of 8 columns stand between other products. Wider
products are in two sets of sums. Those columns whose sums are the first set's are computed while the second set is
multiplied, the others while the next product begins. The first are packed into words between the two: the registers of
the words before belong to products that run until then (ptxas would run these one after another, C7513).
"""

from __future__ import annotations

from functools import partial

from kitsune_mlir import rows
from kitsune_mlir.chains.operands import is_exchanged, is_loaded, is_operand, is_read_here, parts_of
from kitsune_mlir.chains.product_plan import Product
from kitsune_mlir.chains.program import Block
from kitsune_mlir.chains.rolling import follows_alike, rolls
from kitsune_mlir.codegen.pipeline.nests import PRODUCT, REDUCTION, Nest, StageNests, kitsune_label
from kitsune_mlir.dialects import kitsune, schedule
from kitsune_mlir.dialects.roles import FillOp
from kitsune_mlir.dialects.spread import SpreadOp
from kitsune_mlir.dialects.stow import StowOp
from kitsune_mlir.generics import constant_index
from kitsune_mlir.mlir import arith, ir, scf
from kitsune_mlir.operations import element_type

from .chain_deferred import Deferred, defers
from .chain_exchange import Exchanged
from .chain_fills import Fills
from .chain_kernel import SENT, STOWED, ChainKernel
from .chain_passes import ChainPasses
from .chain_products import LoopOfLayers
from .chain_stows import Stowed, readers_of
from .chain_tiles import Pieces, beside, columns_of_tile, engine_of, part
from .kernel_build import write_box


class ChainBody(ChainPasses):
    """Builds a tile's work, whose first row is at `row`."""

    def __init__(self, kernel: ChainKernel, row: ir.Value):
        super().__init__(kernel, row)
        self.queues: dict[str, ir.Value] = {}  # label -> what was put
        self.deferred: dict[int, Deferred] = {}  # of tiles that are still worked on
        self.readers = readers_of(self.program)
        self.alike: dict[int, int] = {}  # a value's key -> that of the first of equal stages

    def emit(self) -> None:
        self.kernel.ahead.take_up(self.cloner)
        for block in self.program.blocks:
            with block.stage.operation.location:
                if len(block.stages) > 1:
                    self._loop(block)
                else:
                    self._stage(block, 0)
                self.kernel.ahead.leave(block)
        self._settle_background()

    def _stage(self, block: Block, number: int) -> None:
        """Stage `number` of a block, whose products are as those of the first of its equals. In a loop it is the first,
        with the tensors of the loop's layer."""
        stage, products, self.block = block.stages[number], block.products.values(), block
        self.firsts = {}
        gets = [get for get in stage.gets if kitsune_label(get.operands[0]) not in self.kernel.queues]
        for op, first in zip(stage.block.operations, block.stage.block.operations, strict=True):
            self.alike.update(zip(map(hash, op.operation.results), map(hash, first.operation.results), strict=True))
        nests = block.nests if number == 0 else StageNests(stage, self.program.on_chip)
        for get in gets:
            tile = self.queues[kitsune_label(get.operands[0])]
            if hash(tile) in self.tiles:
                self.tiles[hash(get.results[0])] = self.tiles[hash(tile)]
            elif hash(tile) in self.stowed:
                self.stowed[hash(get.results[0])] = self.stowed[hash(tile)]
            else:
                self.cloner[get.results[0]] = self._value(tile)
            if hash(tile) in self.exchanged:
                self.exchanged[hash(get.results[0])] = self.exchanged[hash(tile)]
            self._spread(get.results[0])
        plans = iter(products)
        for nest in nests:
            with (nest.op or nest.value.owner).location:
                if nest.kind == PRODUCT:
                    product = next(plans)
                    self._product(nest, product)
                    if product.passes > 1:
                        continue
                    self._spread(nest.value)
                elif nest.kind == REDUCTION:
                    self._value(nest.value)
                elif nest.local and self.program.holds(nest):
                    self._hold(nest.value)
                    self._send_all(nest)
                    self._spread(nest.value)
                for store in nest.stores:
                    self._write(nest.value, store)
                for put in nest.puts:
                    slot = self.kernel.acquire_queue(kitsune_label(put.operands[0]))
                    FillOp(slot, self._value(nest.value), constant_index(0))
                    schedule.CommitOp(slot, [])
        for put in stage.puts:
            if kitsune_label(put.operands[0]) in self.kernel.queues:
                continue
            key, rank = hash(put.operands[1]), len(rows.shape_of(put.operands[1]))
            if key not in self.tiles and key not in self.stowed and rank == 2:
                self._keep(put.operands[1])
            self.queues[kitsune_label(put.operands[0])] = put.operands[1]

    def _spread(self, value: ir.Value) -> None:
        """Has all threads of a row have the columns of a tile that are read all over it."""
        columns = self.block.columns.spread.get(self.alike.get(hash(value), hash(value)), ())
        if columns and ir.RankedTensorType(value.type).rank == 2:
            tile = self._value(value)
            spread = SpreadOp(tile, tile.type)
            spread.attributes["columns"] = ir.DenseI64ArrayAttr.get(sorted(columns))
            self.cloner[value] = spread.results[0]

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
        if hash(tile) not in self.tiles and hash(tile) not in self.stowed:
            for number in range(len(block.stages)):
                self._stage(block, number)
            return
        carry = self._carry_unfinished if rolling else self._carry_whole
        if not rolling and (before := self.exchanged.get(hash(tile))) is not None and before.slots:
            for number in range(len(block.stages)):
                self._stage(block, number)
            return
        around, filling, self.filling, tiles = self.cloner, self.filling, [], dict(self.tiles)
        stowed, exchanged = dict(self.stowed), dict(self.exchanged)
        inside, behind = _readers(block), self.readers[hash(block.stage.puts[0].operands[1])]
        filling.append(Fills("layers", begin, len(block.stages), 1, self.filling))
        loop = scf.ForOp(*map(constant_index, (begin, len(block.stages), 1)), carry(tile))
        with ir.InsertionPoint(loop.body):
            counter, result = loop.induction_variable, block.stage.puts[0].operands[1]
            self.firsts = {}
            self.queues[got] = tile
            taken = list(loop.inner_iter_args)
            if rolling:
                before = arith.subi(counter, constant_index(1))
                self.layers, self.cloner = LoopOfLayers.over(block, before), self._new_cloner()
                self._take_unfinished(block, block.nests, tile, taken, inside)
            else:
                self._take_whole(tile, taken, inside)
            self.layers, self.cloner = LoopOfLayers.over(block, counter), self._new_cloner()
            self._stage(block, 0)
            if not rolling:
                self._settle_background()
            scf.yield_(carry(result))
        self.layers, self.cloner, self.filling, self.tiles = None, around, filling, tiles
        self.stowed, self.exchanged, self.firsts = stowed, exchanged, {}
        self.queues = outside | {kitsune_label(last.operands[0]): last.operands[1]}
        if rolling:
            nests = StageNests(block.stages[-1], self.program.on_chip)
            self._take_unfinished(block, nests, last.operands[1], list(loop.results), behind)
        else:
            self._take_whole(last.operands[1], list(loop.results), behind)

    def _follows_alike(self, block: Block, tile: ir.Value) -> bool:
        """Whether a loop over a block begins with its first stage: the stage before leaves its tile as the block's own
        do, and its vectors lie where those of a layer before the first would."""
        if hash(tile) not in self.deferred or not follows_alike(block, self.program):
            return False
        before, vectors = self.program.blocks[self.program.blocks.index(block) - 1], self.kernel.vectors
        weights = {hash(product.op.operands[1]) for each in (block, before) for product in each.products.values()}
        own, others = (
            [value for value in each.stage.residents if hash(value) not in weights] for each in (block, before)
        )
        if len(own) != len(others):
            return False
        for value, other in zip(own, others, strict=True):
            step = vectors.step(block, element_type(value))
            places = vectors.place(block, value), vectors.place(before, other)
            if places[0] is None or places[1] is None or places[0] - step != places[1]:
                return False
        return True

    def _carry_whole(self, tile: ir.Value) -> list[ir.Value]:
        """A tile in registers or slots, chunk by chunk."""
        if (stowed := self.stowed.get(hash(tile))) is not None:
            return stowed.slots
        pieces = self.tiles[hash(tile)]
        return [pieces.columns(first, first + self.kernel.chunk) for first in range(0, pieces.width, self.kernel.chunk)]

    def _take_whole(self, tile: ir.Value, carried: list[ir.Value], readers: int) -> None:
        """Goes on with a tile that so many operands of products are."""
        width = self._width(tile)
        self.free.clear()
        if self.cluster > 1 and is_operand(tile) and not is_loaded(tile):
            found = self._exchange(tile, readers)
            found.sent = found.chunks
        if isinstance(carried[0].type, schedule.Slot):
            self.stowed[hash(tile)] = Stowed(carried, readers)
            return
        self.tiles[hash(tile)] = Pieces(width, self.kernel.chunk, carried.__getitem__)

    def _carry_unfinished(self, tile: ir.Value) -> list[ir.Value]:
        """Of a tile that is worked on: the columns of the first set, the sums of the last, and the registers that the
        next product's first sums take over."""
        self.background.clear()
        return self.deferred[hash(tile)].carried()

    def _take_unfinished(
        self, block: Block, nests: StageNests, tile: ir.Value, carried: list[ir.Value], readers: int
    ) -> None:
        self.block, (nest,), (product,) = block, nests, block.products.values()
        Deferred(self, nest, product).resume(tile, carried, readers)

    def exchange(self, nest: Nest, tile: ir.Value, readers: int | None = None) -> Exchanged | None:
        """What is to be sent of a nest's tile, which goes by the name `tile` and is so many operands of products; None
        where nothing is."""
        if self.cluster == 1 or not is_exchanged(nest):
            return None
        found = self.readers[self.alike.get(hash(tile), hash(tile))] if readers is None else readers
        return self._exchange(tile, found)

    def _exchange(self, tile: ir.Value, readers: int) -> Exchanged:
        rings = [self.kernel.rings[f"{SENT}_{distance}"] for distance in range(1, self.cluster)]
        self.exchanged[hash(tile)] = Exchanged(rings, self._width(tile), readers)
        return self.exchanged[hash(tile)]

    def _send_all(self, nest: Nest) -> None:
        """The CTA's columns of a tile that is whole go to the others, if they read them."""
        if (exchanged := self.exchange(nest, nest.value)) is not None:
            tile, each = self._keep(nest.value), self.kernel.chunk
            for first in range(0, exchanged.width, each):
                exchanged.send(tile.columns(first, first + each))

    def _hold(self, value: ir.Value) -> None:
        """Computes a tile and keeps it, in registers or where it waits for a product; a number a row is as it is."""
        if len(rows.shape_of(value)) != 2:
            self._value(value)
            return
        first = self.program.stashes.get(self.alike.get(hash(value), hash(value)))
        if first is None or hash(value) in self.tiles:  # a product before has it in registers
            self._keep(value)
            return
        tile, ring, width = self._value(value), self.kernel.rings[f"{STOWED}_{first}"], rows.shape_of(value)[1]
        starts, slots = range(0, width, self.kernel.chunk), []
        for chunk in [part(tile, column, min(self.kernel.chunk, width - column)) for column in starts]:
            shape = [self.kernel.tile_rows, rows.shape_of(chunk)[1]]
            slot = schedule.Slot.get(ir.RankedTensorType.get(shape, ring.tile.element_type))
            slots.append(StowOp(ring.results[0], chunk, slot).results[0])
        self.stowed[hash(value)] = Stowed(slots, self.readers[self.alike.get(hash(value), hash(value))])

    def _keep_wide(self, value: ir.Value) -> None:
        """Computes a tile that other operators of the stage read, and keeps it as sums lie."""
        self.cloner[value] = part(self._value(value), 0, self._width(value), wide=True)

    def _write(self, value: ir.Value, store: kitsune.OutputOp) -> None:
        tile = self._value(value)
        rank = ir.RankedTensorType(tile.type).rank
        offsets = [self.row, *[constant_index(0)] * (rank - 1)]
        if is_share := rank == 2 and rows.shape_of(tile)[1] < rows.shape_of(value)[1]:
            offsets[1] = self._first(rows.shape_of(tile)[1])
        if not isinstance(store, kitsune.StoreOp):
            loads = self.kernel.ahead.around(self.block, self.cloner) if rank == 2 else []
            if loads:  # behind all that makes the tile
                self._keep_wide(value)
                tile = self.cloner[value]
            left = self.kernel.ahead.leaves(loads, self.cloner, self.row, self._first, self._value)
            self._write_rows(tile, store, offsets[1])
            left()
            return
        engine = engine_of(value.type, self.kernel.target, rows.shape_of(tile)[-1])
        made = write_box(tile, offsets, store.position, range(rank), engine)
        if self.cluster > 1 and not is_share:
            made.attributes["once"] = ir.UnitAttr.get()

    def _product(self, nest: Nest, product: Product) -> None:
        assert nest.op is not None
        self.issued = partial(self.kernel.ahead.issued, nest.op, self.cloner, self.row)
        if product.passes > 1:
            self._passes(nest, product)
            return
        waits = self.alike.get(hash(nest.value), hash(nest.value)) in self.program.stashes
        if defers(nest, product) and not waits:
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
            self.cloner[nest.op.results[0]] = columns_of_tile(self.cloner[nest.op.results[0]], 0, product.n)
        if nest.local and is_read_here(nest.value):
            self._keep_wide(nest.value)
        elif nest.local:
            self._hold(nest.value)
        if nest.local:
            self._send_all(nest)
        else:
            self.cloner[nest.value] = self._packed(self._value(nest.value))

    def _settled(self, number: int, sums: ir.Value) -> ir.Value:
        self.issued(self.layers is not None)
        return super()._settled(number, sums)


def _products(block: Block) -> list[tuple[Nest, Product]]:
    nests = (nest for nest in block.nests if nest.kind == PRODUCT and nest.op is not None)
    return list(zip(nests, block.products.values(), strict=True))


def _readers(block: Block) -> int:
    """How many operands of products of a stage the tile that it gets is."""
    got = block.stage.gets[0].results[0]
    return sum(part_ == got for nest, _ in _products(block) for part_ in parts_of(nest.op.operands[0]))
