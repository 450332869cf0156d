"""Which tile a CTA takes: rows alone, or rows and columns of a single wide product. CTAs that share boxes of weights
take neighbouring row tiles of the same columns."""

from __future__ import annotations

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.mlir import arith, ir

from . import cluster
from .product_plan import Product

GROUP = 16  # row tiles whose column tiles are taken together, so that both operands stay in L2


class Tiles:
    """Tiles of `rows` (i32) rows. With a product, also of its columns: in groups of GROUP row tiles, down the rows
    first, for the CTAs at work at one time then read few different rows and few different weights.

    Counted are tiles of a whole cluster: one for each of its `ctas`, of which the last may be beyond the rows."""

    def __init__(self, product: Product | None, rows: ir.Value, tile_rows: int, ctas: int = 1):
        self.rows, self._product, self._tile_rows, self._ctas = rows, product, tile_rows, ctas
        self._height = tile_rows * ctas
        self._down = device.div(device.add(rows, self._height - 1), self._height)
        self.count = device.mul(self._down, product.passes) if product else self._down

    def start(self, number: ir.Value) -> tuple[ir.Value, ir.Value | None]:
        """First row and column of the CTA's tile."""
        if self._product is None:
            return self._row(number), None
        most = GROUP // self._ctas
        size = most * self._product.passes
        group, inside = device.div(number, size), device.mod(number, size)
        first = device.mul(group, most)
        height = device.value(device.least(device.sub(self._down, first), most))
        row = device.add(first, arith.remui(inside, height))
        column = arith.divui(inside, height)
        return self._row(row), device.mul(column, self._product.pass_columns)

    def _row(self, number: ir.Value) -> ir.Value:
        """The first row of the CTA's tile among those of the cluster."""
        first = device.value(device.mul(number, self._height))
        if self._ctas == 1:
            return first
        return arith.addi(first, device.value(device.mul(cluster.rank(), self._tile_rows)))
