"""From a product's sums to the tile that the next products read, piece by piece.

Where nothing but products reads a tile, its columns are computed in the background (background.py): those of the first
set of sums while the product's last set is multiplied, the others while the next product begins. The first are
packed into words between the two: the registers of the words before belong to products that run until then (ptxas
would run these one after another, C7513). The other CTAs of a cluster get a tile's boxes as they are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import prod

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.evaluate import Evaluator
from kitsune_mlir.codegen.pipeline.loops import unflatten
from kitsune_mlir.codegen.pipeline.memory import element_of, shape_of
from kitsune_mlir.codegen.pipeline.nests import Nest
from kitsune_mlir.mlir import arith, ir

from .cluster_sum import SUMS
from .exchange import Exchange
from .fragments import HALVES, Fragment, Lanes, blocks_of, is_packed
from .operands import is_held, is_read_here
from .product_plan import Product
from .products import Products
from .stores import boxes_of
from .wgmma import CHUNK


@dataclass
class Epilogue:
    """The epilogue of one product whose sums are `total`, with `adds` added where that is not None: the tile of
    `value`. What `defers` is computed in the background. Sums may also begin with a tile, `begins`."""

    value: ir.Value
    total: ir.Value
    adds: ir.Value | None
    product: Product
    tile: Fragment
    evaluator: Evaluator
    products: Products
    defers: bool
    begins: ir.Value | None = None
    sums: dict[int, list[ir.Value]] = field(default_factory=dict)  # by set
    started: list[list[ir.Value]] = field(default_factory=list)  # what sums begin with, by block

    def __post_init__(self) -> None:
        if self.defers:
            self.tile.compute = self._compute

    def begin(self, number: int) -> list[ir.Value]:
        """What the sums of set `number` begin with: the tile that the product is added to. All of it is loaded at once,
        when the first set begins."""
        if not self.started:
            self.started = [self._start(block) for block in range(self.product.sets * blocks_of(self.product.columns))]
        each = blocks_of(self.product.columns)
        return [x for block in self.started[number * each : (number + 1) * each] for x in block]

    def _start(self, block: int) -> list[ir.Value]:
        assert self.begins is not None
        lanes, width = self.tile.lanes, prod(shape_of(self.begins)[1:])
        zero = arith.constant(ir.F32Type.get(), 0.0)
        return [
            zero
            if device.is_less(column := lanes.column(block, e), width) is False
            else self.evaluator(self.begins, [lanes.rows[h], column])
            for h in HALVES
            for e in (0, 1)
        ]

    def take(self, number: int, sums: list[ir.Value]) -> None:
        """Set `number` of the sums is there."""
        self.sums[number] = sums
        if not self.defers:
            return
        self.products.free[number] = partial(self.registers, number)
        if number < self.product.sets - 1:
            for block in self._blocks(number):
                self.products.background.add(partial(self._compute, block))

    def know(self, block: int) -> None:
        """Tells the evaluator what stands in a block's registers."""
        number, local = divmod(block, blocks_of(self.product.columns))
        lanes = self.tile.lanes
        for h in HALVES:
            for e in (0, 1):
                index = [lanes.rows[h], lanes.column(block, e)]
                x = self.sums[number][SUMS * local + 2 * h + e]
                if self.adds is not None:
                    x = arith.addf(x, self.evaluator(self.adds, index))
                self.evaluator.know(self.total, index, x)

    def know_all(self) -> Evaluator:
        """The evaluator, when all sums are there."""
        each = blocks_of(self.product.columns)
        for number, sums in self.sums.items():
            for block in range(len(sums) // SUMS):
                self.know(number * each + block)
        return self.evaluator

    def pack(self) -> None:
        """When the product has ended: the words of all but the last set."""
        for number in range(self.product.sets - 1):
            for block in self._blocks(number):
                self._pack(block)

    def registers(self, number: int) -> list[ir.Value]:
        """What is in the registers of a set when its columns are computed."""
        each = blocks_of(self.product.columns)
        places = [(number * each + block, h, e) for block in range(each) for h in HALVES for e in (0, 1)]
        return [self.tile.values.get(place, x) for place, x in zip(places, self.sums[number])]

    def rest(self, exchange: Exchange | None) -> Iterator[Callable[[], None]]:
        """Pieces that compute the columns of the last set, and send all."""
        boxes = blocks_of(CHUNK)
        last, blocks = self.product.sets - 1, blocks_of(self.product.n)
        begin = self._blocks(last).start
        if exchange is not None:
            exchange.sent = 0
            yield partial(exchange.claim, boxes_of(self.product.n))
            for box in range(begin // boxes):
                yield partial(exchange.send, self.tile, box)
        for block in self._blocks(last):
            yield partial(self._pack, block)
            if exchange is not None and ((block + 1) % boxes == 0 or block + 1 == blocks):
                yield partial(exchange.send, self.tile, block // boxes)

    def _blocks(self, number: int) -> range:
        """The blocks of a set."""
        each = blocks_of(self.product.columns)
        return range(number * each, min((number + 1) * each, blocks_of(self.product.n)))

    def _pack(self, block: int) -> None:
        for h in HALVES:
            self.tile.word(block, h)

    def _compute(self, block: int) -> None:
        if (block, 0, 0) in self.tile.values or block >= blocks_of(self.product.n):
            return
        self.know(block)
        for h in HALVES:
            for e in (0, 1):
                x = element_at(self.evaluator, self.value, self.tile.lanes, block, h, e)
                self.tile.values[block, h, e] = x


def element_at(
    evaluator: Evaluator, value: ir.Value, lanes: Lanes, block: int, h: int, e: int, everywhere: bool = False
) -> ir.Value:
    """One element of a tile; zero beyond its columns. The only column of a row may be computed `everywhere`, from what
    all threads of the row know."""
    column, shape = lanes.column(block, e), shape_of(value)
    width = prod(shape[1:])
    x = evaluator(value, [lanes.rows[h], *unflatten(0 if everywhere else column, shape[1:])])
    if device.is_less(column, width) is not True:
        zero = arith.constant(x.type, 0 if isinstance(x.type, ir.IntegerType) else 0.0)
        x = arith.select(device.less(column, width), x, zero)
    return x


def is_deferred(nest: Nest) -> bool:
    """Whether a product's own stage reads its tile by products alone and keeps it: it need not be whole at once."""
    packed = is_packed(element_of(nest.value)) and not is_read_here(nest.value)
    return packed and is_held(nest) and not nest.stores and not nest.puts
