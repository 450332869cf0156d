"""Ping-pong: a single product in two sets of sums, each of which leaves while the other is multiplied.

Chunks of k come in groups. A group is multiplied for the first set's columns, then for the second's. So the first set
of a tile is there a group before the second and leaves beside that group's products; the second leaves beside the first
group's products of the CTA's next tile, that of the last tile after the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.memory import shape_of
from kitsune_mlir.codegen.pipeline.nests import Nest, StageNests
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.mlir import ir

from . import wgmma
from .maps import is_stored_whole
from .operands import is_plain
from .product_plan import Product
from .products import Products, Sums
from .rings import Rings, Used, numbers_of, slots_of

# The columns of a tile. The operand's boxes are read once for each set: with narrower sets shared memory would be too
# slow.
COLUMNS = (192, 256)
Pieces = Iterator[Callable[[], None]]
Leave = Callable[[Sums], Pieces]


def leaves_in_sets(nest: Nest, nests: StageNests, columns: int) -> bool:
    """Whether a product runs so, alone in its kernel, in tiles of so many columns: of several chunks, with one tile
    that tensor copies store."""
    assert nest.op is not None
    several = shape_of(nest.op.operands[0])[1] > wgmma.CHUNK
    once = len(nest.stores) == 1 and isinstance(nest.stores[0], kitsune.StoreOp) and is_stored_whole(nest.value)
    return columns in COLUMNS and is_plain(nest, nests) and several and once


class PingPong:
    """The products of one tile after another. `products` has the rings, and the background in which sets leave. What
    goes from tile to tile, the products of its last chunk in flight, are the registers of both sets and the slots in
    use."""

    def __init__(self, product: Product, products: Products, is_first: ir.Value | None = None):
        self._product, self._products, self._is_first = product, products, is_first

    @staticmethod
    def begin(product: Product, rings: Rings) -> list[ir.Value]:
        """What goes into the first tile."""
        assert rings.tile is not None
        zeros = [x for _ in range(2) for x in wgmma.zeros(product.columns)]
        return [*zeros, *numbers_of((rings.weight, rings.tile))]

    def tile(self, carried: list[ir.Value], leave: Leave, leave_before: Leave) -> list[ir.Value]:
        """Multiplies a tile. Beside the first group the second set of the tile before leaves; beside the last, the
        first set."""
        sums, used = self._taken_up(carried)
        groups = self._product.groups
        sums[1] = wgmma.wait_for(sums[1])
        self._products.release(used, self._is_first)
        self._add(leave_before(sums[1]))
        used = self._group(sums, groups.first, None, begins=True)
        if groups.middle:
            used = self._loop(sums, used)
        used = self._group(sums, groups.last, used, leave)
        return [*sums[0], *sums[1], *numbers_of(used)]

    @staticmethod
    def end(product: Product, carried: list[ir.Value]) -> Sums:
        """What is left after the last tile: the sums of its second set."""
        return wgmma.wait_for(carried[product.columns // 2 : product.columns])

    def _taken_up(self, carried: list[ir.Value]) -> tuple[list[Sums], Used]:
        count = self._product.columns // 2
        return [carried[:count], carried[count : 2 * count]], slots_of(carried[2 * count :])

    def _loop(self, sums: list[Sums], used: Used) -> Used:
        """The groups between the first and the last."""
        rings, groups = self._products.rings, self._product.groups
        state = len(rings.state())

        def group(_: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            rings.resume(carried[:state])
            now, before = self._taken_up(carried[state:])
            left = self._group(now, groups.first, before)
            return [*rings.state(), *now[0], *now[1], *numbers_of(left)]

        found = device.loop(0, groups.middle, 1, group, [*rings.state(), *sums[0], *sums[1], *numbers_of(used)])
        rings.resume(found[:state])
        sums[:], used = self._taken_up(found[state:])
        return used

    def _group(
        self, sums: list[Sums], chunks: int, used: Used | None, leave: Leave | None = None, begins: bool = False
    ) -> Used:
        """Issues a group for both sets. `used` are the slots of the products in flight; gives those of the last. A tile
        `begins` from zero; the first set of the last group may `leave`."""
        rings, background, tiles = self._products.rings, self._products.background, []
        for number in (0, 1):
            for chunk in range(chunks):
                if number == 0:
                    tiles.append(rings.tile)
                a = wgmma.descriptor(self._products.streamed_box(tiles[chunk], waits=number == 0))
                first = begins and chunk == 0
                sums[number] = self._products.multiply(self._product, sums[number], a, wgmma.STEPS, first)
                if leave is not None and (number, chunk) == (1, 0):
                    sums[0] = wgmma.wait_for(sums[0], 1)
                    self._add(leave(sums[0]))
                if used is not None:
                    wgmma.wait(1)
                    self._products.release(used)
                background.advance(chunks - chunk)
                weight, _ = rings.step_on(number == 0)
                used = weight, tiles[chunk] if number else None
        assert used is not None
        return used

    def _add(self, pieces: Pieces) -> None:
        for piece in pieces:
            self._products.background.add(piece)
