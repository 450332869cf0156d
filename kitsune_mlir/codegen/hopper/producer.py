"""The producer: a thread that issues the tensor copies of a tile, in the order in which consumers take them; or two, of
which one copies weights, the other streamed tiles: the one has no reason to wait where the other has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from kitsune_mlir import rows
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.codegen.pipeline.nests import kitsune_label
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.mlir import arith, ir

from . import cluster, mbarrier, tma
from .product_plan import Product, Segment, Turn
from .program import Block, Program
from .rings import Rings
from .tile_ring import TileRing
from .wgmma import BOX_ROW


@dataclass
class Producer:
    """Emits the copies of one tile, whose first row is `first_row` (i32); `first_column` where the grid deals out
    columns too. `copies` says what the thread copies: "all", "weights" or "tiles"."""

    program: Program
    maps: ir.Value
    rings: Rings
    first_row: Int
    first_column: ir.Value | None = None
    tile: ir.Value | None = None  # its number
    queues: dict[str, TileRing] = field(default_factory=dict)
    copies: str = "all"

    @property
    def _rank(self) -> Int:
        """The CTA's in its cluster, asked for where it is used: registers are few."""
        return cluster.rank() if self.program.cluster > 1 else 0

    def emit(self) -> None:
        for block in self.program.blocks:
            self._repeat(0, len(block.stages), 1, partial(self._stage, block))

    def _repeat(self, start: int, stop: int, step: int, body: Callable[[Int], None]) -> None:
        """A loop around copies; once is no loop."""
        if stop <= start + step:
            if start < stop:
                body(start)
            return

        def around(number: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            self.rings.resume(carried)
            body(number)
            return self.rings.state()

        self.rings.resume(device.loop(start, stop, step, around, self.rings.state()))

    def _stage(self, block: Block, number: Int) -> None:
        first_map = device.mul(number, block.map_step)
        for get in block.stage.gets:
            if (queue := self.queues.get(kitsune_label(get.operands[0]))) is not None:
                queue.wait_full(self.tile)
        for product in block.products.values():
            share = device.mul(self._rank, product.n) if product.n > 1 else 0  # every CTA has a single column
            if self.first_column is not None:
                self._product(product, first_map, self.first_column)
            else:
                step = product.pass_columns
                one_pass = partial(self._pass, product, first_map, share)
                self._repeat(0, product.n, step, one_pass)

    def _pass(self, product: Product, first_map: Int, share: Int, start: Int) -> None:
        self._product(product, first_map, device.add(start, share))

    def _product(self, product: Product, first_map: Int, n: Int) -> None:
        """The columns from `n` on."""
        for turn in product.turns():
            for segment in product.segments:
                for leg in segment.legs:
                    self._repeat(0, segment.parts, 1, partial(self._part, product, turn, segment, leg, first_map, n))

    def _part(
        self, product: Product, turn: Turn, segment: Segment, leg: range, first_map: Int, n: Int, part: Int
    ) -> None:
        """A share of an exchanged tile, the CTA's own being part 0; else all columns of the segment."""
        share: Int = 0
        if segment.parts > 1:
            share = arith.remui(device.value(device.add(self._rank, part)), device.value(segment.parts))
        start = device.add(device.mul(share, segment.width), segment.start)
        self._repeat(leg.start, leg.stop, 1, partial(self._chunk, product, turn, segment, first_map, n, start))

    def _chunk(
        self,
        product: Product,
        turn: Turn,
        segment: Segment,
        first_map: Int,
        n: Int,
        start: Int,
        chunk: Int,
    ) -> None:
        column = device.mul(chunk, segment.chunk_columns)
        if streamed := segment.rows_map is not None:
            assert segment.rows_map is not None and self.rings.tiles is not None and self.rings.tile is not None
            map_ = tma.map_pointer(self.maps, device.add(first_map, segment.rows_map))
            if self.copies != "weights":
                at = [column, self._row(segment)]
                self._copy(self.rings.tiles, self.rings.tile, map_, at, self.program.box_rows)
        map_ = tma.map_pointer(self.maps, device.add(first_map, segment.map))
        for number, piece, last in segment.boxes(turn):
            if self.copies != "tiles":
                at = [device.add(start, device.add(column, piece)), device.add(n, number * product.columns)]
                self._copy(self.rings.weights, self.rings.weight, map_, at, product.columns)
            self.rings.step_on(streamed and last)

    def _row(self, segment: Segment) -> Int:
        """Where a streamed tile begins: in a tensor, or in the ring that it comes from."""
        op = rows.producer(segment.value)
        if op.name != kitsune.GetOp.OPERATION_NAME:
            return self.first_row
        return self.queues[kitsune_label(op.operands[0])].row(self.tile)

    def _copy(self, ring: mbarrier.Ring, slot: mbarrier.Slot, map_: ir.Value, at: list[Int], box_rows: int) -> None:
        ring.wait_empty(slot)
        mbarrier.expect(ring.full(slot), box_rows * BOX_ROW)
        tma.load(map_, at, ring.place(slot), ring.full(slot))
