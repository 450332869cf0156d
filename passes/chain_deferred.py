"""A product's tile that is computed in the background, beside other products (chain_body.py)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kitsune_mlir.chains.operands import is_deferred
from kitsune_mlir.chains.product_plan import Product
from kitsune_mlir.codegen.pipeline.nests import Nest
from kitsune_mlir.mlir import ir

from .chain_columns import Columns
from .chain_exchange import Exchanged
from .chain_tiles import BLOCK, Pieces, part

if TYPE_CHECKING:
    from .chain_body import ChainBody


def defers(nest: Nest, product: Product) -> bool:
    """Whether a product's tile is computed in the background."""
    return product.sets > 1 and product.passes == 1 and is_deferred(nest) and product.n % BLOCK == 0


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

    def _leave(self, tile: ir.Value, readers: int | None = None) -> None:
        """The last set's columns, and all that goes to other CTAs, box by box as it is there."""
        work, last = self.body.background, self.blocks(self.product.sets - 1)
        exchanged, boxes = self.body.exchange(self.nest, tile, readers), self.body.kernel.chunk // BLOCK
        if exchanged is not None:
            work.extend(partial(self._send, exchanged, box) for box in range(last.start // boxes))
        for block in last:
            work.append(partial(self.pieces.piece, block))
            if exchanged is not None and ((block + 1) % boxes == 0 or block == last[-1]):
                work.append(partial(self._send, exchanged, block // boxes))
        self.body.tiles[hash(tile)], self.body.deferred[hash(tile)] = self.pieces, self

    def _send(self, exchanged: Exchanged, box: int) -> None:
        each = self.body.kernel.chunk
        exchanged.send(self.pieces.columns(box * each, (box + 1) * each))

    def carried(self) -> list[ir.Value]:
        """What goes round a loop over layers of the tile, of two sets of sums."""
        packed = [self.pieces.piece(block) for block in self.blocks(0)]
        return [*packed, *(self.wide[block] for block in self.blocks(0)), self.sums[1]]

    def resume(self, tile: ir.Value, carried: list[ir.Value], readers: int) -> None:
        """Goes on, as the tile of that name and so many operands of products, with what was carried."""
        *both, sums = carried
        blocks = self.blocks(0)
        self.pieces.made.update(zip(blocks, both))
        self.wide.update(zip(blocks, both[len(blocks) :]))
        self.body.free[0] = partial(self._registers, 0, sums)
        self.take(1, sums)
        self._leave(tile, readers)

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
