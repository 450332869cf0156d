"""The producer: one thread that issues the tensor copies of a tile, in the order in which consumers take them."""

from __future__ import annotations

from dataclasses import dataclass

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import ir

from . import mbarrier, tma
from .consumer import Rings
from .program import TILE_ROWS, Block, Product, Program, Segment
from .wgmma import CHUNK


@dataclass
class Producer:
    """Emits the copies of one tile, whose first row is `first_row` (i32); `first_column` where the grid deals out
    columns too."""

    program: Program
    maps: ir.Value
    rings: Rings
    first_row: Int
    first_column: ir.Value | None = None

    def emit(self) -> None:
        for block in self.program.blocks:
            if len(block.stages) == 1:
                self._stage(block, 0)
            else:
                self._repeat(len(block.stages), 1, lambda number, block=block: self._stage(block, number))

    def _repeat(self, stop: int, step: int, body) -> None:
        """A loop around copies; once is no loop."""
        if stop <= step:
            body(0)
            return

        def around(number: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            self.rings.resume(carried)
            body(number)
            return self.rings.state()

        self.rings.resume(device.loop(0, stop, step, around, self.rings.state()))

    def _stage(self, block: Block, number: Int) -> None:
        first_map = device.mul(number, block.map_step)
        for product in block.products.values():
            if self.first_column is not None:
                self._product(product, first_map, self.first_column)
                continue
            self._repeat(product.n, product.columns, lambda n, product=product: self._product(product, first_map, n))

    def _product(self, product: Product, first_map: Int, n: Int) -> None:
        for segment in product.segments:
            self._repeat(
                segment.chunks, 1, lambda chunk, segment=segment: self._chunk(product, segment, first_map, n, chunk)
            )

    def _chunk(self, product: Product, segment: Segment, first_map: Int, n: Int, chunk: Int) -> None:
        column = device.mul(chunk, CHUNK)
        ring, slot = self.rings.weights, self.rings.weight
        map_ = tma.map_pointer(self.maps, device.add(first_map, segment.map))
        self._copy(ring, slot, map_, [device.add(column, segment.start), n], product.columns)
        self.rings.weight = ring.advance(slot)
        if segment.rows_map is not None:
            assert self.rings.tiles is not None and self.rings.tile is not None
            map_ = tma.map_pointer(self.maps, device.add(first_map, segment.rows_map))
            self._copy(self.rings.tiles, self.rings.tile, map_, [column, self.first_row], TILE_ROWS)
            self.rings.tile = self.rings.tiles.advance(self.rings.tile)

    def _copy(self, ring: mbarrier.Ring, slot: mbarrier.Slot, map_: ir.Value, at: list[Int], box_rows: int) -> None:
        ring.wait_empty(slot)
        mbarrier.expect(ring.full(slot), box_rows * CHUNK * 2)
        tma.load(map_, at, ring.place(slot), ring.full(slot))
