"""gated-products: two products of one operand whose elements meet in elementwise operators become one kernel.

    %g = linalg.matmul ins(%x, %w0) ...        %v = linalg.matmul ins(%x, %w1) ...
    %y = linalg.generic {...} ins(%g, %v) ...  // silu(g) * v
  =>
    %p = "kitsune.kernel"() ({
      "kitsune.tiles"; a ring of chunks of %x, one of %w0 and one of %w1; an agent that copies into them; an agent that
      multiplies each chunk of %x with both weights', onto two tiles of sums, and writes what becomes of both
    }) : () -> !kitsune.outputs
    %y = "kitsune.result"(%p) {index = 0 : i64}

So gates of layers (SwiGLU and its kin) read their input once, and neither product's result goes through memory. Where
one product's columns are halves that meet (chunk, GLU), it is first made two of halves of the weight
(halved_products.py). Both are done where one kernel is predicted to be faster than what it replaces. A tile has one set
of sums of either product, up to 128 columns each (64 of f32 in pieces), of all of k. Left to schedule-products are
products that something else reads as they are, those of which more than two results are needed elsewhere, and those of
few rows that are faster as sums over rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

from kitsune_mlir.contraction import is_zero_filled, match_product
from kitsune_mlir.dialects.windows import in_memory
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import ir, walk
from kitsune_mlir.plan import DYNAMIC_SIZE
from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.kernel_cost import dram_us
from kitsune_mlir.planning.product_tiles import ProductTiles, single_widths
from kitsune_mlir.planning.target import Target
from kitsune_mlir.planning.thin_products import THIN_BY
from kitsune_mlir.traffic import type_bytes

from .base import ModulePass
from .flat_follows import flatten_follows
from .halved_products import Halves, halve, halves_of
from .priced_product import PricedProduct
from .product_follows import Follows, follows_of, is_reduced, joined_follows
from .product_kernel import Asked, ProductKernel
from .single_products import LEAST, NAME
from .thin_products import predicted_us

_RIGHTS = 2  # right operands of a kernel


@dataclass(frozen=True)
class GatedProducts(ModulePass):
    """target: what the kernels are for, a name or the path of a description."""

    name: ClassVar[str] = "gated-products"
    target: str = "sm_90a"

    def run(self, module: ir.Module) -> None:
        target = targets.load(self.target)
        if not target.has_tensor_cores:
            return
        flatten_follows(module)
        halved = []
        for product in _products(module):
            halves = halves_of(product)
            if halves is not None and _are_faster(halves, target):
                halved.append(tuple(halve(halves)))
        flatten_follows(module)
        pairs = [(True, *pair) for pair in halved]
        pairs += [(False, *pair) for pair in _beside(module, {op for pair in halved for op in pair})]
        number = 0
        for is_chosen, first, second in pairs:
            pair = _Pair.of(first, second, target)
            if pair is not None and (is_chosen or pair.is_faster()):
                pair.build(f"gated{number}")
                number += 1


def _products(module: ir.Module) -> list[ir.Operation]:
    return [op for op in walk(module, "linalg.matmul") if op.parent.name == "func.func"]


def _beside(module: ir.Module, taken: set[ir.Operation]) -> Iterator[tuple[ir.Operation, ir.Operation]]:
    """Products of one operand, each with those behind it, but for what becomes part of a kernel meanwhile."""
    left = [op for op in _products(module) if op not in taken]
    while left:
        first = left.pop(0)
        for second in left:
            same = first.operands[0] == second.operands[0] and first.results[0].type == second.results[0].type
            if same and first.block == second.block and joined_follows([first, second]) is not None:
                left.remove(second)
                yield first, second
                break


def _priced(op: ir.Operation, target: Target) -> PricedProduct | None:
    """A product with its sizes; None where it has no such kernel, or a better one."""
    found = match_product(op)
    if found is None:
        return None
    product = PricedProduct(op=op, found=found, target=target)
    product.read_sizes()
    if prod(product.known) < LEAST or product.sizes["k"] is None:
        return None
    if in_memory(found.left) != found.left or in_memory(found.right) != found.right or not is_zero_filled(found.init):
        return None
    try:
        product.check()
    except UnsupportedError:
        return None
    return product


def _alone_us(product: PricedProduct, follows: Follows) -> float | None:
    """What a kernel of one product takes; None where it is faster as sums over rows."""
    tiles, thin = product.tiles(follows), predicted_us(product.found, product.sizes, product.target)
    if tiles is None or thin is not None and thin < THIN_BY * tiles.microseconds:
        return None
    ends = [op.results[0] for op in follows.stored] or [product.op.results[0]]
    moved = [product.found.left, product.found.right, *ends]
    return _us(tiles, [value.type for value in moved], product.target)


def _tiles(product: PricedProduct, follows: Follows) -> ProductTiles | None:
    """The tiles of a kernel of two such products; where these are single layers, both have the columns of one's."""
    if NAME not in product.op.attributes:
        return product.tiles(follows, rights=_RIGHTS)
    widths = (columns / _RIGHTS for columns in single_widths(_RIGHTS * product.known[2]))
    return product.tiles(follows, rights=_RIGHTS, widths=tuple(int(width) for width in widths if width % 32 == 0))


def _us(tiles: ProductTiles, moved: list[ir.Type], target: Target) -> float:
    nbytes = sum(type_bytes(kind, DYNAMIC_SIZE) for kind in moved)
    return max(tiles.microseconds, target.launch_us + dram_us(nbytes, target))


def _are_faster(halves: Halves, target: Target) -> bool:
    """Whether a kernel of both halves is predicted to be faster than one of the product and one of what follows."""
    product, met = _priced(halves.product, target), joined_follows(halves.slices)
    if product is None or met is None:
        return False
    alone = _alone_us(product, follows_of(halves.product))
    half = replace(product, sizes=product.sizes | {"n": halves.columns})
    tiles = _tiles(half, Follows([*halves.chain, *halves.chain, *met.ops], met.stored))
    if alone is None or tiles is None:
        return False
    ends = [op.results[0].type for op in met.stored]
    read = [taken.results[0].type for taken in halves.slices]
    nbytes = sum(type_bytes(kind, DYNAMIC_SIZE) for kind in [*read, *ends])
    launch = 0.0 if any(is_reduced(op.results[0]) for op in met.stored) else target.launch_us
    alone += launch + max(dram_us(nbytes, target), nbytes / (target.l2_gbps * 1e3))
    return _us(tiles, [product.found.left.type, product.found.right.type, *ends], target) < alone


@dataclass(frozen=True)
class _Pair:
    """Two products, what becomes of both, and the tiles of their kernel."""

    first: PricedProduct
    second: PricedProduct
    follows: Follows
    tiles: ProductTiles

    @staticmethod
    def of(first: ir.Operation, second: ir.Operation, target: Target) -> _Pair | None:
        """None where they have no such kernel."""
        a, b, follows = _priced(first, target), _priced(second, target), joined_follows([first, second])
        if a is None or b is None or follows is None or a.found.left != b.found.left:
            return None
        if (a.found.left_roles, a.found.right_roles) != (b.found.left_roles, b.found.right_roles):
            return None
        tiles = _tiles(a, follows)
        return None if tiles is None else _Pair(a, b, follows, tiles)

    def is_faster(self) -> bool:
        """Whether it is predicted to be faster than two kernels, the first of which has all that can follow it."""
        follows = follows_of(self.first.op)
        rest = [op for op in follows_of(self.second.op).ops if op not in follows.ops]
        alone = [_alone_us(self.first, follows), _alone_us(self.second, Follows(rest, rest[-1:]))]
        found = self.first.found
        moved = [found.left.type, found.right.type, self.second.found.right.type]
        moved += [op.results[0].type for op in self.follows.stored]
        return None not in alone and _us(self.tiles, moved, self.first.target) < sum(us for us in alone if us)

    def build(self, name: str) -> None:
        """Puts the kernel in their place."""
        a, b = self.first, self.second
        names = [ir.StringAttr(op.attributes[NAME]).value for op in (a.op, b.op) if NAME in op.attributes]
        ends = self.follows.stored
        with a.op.location, ir.InsertionPoint(self.follows.ops[-1]):
            given = a.op, a.found, a.target, [*names, name][0], a.sizes, a.pieces, a.words
            kernel = ProductKernel(Asked(*given, beside=((b.op, b.found),)), self.tiles, self.follows)
            results = kernel.build([op.results[0].type for op in ends])
        for op, result in zip(ends, results, strict=True):
            op.results[0].replace_all_uses_with(result)
        for op in [*reversed(self.follows.ops), b.op, a.op]:
            op.erase()
