"""What a warpgroup does with its rows of a tile in a chained pipeline, in the order in which it is issued.

A product is issued in a few dozen cycles and runs for hundreds. Where nothing but products reads the tile that a
product makes, its columns are computed in the *background*: pieces of 8 columns stand between other products. Wider
products are in two sets of sums. Those columns whose sums are the first set's are computed while the second set is
multiplied, the others while the next product begins. The first are packed into words between the two: the registers of
the words before belong to products that run until then (ptxas would run these one after another, C7513).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kitsune_mlir import rows
from kitsune_mlir.chains.operands import is_exchanged, is_held, is_loaded, is_operand, is_read_here, parts_of
from kitsune_mlir.chains.product_plan import Product
from kitsune_mlir.chains.program import Block
from kitsune_mlir.chains.rolling import follows_alike, rolls
from kitsune_mlir.codegen.hopper.fragments import BLOCK, is_packed
from kitsune_mlir.codegen.pipeline.nests import PRODUCT, REDUCTION, Nest, StageNests, kitsune_label
from kitsune_mlir.dialects import kitsune, schedule
from kitsune_mlir.dialects.roles import FillOp
from kitsune_mlir.dialects.spread import SpreadOp
from kitsune_mlir.dialects.stow import StowOp
from kitsune_mlir.dialects.write_rows import WriteRowsOp
from kitsune_mlir.mlir import arith, ir, scf

from .chain_columns import Columns, computed_columns, is_computed, loaded_columns, take_columns
from .chain_deferred import Deferred, defers
from .chain_exchange import Exchanged, ShareCloner, joins_columns, total
from .chain_fills import Fills, selected
from .chain_kernel import COPY_ROWS, SENT, STOWED, ChainKernel
from .chain_products import ChainProducts, LoopOfLayers, Operand
from .chain_stows import Stowed, readers_of
from .chain_tiles import Pieces, beside, engine_of, first_columns, one_column, part
from .schedule_build import constant_index, i64


class ChainBody(ChainProducts):
    """Builds a tile's work, whose first row is at `row`."""

    def __init__(self, kernel: ChainKernel, row: ir.Value):
        super().__init__(kernel)
        self.program, self.row = kernel.program, row
        self.cluster = kernel.cluster
        self.cloner = self._new_cloner()
        self.firsts: dict[int, ir.Value] = {}  # of the stage's shares, by their columns
        self.loaded: dict[int, Pieces] = {}  # operands in registers of which each CTA of a cluster has all columns
        self.tiles: dict[int, Pieces] = {}  # in registers
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
        for get, first in zip(stage.gets, block.stage.gets, strict=True):
            self.alike[hash(get.results[0])] = hash(first.results[0])
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
        self.alike.update((hash(nest.value), hash(first.value)) for nest, first in zip(nests, block.nests, strict=True))
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
                elif is_held(nest) and nest.local and (self.cluster == 1 or self.program.holds(nest)):
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
        columns = self.block.spread.get(self.alike.get(hash(value), hash(value)), ())
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
            step = vectors.step(block, ir.RankedTensorType(value.type).element_type)
            places = vectors.place(block, value), vectors.place(before, other)
            if places[0] is None or places[1] is None or places[0] - step != places[1]:
                return False
        return True

    def _new_cloner(self) -> rows.RowCloner:
        return rows.RowCloner(COPY_ROWS) if self.cluster == 1 else ShareCloner(COPY_ROWS, self.cluster)

    def _first(self, count: int) -> ir.Value:
        """The first of the columns that the CTA of a cluster has, of so many each: asked for once a stage, so that what
        is read at it is found from one register."""
        if count not in self.firsts:
            self.firsts[count] = self.kernel.first_of_share(count)
        return self.firsts[count]

    @property
    def _parts(self) -> int:
        """Into how many parts columns are divided, of which a CTA has one."""
        return getattr(self.cloner, "parts", 1)

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
        elif (column := _column_of(op, self._parts > 1)) is not None:
            whole = self._value(op.operands[0]) if self._parts == 1 else self._loaded_value(op.operands[0])
            self.cloner[value] = one_column(whole, column)
        elif op.name not in rows.SUPPORT:
            for operand in op.operands:
                if rows.is_tensor(operand) and rows.init_of(operand).tensor is not None:
                    self._value(operand)
            width = self.cloner.type_of(value.type).shape[-1]
            first = self._first(width) if self._parts > 1 and op.name == "linalg.generic" and width > 1 else None
            self.cloner.clone(op, 1)
            if first is not None:
                take_columns(self.cloner[value].owner, first, width)
            if self._parts > 1 and joins_columns(op):
                self.cloner[value] = total(op, self.cloner[value])
        return self.cloner[value]

    def _resident(self, value: ir.Value) -> ir.Value:
        """All of a tensor that is the same for all rows, that of the layer in a loop over layers."""
        layer = None if self.layers is None else self.layers.counter
        if (vector := self.kernel.vector(self.block, value, layer, self._parts, self._first)) is not None:
            return vector
        if self.layers is None:
            return self._read(value, value, ())
        of_layers = self.layers.of(value)
        return self._read(selected(of_layers, self.layers.counter), value, ())

    def _read(self, whole: ir.Value, value: ir.Value, at: Sequence[ir.Value]) -> ir.Value:
        """A box of a tensor: the copy's rows, or all of it."""
        kind = ir.RankedTensorType(value.type)
        sizes = list((self.cloner.type_of(kind) if at else kind).shape)
        offsets = [*at, *[constant_index(0)] * (kind.rank - len(at))]
        if self._parts > 1 and kind.rank > len(at) and kind.shape[-1] > 1:
            sizes[-1] = kind.shape[-1] // self._parts
            offsets[-1] = self._first(sizes[-1])
        read = schedule.ReadOp(whole, offsets, ir.RankedTensorType.get(sizes, kind.element_type))
        read.attributes["dims"] = ir.DenseI64ArrayAttr.get(list(range(kind.rank)))
        if at and kind.rank == 2 and is_packed(kind.element_type) and sizes[-1] == kind.shape[-1]:
            read.attributes["together"] = ir.UnitAttr.get()
        return read.results[0]

    def _keep(self, value: ir.Value) -> Pieces:
        """Computes a tile and keeps it: a part for each chunk that products take."""
        if self.cluster > 1 and is_loaded(value):
            return self._keep_loaded(value)
        if hash(value) not in self.tiles:
            tile, width, each = self._value(value), self._width(value), self.kernel.chunk
            found = Pieces(width, each, lambda number: part(tile, number * each, min(each, width - number * each)))
            whole = found.columns(0, width)
            self.tiles[hash(value)] = found
            if not _is_sliced(value):  # in memory other threads' columns are there, too
                self.cloner[value] = whole
        return self.tiles[hash(value)]

    def _keep_loaded(self, value: ir.Value) -> Pieces:
        """The same of an operand that each CTA of a cluster computes from what is loaded, with all its columns."""
        if hash(value) not in self.loaded:
            tile, width, each = self._loaded_value(value), rows.shape_of(value)[1], self.kernel.chunk
            self.loaded[hash(value)] = pieces = Pieces(
                width, each, lambda number: part(tile, number * each, min(each, width - number * each))
            )
            pieces.columns(0, width)
        return self.loaded[hash(value)]

    def _loaded_value(self, value: ir.Value) -> ir.Value:
        """All columns of what each CTA of a cluster computes from what is loaded."""
        around, self.cloner = self.cloner, rows.RowCloner(COPY_ROWS)
        tile = self._value(value)
        self.cloner = around
        return tile

    def _width(self, value: ir.Value) -> int:
        """The columns of a tile that the CTA has."""
        return self.program.share(rows.shape_of(value)[1])

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
        """Computes a tile and keeps it, in registers or where it waits for a product."""
        first = self.program.stashes.get(self.alike.get(hash(value), hash(value)))
        if first is None:
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
            self._write_rows(tile, store, offsets[1])
            return
        write = schedule.WriteOp(tile, offsets, i64(store.position))
        write.attributes["dims"] = ir.DenseI64ArrayAttr.get(list(range(rank)))
        if self.cluster > 1 and not is_share:
            write.attributes["once"] = ir.UnitAttr.get()
        if (engine := engine_of(value, rows.shape_of(tile)[-1])) is not None:
            write.attributes["engine"] = ir.StringAttr.get(engine)

    def _write_rows(self, tile: ir.Value, store: kitsune.ScatterOp | kitsune.PlaceOp, column: ir.Value) -> None:
        """Writes, or adds, columns from `column` on to rows by number."""
        to = self._value(store.operands[1])
        with store.operation.location:
            left = WriteRowsOp(tile, to, self.row, self.kernel.extent, column, i64(store.position))
        if isinstance(store, kitsune.ScatterOp):
            left.attributes["adds"] = ir.UnitAttr.get()

    # ---- products

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
            self.cloner[nest.op.results[0]] = first_columns(self.cloner[nest.op.results[0]], product.n)
        if nest.local and is_read_here(nest.value):
            self._keep_wide(nest.value)
        elif nest.local:
            self._hold(nest.value)
        if nest.local:
            self._send_all(nest)
        else:
            self.cloner[nest.value] = self._packed(self._value(nest.value))

    def _settled(self, number: int, sums: ir.Value) -> ir.Value:
        self.issued()
        return super()._settled(number, sums)

    @staticmethod
    def _packed(tile: ir.Value) -> ir.Value:
        """A product's tile that leaves: of 16-bit elements all of it is computed before. With the boxes between that it
        leaves through, what is read for its columns would be waited for one after another."""
        kind = ir.RankedTensorType(tile.type)
        return part(tile, 0, kind.shape[1]) if kind.rank == 2 and is_packed(kind.element_type) else tile

    def _passes(self, nest: Nest, product: Product) -> None:
        """A product of more columns than registers hold, whose tile is only stored: in a loop over its columns, unless
        tiles are of columns too."""
        assert nest.op is not None
        self._settle_background()
        self.free.clear()
        operands = self._operands(nest.op)
        for segment, (value, _) in zip(product.segments, operands, strict=True):
            if not segment.streams and hash(value) not in self.stowed:
                kept = self._keep(value)
                kept.columns(0, kept.width)
            if segment.parts > 1:
                self.exchanged[hash(value)].open_all()
        if self.kernel.column is not None:
            self._pass(nest, product, operands, self.kernel.column, [])
        else:
            slots = [self.kernel.acquire_queue(kitsune_label(put.operands[0])) for put in nest.puts]
            filling, self.filling, known = self.filling, [], dict(self.cloner.values)
            filling.append(Fills("passes", 0, product.n, product.pass_columns, self.filling))
            loop = scf.ForOp(*map(constant_index, (0, product.n, product.pass_columns)))
            firsts = dict(self.firsts)
            with ir.InsertionPoint(loop.body):
                self._pass(nest, product, operands, loop.induction_variable, slots)
                scf.yield_([])
            for slot in slots:
                schedule.CommitOp(slot, [])
            self.firsts = firsts
            self.filling, self.cloner.values = filling, known
        self.free.clear()
        for (value, _), ends in zip(operands, self._reads(operands), strict=True):
            if not ends:
                continue
            stowed, sent = self.stowed.get(hash(value)), self.exchanged.get(hash(value))
            for slot in stowed.slots if stowed is not None else sent.slots.values():
                schedule.ReleaseOp(slot, [])

    def _pass(
        self, nest: Nest, product: Product, operands: list[Operand], first: ir.Value, slots: Sequence[ir.Value]
    ) -> None:
        """The columns of a pass, from `first` on, which are stored, and fill `slots` of rings between roles."""
        self.first = first
        settled: dict[int, ir.Value] = {}
        self._run(product, operands, settled.__setitem__)
        sums = beside([settled[number] for number in range(product.sets)])
        columns = Columns(nest, partial(self._columns, product, first))
        value = self._packed(columns.of(sums, 0, product.pass_columns))
        for store in nest.stores:
            self._write_columns(value, store, self._of_share(product, first))
        for slot in slots:
            FillOp(slot, value, first)

    def _of_share(self, product: Product, column: ir.Value) -> ir.Value:
        """A column, counted from the first of the CTA's, among all."""
        return column if self.cluster == 1 else arith.addi(self._first(product.n), column)

    def _beginning(self, product: Product) -> ir.Value:
        value = product.op.operands[2]
        if product.passes == 1:
            return self._value(value)
        return self._columns(product, self.first, value, 1)

    def _columns(self, product: Product, first: ir.Value, value: ir.Value, dim: int | None) -> ir.Value:
        """What stands beside a pass's sums: the pass's columns, from `first` on, of a tensor or of what the stage
        computes by element."""
        if dim is None:
            return self._value(value)
        if is_computed(value):
            shape, leaf = (COPY_ROWS, product.pass_columns), partial(self._columns, product, first)
            return computed_columns(value, shape, self._of_share(product, first), leaf)
        count, loaded = product.pass_columns, loaded_columns(value)
        whole, at = value, [constant_index(0)] * ir.RankedTensorType(value.type).rank
        at[dim] = self._of_share(product, first)
        if loaded is not None:
            load, begin = loaded
            whole, at[0] = load.operands[0], self.row
            at[dim] = arith.addi(at[dim], constant_index(begin)) if begin else at[dim]
        kind = ir.RankedTensorType(value.type)
        sizes = [COPY_ROWS if at[0] is self.row and d == 0 else size for d, size in enumerate(kind.shape)]
        sizes[dim] = count
        read = schedule.ReadOp(whole, at, ir.RankedTensorType.get(sizes, kind.element_type))
        read.attributes["dims"] = ir.DenseI64ArrayAttr.get(list(range(kind.rank)))
        return read.results[0]

    def _write_columns(self, tile: ir.Value, store: kitsune.OutputOp, first: ir.Value) -> None:
        if not isinstance(store, kitsune.StoreOp):
            self._write_rows(tile, store, first)
            return
        write = schedule.WriteOp(tile, [self.row, first], i64(store.position))
        write.attributes["dims"] = ir.DenseI64ArrayAttr.get([0, 1])
        if (engine := engine_of(store.operands[0], rows.shape_of(tile)[1])) is not None:
            write.attributes["engine"] = ir.StringAttr.get(engine)


def _products(block: Block) -> list[tuple[Nest, Product]]:
    nests = (nest for nest in block.nests if nest.kind == PRODUCT and nest.op is not None)
    return list(zip(nests, block.products.values(), strict=True))


def _column_of(op: ir.Operation, in_parts: bool) -> int | None:
    """Which one column of a tile an operation takes, where not each row's first thread has it, or CTAs have parts of
    the columns; None elsewhere."""
    shapes = [rows.shape_of(op.operands[0]), rows.shape_of(op.results[0])] if op.name == "tensor.extract_slice" else []
    if [len(shape) for shape in shapes] != [2, 2] or shapes[1][1] != 1:
        return None
    column = list(ir.DenseI64ArrayAttr(op.attributes["static_offsets"]))[1]
    return column if column % BLOCK or in_parts else None


def _is_sliced(tile: ir.Value) -> bool:
    """Whether a tile is in memory, and its stage takes slices of what is there."""
    load = rows.producer(tile)
    if load is None or load.name != kitsune.LoadOp.OPERATION_NAME:
        return False
    slices = (op.operation for op in load.parent.regions[0].blocks[0] if op.operation.name == "tensor.extract_slice")
    return any(is_loaded(op.operands[0]) for op in slices)


def _readers(block: Block) -> int:
    """How many operands of products of a stage the tile that it gets is."""
    got = block.stage.gets[0].results[0]
    return sum(part_ == got for nest, _ in _products(block) for part_ in parts_of(nest.op.operands[0]))
