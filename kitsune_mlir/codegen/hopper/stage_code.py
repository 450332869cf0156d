"""The code of one stage for a warpgroup's rows: products with their epilogues, maps, row reductions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.codegen.pipeline.evaluate import Evaluator, Recomputed
from kitsune_mlir.codegen.pipeline.loops import IDENTITY, combine, is_zero, loop_extents, unflatten
from kitsune_mlir.codegen.pipeline.memory import Memory, compute_type, element_of, shape_of
from kitsune_mlir.codegen.pipeline.nests import MAP, PRODUCT, Nest
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, ir

from .chainable import row_combiner
from .epilogue import Epilogue, element_at, is_deferred
from .exchange import Exchange
from .fragments import BLOCK, HALVES, Fragment, Lanes, blocks_of, is_packed, pack
from .operands import is_exchanged, is_loaded, is_read_here
from .outgoing import Around, Outgoing
from .product_plan import Product
from .products import Products
from .program import Block, Program
from .stash import Stash
from .stores import BOX_BYTES

QUAD = (1, 2)  # lane distances between the four threads of a row


@dataclass(frozen=True)
class Place:
    """A warpgroup at a tile. `shares` gives, for the columns of a CTA's share, the lanes there and the first column."""

    program: Program
    lanes: Lanes
    shares: dict[int, tuple[Lanes, Int]]
    around: Around
    products: Products
    outgoing: Outgoing

    def share(self, width: int) -> tuple[int, Lanes, Int]:
        """How many columns of a tile `width` wide the CTA computes, where its threads stand there, and the first."""
        columns = self.program.share(width)
        if columns == width:
            return columns, self.lanes, 0
        return columns, *self.shares[columns]

    def each_pass(self, product: Product, each: Callable[[Lanes, Int], None]) -> None:
        """Calls `each`, in code, for every pass over the CTA's columns of a product."""
        if self.around.first_column is None and product.passes > 1:
            self.products.each_pass(product, *self.shares[product.n], each)
        else:
            each(*self.dealt(product))

    def dealt(self, product: Product) -> tuple[Lanes, Int]:
        """Where the threads stand in the pass that the grid deals out, or in the only one, and its first column."""
        if (first := self.around.first_column) is None:
            return self.shares[product.n]
        return self.lanes.shifted(first, product.bound), first

    def stash(self, value: ir.Value) -> Stash | None:
        """Where a tile waits for a later product."""
        box = self.program.stashes.get(hash(value))
        if box is None:
            return None
        return Stash(device.add(self.around.stashes, box * BOX_BYTES), self.program.stash_boxes * BOX_BYTES)

    @property
    def exchange(self) -> Exchange | None:
        return self.products.rings.exchange


@dataclass
class StageCode:
    """One stage of a tile; `memories` says where its values stand."""

    at: Place
    block: Block
    number: Int
    memories: dict[int, Memory | Recomputed]

    def mark(self) -> None:
        """Who reads a tile before it is computed reads it rounded, as it will be."""
        for nest in self.block.nests:
            element = element_of(nest.value)
            if self._is_computed(nest) and compute_type(element) != element:
                self.memories.setdefault(hash(nest.value), Recomputed(element))

    def _is_computed(self, nest: Nest) -> bool:
        """Whether a tile that is no product's has a place of its own, or leaves."""
        return nest.kind == MAP and bool(self.at.program.holds(nest) or nest.stores or nest.puts)

    def emit(self, nest: Nest) -> None:
        if isinstance(self.memories.get(hash(nest.value)), Recomputed):
            del self.memories[hash(nest.value)]
        if nest.kind == PRODUCT:
            self._product(nest)
        elif nest.kind == MAP:
            if self._is_computed(nest):
                columns, lanes, start = self.at.share(prod(shape_of(nest.value)[1:]))
                self._tile(nest, lanes, start, Evaluator(self.memories), columns)
        else:
            self._reduction(nest)
        for value in nest.values:
            tile = self.memories.get(hash(value))
            if isinstance(tile, Fragment):
                tile.spread_out(self.block.spread.get(hash(value), ()))

    def _product(self, nest: Nest) -> None:
        assert nest.op is not None
        product = self.block.products[hash(nest.op.results[0])]
        operands = [
            None if segment.rows_map is not None else self._fragment(segment.value) for segment in product.segments
        ]

        def one_pass(lanes: Lanes, start: Int) -> None:
            epilogue = self._epilogue(nest, lanes)
            self.at.products.run(product, operands, epilogue.take, epilogue.begin if epilogue.begins else None)
            if epilogue.defers:
                self._hand_on(nest, epilogue)
            else:
                self._tile(nest, lanes, start, epilogue.know_all(), min(product.n, product.pass_columns))

        self.at.each_pass(product, one_pass)

    def resume(self, nest: Nest, words: dict[tuple[int, int], ir.Value]) -> Fragment:
        """A product's tile as `_product` leaves it when it defers, taken up in other code: the words that were there,
        and the last set's sums in their registers."""
        assert nest.op is not None
        product = self.block.products[hash(nest.op.results[0])]
        epilogue = self._epilogue(nest, self.at.shares[product.n][0])
        epilogue.tile.words.update(words)
        epilogue.take(product.sets - 1, self.at.products.free[product.sets - 1]())
        self._hand_on(nest, epilogue)
        return epilogue.tile

    def _epilogue(self, nest: Nest, lanes: Lanes) -> Epilogue:
        assert nest.op is not None
        total, adds = nest.op.results[0], None if starts_from_zero(nest.op) else nest.op.operands[2]
        begins = adds if adds is not None and is_loaded(adds) else None
        adds = adds if begins is None else None
        product = self.block.products[hash(total)]
        whole = product.n % BLOCK == 0 and self.at.stash(nest.value) is None
        defers = product.sets > 1 and is_deferred(nest) and whole
        tile = Fragment(lanes, element_of(nest.value), shape_of(nest.value))
        evaluator = Evaluator(dict(self.memories))  # the tile itself is none of them
        return Epilogue(nest.value, total, adds, product, tile, evaluator, self.at.products, defers, begins)

    def _hand_on(self, nest: Nest, epilogue: Epilogue) -> None:
        """The rest of a tile is computed, and sent to the other CTAs, while the next product runs."""
        self.memories[hash(nest.value)] = epilogue.tile
        epilogue.pack()
        self.at.products.background.settle()  # pieces for columns that are packed now
        exchange = self.at.exchange if is_exchanged(nest) else None
        for piece in epilogue.rest(exchange):
            self.at.products.background.add(piece)

    def _fragment(self, value: ir.Value) -> Fragment | Stash:
        """A product's operand in registers, or where it waits; of an exchanged tile the CTA's own share."""
        held = self.memories.get(hash(value))
        if isinstance(held, Fragment | Stash):
            return held
        lanes = self.at.lanes
        tile = Fragment(lanes, element_of(value), shape_of(value))
        evaluator = Evaluator(self.memories)
        for block in range(blocks_of(tile.width)):
            for h in HALVES:
                pair = [element_at(evaluator, value, lanes, block, h, e) for e in (0, 1)]
                if is_packed(tile.element):
                    tile.words[block, h] = pack(*pair, tile.element)
                else:
                    tile.values[block, h, 0], tile.values[block, h, 1] = pair
        return tile

    def _tile(self, nest: Nest, lanes: Lanes, start: Int, evaluator: Evaluator, columns: int) -> None:
        """Computes a nest's tile, `columns` of it from column `start` on, where `lanes` stand; keeps and stores it.
        What is not kept, but for a product's 16-bit elements, is computed as it leaves, box by box: ptxas works ahead,
        and registers do not hold what it would compute of all at once."""
        element = element_of(nest.value)
        tile = Fragment(lanes, element, shape_of(nest.value))
        everywhere = nest.kind == MAP and tile.width == 1
        packs = is_packed(element) and not (nest.kind == PRODUCT and is_read_here(nest.value))
        stash = self.at.stash(nest.value)

        def compute(block: int) -> None:
            if block >= blocks_of(columns):
                return
            for h in HALVES:
                pair = [element_at(evaluator, nest.value, lanes, block, h, e, everywhere) for e in (0, 1)]
                if packs:
                    tile.words[block, h] = pack(*pair, element)
                else:
                    tile.values[block, h, 0], tile.values[block, h, 1] = pair

        of_sums = nest.kind == PRODUCT and is_packed(element)
        if of_sums or self.at.program.holds(nest) and (stash is None or is_packed(element)):
            for block in range(blocks_of(columns)):
                compute(block)
            if not is_packed(element):
                tile.pin()
        else:
            tile.compute = compute
        if stash is not None:
            stash.write(tile.pack_all(), self.at.around.boxes)
            self.memories[hash(nest.value)] = stash
        elif self.at.program.holds(nest):
            self.memories[hash(nest.value)] = tile.pack_all()
            if self.at.exchange is not None and is_exchanged(nest):
                self.at.exchange.send_all(tile, columns)
        for put in nest.puts:
            self.at.outgoing.put(tile.pack_all(), put, columns, start)
        for store in nest.stores:
            self._leave(tile, store, columns, start)

    def _leave(self, tile: Fragment, store: kitsune.OutputOp, columns: int, start: Int) -> None:
        """Writes a tile to an output, or writes or adds its rows to some of one."""
        if isinstance(store, kitsune.StoreOp):
            self.at.outgoing.store(tile.pack_all(), store, columns, start)
            return
        evaluator = Evaluator(self.memories)
        to = [evaluator(store.operands[1], [row]) for row in tile.lanes.rows]
        self.at.outgoing.to_rows(tile.pack_all(), store, to, columns, start)

    def _reduction(self, nest: Nest) -> None:
        """A row's columns to one number: each thread its own columns, then the four threads of the row."""
        op = nest.op
        assert op is not None
        s = rows.Structured(op)
        combiner = row_combiner(s)
        result = op.results[0]
        if nest.puts:
            raise UnsupportedError("numbers of rows do not go from CTA to CTA")
        reduced = [loop for loop, kind in enumerate(s.iterators) if kind == "reduction"]
        extents = loop_extents(s)
        width = prod(extents[loop] for loop in reduced)
        columns, lanes, _ = self.at.share(width)
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
            assert self.at.exchange is not None
            totals = self.at.exchange.add_up(totals, partial(combine, combiner))
        for h in HALVES:
            start = evaluator(op.operands[s.inputs], [lanes.rows[h], *[0] * (len(shape_of(result)) - 1)])
            tile.values[0, h, 0] = combine(combiner, start, totals[h])
            tile.values[0, h, 1] = arith.constant(ir.F32Type.get(), 0.0)
        self.memories[hash(result)] = RowValues(tile)
        for store in nest.stores:
            self.at.outgoing.store(tile, store, 1, 0)


class RowValues(Memory):
    """One number a row, in registers."""

    def __init__(self, tile: Fragment):
        self._tile = tile

    def load(self, index: list[Int]) -> ir.Value:
        return self._tile.values[0, self._tile.lanes.half(index[0]), 0]


def starts_from_zero(op: ir.Operation) -> bool:
    init = rows.init_of(op.operands[2])
    return init.scalar is not None and is_zero(init.scalar)
