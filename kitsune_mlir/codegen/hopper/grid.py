"""Which tile a CTA takes: rows alone, or rows and columns of a single wide product."""

from __future__ import annotations

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.mlir import arith, ir

from .product_plan import Product

GROUP = 16  # row tiles whose column tiles are taken together, so that both operands stay in L2


class Tiles:
    """Tiles of `rows` (i32) rows. With a product, also of its columns: in groups of GROUP row tiles, down the rows
    first, for the CTAs at work at one time then read few different rows and few different weights."""

    def __init__(self, product: Product | None, rows: ir.Value, tile_rows: int):
        self.rows, self._product, self._tile_rows = rows, product, tile_rows
        self._down = device.div(device.add(rows, tile_rows - 1), tile_rows)
        self.count = device.mul(self._down, product.passes) if product else self._down

    def start(self, number: ir.Value) -> tuple[ir.Value, ir.Value | None]:
        """First row and column of the CTA's tile."""
        if self._product is None:
            return self._row(number), None
        size = GROUP * self._product.passes
        group, inside = device.div(number, size), device.mod(number, size)
        first = device.mul(group, GROUP)
        height = device.value(device.least(device.sub(self._down, first), GROUP))
        row = device.add(first, arith.remui(inside, height))
        column = arith.divui(inside, height)
        return self._row(row), device.mul(column, self._product.pass_columns)

    def _row(self, number: ir.Value) -> ir.Value:
        return device.value(device.mul(number, self._tile_rows))
