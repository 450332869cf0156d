"""Products of f32 in full precision in a chain."""

from __future__ import annotations

from collections.abc import Callable

from kitsune_mlir.chains.product_plan import Product, Segment, starts_from_zero
from kitsune_mlir.dialects import schedule
from kitsune_mlir.generics import constant_index
from kitsune_mlir.mlir import ir, scf

from .chain_fills import Filling, Fills
from .chain_products import LONG, ChainProducts, Operand, order
from .chain_tiles import added, part


class ChainExact(ChainProducts):
    """What is multiplied in pieces."""

    def _exact(self, product: Product, operands: list[Operand], ready: Callable[[int, ir.Value], None]) -> None:
        """Products of f32 as three of tf32 numbers, small terms first; the sums of chunks are added outside of tensor
        cores. Of streamed operands with many chunks, a loop over those behind the first."""
        self._settle_background()
        closes = self._closes(product, operands)
        total = None if starts_from_zero(product.op) else self._first_sums(product, 0)
        for segment, (value, source), closes_it in zip(product.segments, operands, closes, strict=True):
            chunk = 0
            if segment.streams and segment.chunks > LONG and not self.kernel.keeps:
                total = self._exact_chunk(product, segment, value, source, 0, total, self.filling, closes_it)
                body: Filling = []
                bounds = self.kernel.chunk, segment.chunks * self.kernel.chunk, self.kernel.chunk
                self.filling.append(Fills("chunks", *bounds, body))
                total = part(total, 0, product.columns, wide=True)
                loop = scf.ForOp(*map(constant_index, bounds), [total])
                with ir.InsertionPoint(loop.body):
                    self.free.clear()
                    inner = loop.inner_iter_args[0]
                    scf.yield_([self._exact_chunk(product, segment, value, source, None, inner, body, closes_it)])
                self.free.clear()
                total, chunk = loop.results[0], segment.chunks
            if not segment.streams:
                self._keep_all(product, operands)
            for behind, number in () if chunk else order(segment):
                at = number, total, self.filling, closes_it, behind
                total = self._exact_chunk(product, segment, value, source, *at)
        assert total is not None
        ready(0, total)

    def _exact_chunk(
        self,
        product: Product,
        segment: Segment,
        value: ir.Value,
        source: tuple[ir.Value, ...],
        chunk: int | None,
        total: ir.Value | None,
        into: Filling,
        closes_it: bool,
        behind: int = 0,
    ) -> ir.Value:
        """Multiplies a chunk, and adds its sums to the total."""
        slot = None
        if segment.streams:
            left = slot = self.kernel.wait(self._streamed(value, chunk), into)
        elif behind:
            assert chunk is not None
            left = self._received(value, behind, chunk)
            slot = left if closes_it else None
        elif (stowed := self.stowed.get(hash(value))) is not None:
            assert chunk is not None
            left = stowed.slots[chunk]
            slot = left if closes_it else None
        else:
            assert chunk is not None
            left = self._left(value, chunk)
        weights = [self._weight(product, segment, source, 0, chunk, piece, behind) for piece in (0, 1)]
        rights = [self.kernel.wait(weight, into) for weight in weights]
        sums = self._new_sums(product, 0)
        for piece, right in (("low", 0), ("high", 1), ("high", 0)):
            engine = self.kernel.product_engine
            made = schedule.ProductOp(sums, left, rights[right], engine, sums.type, schedule.Token.get())
            made.attributes["piece"] = ir.StringAttr.get(piece)
            sums = made.results[0]
        tile = schedule.SettleOp(sums, schedule.tile_of(sums)).results[0]
        for right in () if self.kernel.keeps else rights:
            schedule.ReleaseOp(right, [])
        if slot is not None:
            schedule.ReleaseOp(slot, [])
        if total is None:
            return tile
        self.free[0] = lambda: [tile]
        return part(added(total, tile), 0, product.columns, wide=True)
