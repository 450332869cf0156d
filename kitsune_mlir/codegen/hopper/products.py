"""Products of a warpgroup: which boxes it multiplies, when it waits, and when it gives slots back."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.codegen.pipeline.memory import element_of
from kitsune_mlir.mlir import ir

from . import wgmma
from .fragments import Fragment, Lanes
from .mbarrier import Slot
from .program import Product, Segment
from .rings import Rings
from .stash import Stash

LONG = 4  # chunks of a streamed operand from which a product is a loop
Operand = Fragment | Stash | None


class Products:
    """`sums` are registers handed from product to product: one set, for an undefined one would stay alive around the
    loop over tiles. `leader` (i1) holds in one thread, `group_rows` is the warpgroup's first row in the tile."""

    def __init__(self, rings: Rings, sums: list[ir.Value], leader: ir.Value, group_rows: Int):
        self.rings, self.sums = rings, sums
        self._leader, self._group_rows = leader, group_rows

    def run(self, product: Product, operands: list[Operand]) -> list[ir.Value]:
        """The sums of one pass over k. An operand that comes through a ring or from other CTAs is None."""
        first = product.segments[0]
        if len(operands) == 1 and first.rows_map is not None and first.chunks > LONG:
            return self._looped(product, first)
        return self._unrolled(product, operands)

    def _unrolled(self, product: Product, operands: list[Fragment | Stash | None]) -> list[ir.Value]:
        count, element = product.columns // 2, str(element_of(product.op.operands[1]))
        sums, waiting, first = self.sums[:count], None, True
        wgmma.fence()
        for segment, operand in zip(product.segments, operands):
            for part, chunk in itertools.product(range(segment.parts), range(segment.chunks)):
                if part == 1 and chunk == 0:
                    assert self.rings.exchange is not None
                    self.rings.exchange.receive()
                self.rings.weights.wait_full(self.rings.weight)
                b = wgmma.descriptor(self.rings.weights.place(self.rings.weight))
                steps = segment.steps(chunk)
                if isinstance(operand, Stash):
                    a = operand.chunk(chunk)
                elif operand is not None:
                    start = chunk * wgmma.CHUNK // wgmma.STEP
                    a = [word for step in range(steps) for word in operand.step(start + step)]
                elif segment.parts > 1:
                    assert self.rings.exchange is not None
                    a = wgmma.descriptor(self.rings.exchange.box(self.rings.exchange.part(part), chunk))
                else:
                    a = self._streamed_chunk()
                sums = wgmma.multiply(element, sums, a, b, steps, first)
                if waiting is not None:
                    wgmma.wait(1)
                    self.rings.release(waiting, self._leader)
                waiting, first = self.rings.step_on(segment.rows_map is not None), False
        sums = wgmma.wait_for(sums)
        assert waiting is not None
        self.rings.release(waiting, self._leader)
        if product.frees:
            assert self.rings.exchange is not None
            self.rings.exchange.release()
        self.sums = sums + self.sums[count:]
        return sums

    def _looped(self, product: Product, segment: Segment) -> list[ir.Value]:
        """The same, of one streamed operand with many chunks: a loop over k."""
        count, element = product.columns // 2, str(element_of(product.op.operands[1]))
        rings = self.rings
        assert rings.tiles is not None
        wgmma.fence()

        def chunk(number: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            sums, before, state = carried[:count], carried[count : count + 4], carried[count + 4 :]
            rings.resume(state)
            rings.weights.wait_full(rings.weight)
            b = wgmma.descriptor(rings.weights.place(rings.weight))
            a = self._streamed_chunk()
            first = device.equal(number, 0)
            sums = wgmma.multiply(element, sums, a, b, wgmma.CHUNK // wgmma.STEP, first)
            wgmma.wait(1)
            self.rings.release((Slot(*before[:2]), Slot(*before[2:])), self._leader, unless=first)
            weight, tile = self.rings.step_on(True)
            assert tile is not None
            return [*sums, weight.number, weight.parity, tile.number, tile.parity, *rings.state()]

        start = rings.state()
        results = device.loop(0, segment.chunks, 1, chunk, [*self.sums[:count], *start[:4], *start])
        sums, last, state = results[:count], results[count : count + 4], results[count + 4 :]
        rings.resume(state)
        sums = wgmma.wait_for(sums)
        self.rings.release((Slot(*last[:2]), Slot(*last[2:])), self._leader)
        self.sums = sums + self.sums[count:]
        return sums

    def _streamed_chunk(self) -> ir.Value:
        """Waits for 64 columns of the tile's rows; a descriptor of the warpgroup's own."""
        tiles, slot = self.rings.tiles, self.rings.tile
        assert tiles is not None and slot is not None
        tiles.wait_full(slot)
        own = device.mul(self._group_rows, wgmma.CHUNK * 2)
        return wgmma.descriptor(device.add(tiles.place(slot), own))

    def each_pass(self, product: Product, lanes: Lanes, first: Int, each: Callable[[Lanes, Int], None]) -> None:
        """Calls `each`, in code, for every pass over the product's columns, `first` and on, with the lanes standing
        there and the pass's first column."""
        if product.passes == 1:
            each(lanes, first)
            return
        limit = product.n if product.n % product.columns == 0 else None

        def body(start: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            count = len(self.sums)
            self.sums = carried[:count]
            self.rings.resume(carried[count:])
            each(lanes.shifted(start, limit and lanes.limit or limit), device.add(first, start))
            return [*self.sums, *self.rings.state()]

        count = len(self.sums)
        results = device.loop(0, product.n, product.columns, body, [*self.sums, *self.rings.state()])
        self.sums = results[:count]
        self.rings.resume(results[count:])
