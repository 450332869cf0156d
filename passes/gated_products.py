"""gated-products: products of one operand whose elements meet in elementwise operators become one kernel.

    %g = linalg.matmul ins(%x, %w0) ...        %v = linalg.matmul ins(%x, %w1) ...
    %y = linalg.generic {...} ins(%g, %v) ...  // silu(g) * v
  =>
    %p = "kitsune.kernel"() ({
      "kitsune.tiles"; a ring of chunks of %x, one of %w0 and one of %w1; an agent that copies into them; an agent that
      multiplies each chunk of %x with both weights', onto two tiles of sums, and writes what becomes of both
    }) : () -> !kitsune.outputs
    %y = "kitsune.result"(%p) {index = 0 : i64}

So gates of layers (SwiGLU and its kin) read their input once, and no product's result goes through memory. Where one
product's columns are parts that meet (chunk, GLU, the gates of an LSTM or a GRU), it is first made as many products of
parts of the weight (parted_products.py). Both are done where one kernel is predicted to be faster than what it
replaces. A tile has one set of sums of each product, up to 256 columns of all (128 of f32 in pieces), of all of k. Left
to schedule-products are products that something else reads as they are, those of which more than two results are needed
elsewhere, and those of few rows that are faster as sums over rows.

Where such kernels are the steps of a recurrent network, each of which multiplies what the one before made, all of them
are one kernel where that is predicted to be faster (step_kernel.py):

    for %t: %p, %q = products of %h with %w0, %w1;  %h = elementwise of %p, %q, %c and rows %t of %x;  %c = ...
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import ClassVar

from kitsune_mlir.contraction import is_zero_filled, match_product
from kitsune_mlir.dialects.windows import in_memory
from kitsune_mlir.errors import UnsupportedError, UserError
from kitsune_mlir.mlir import ir, replace_op, walk
from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.kernel_cost import dram_us, memory_us
from kitsune_mlir.planning.product_tiles import ProductTiles
from kitsune_mlir.planning.product_widths import COLUMNS, NARROW, single_widths
from kitsune_mlir.planning.target import Target
from kitsune_mlir.planning.thin_products import takes_its_place
from kitsune_mlir.traffic import tensor_bytes
from kitsune_mlir.weights import is_weight

from .base import ModulePass
from .flat_follows import flatten_follows
from .parted_products import Parts, part, parts_of
from .priced_product import Asked, PricedProduct
from .product_follows import Follows, follows_of, is_reduced, joined_follows
from .product_kernel import ProductKernel
from .recurrent_steps import LEAST as LEAST_STEPS
from .recurrent_steps import Step, runs_of
from .single_products import LEAST, NAME
from .step_kernel import StepKernel
from .thin_products import by_rows, predicted_us

AUTO, ALWAYS, NEVER = "auto", "always", "never"


@dataclass(frozen=True)
class GatedProducts(ModulePass):
    """target: what the kernels are for, a name or the path of a description. steps: whether equal steps are one
    kernel: auto, where that is predicted to be faster; always, where it can be; never."""

    name: ClassVar[str] = "gated-products"
    target: str = "sm_90a"
    steps: str = AUTO

    def __post_init__(self) -> None:
        if self.steps not in (AUTO, ALWAYS, NEVER):
            raise UserError(f"gated-products: steps is {AUTO}, {ALWAYS} or {NEVER}, not '{self.steps}'")

    def run(self, module: ir.Module) -> None:
        target = targets.load(self.target)
        if not target.has_tensor_cores:
            return
        flatten_follows(module)
        parted, computed = [], set[ir.Operation]()
        for product in _products(module):
            parts = parts_of(product)
            met = None if parts is None else joined_follows(parts.slices)
            if parts is None or met is None:
                continue
            if _are_rows(parts, target):
                _sum_along_rows(part(parts))
            elif computed.isdisjoint(met.ops) and _are_faster(parts, met, target):
                computed.update(met.ops)  # by one kernel: of another product they would read its parts, as they lie
                parted.append(tuple(part(parts)))
        flatten_follows(module)
        groups = [(True, products) for products in parted]
        groups += [(False, pair) for pair in _beside(module, {op for products in parted for op in products})]
        if self.steps != NEVER:
            gated = {op for _, products in groups for op in products}
            alone = [(False, (op,)) for op in _repeated(module) if op not in gated]
            groups = [own for own in _without_steps([*groups, *alone], target, self.steps) if own not in alone]
        number = 0
        for is_chosen, products in groups:
            group = _Group.of(products, target)
            if group is not None and (is_chosen or group.takes_its_place()):
                group.build(f"gated{number}")
                number += 1


def _without_steps(
    candidates: Sequence[tuple[bool, tuple[ir.Operation, ...]]], target: Target, when: str
) -> list[tuple[bool, tuple[ir.Operation, ...]]]:
    """Builds kernels of equal steps where one launch of all is predicted to be faster than one of each: the products
    that are left."""
    groups = {group.step: n for n, (_, own) in enumerate(candidates) if (group := _Group.of(own, target)) is not None}
    kernels = []  # what is known of values does not outlive the first that is built
    for number, run in enumerate(runs_of(list(groups))):
        group = _Group.of(run.first.products, target)
        if group is None or group.products[0].words:
            continue
        kernel = StepKernel.of_steps(run, target, group.products[0].pieces, f"steps{number}")
        if kernel is not None and (when == ALWAYS or kernel.tiles.price.us < len(run.steps) * group.step_us()):
            kernels.append(kernel)
    left = set(range(len(candidates)))
    for kernel in kernels:
        if kernel.build():
            left -= {groups[step] for step in kernel.of.steps}
    return [candidates[n] for n in sorted(left)]


def _products(module: ir.Module) -> list[ir.Operation]:
    return [op for op in walk(module, "linalg.matmul") if op.parent.name == "func.func"]


def _repeated(module: ir.Module) -> list[ir.Operation]:
    """Products with a weight that so many have as equal steps have to be."""
    found = [op for op in _products(module) if is_weight(op.operands[1])]
    count = Counter(op.operands[1] for op in found)
    return [op for op in found if count[op.operands[1]] >= LEAST_STEPS]


def _beside(module: ir.Module, taken: set[ir.Operation]) -> Iterator[tuple[ir.Operation, ir.Operation]]:
    """Products of one operand, each with those behind it, but for what becomes part of a kernel meanwhile."""
    products = [op for op in _products(module) if op not in taken]
    left: dict[ir.Value, list[ir.Operation]] = {}  # by the operand
    for op in products:
        left.setdefault(op.operands[0], []).append(op)
    for first in products:
        others = left[first.operands[0]]
        if first not in others:
            continue
        others.remove(first)
        for second in others:
            same = first.results[0].type == second.results[0].type
            if same and first.block == second.block and joined_follows([first, second]) is not None:
                others.remove(second)
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
    if tiles is None or takes_its_place(thin, tiles.microseconds):
        return None
    ends = [op.results[0] for op in follows.stored] or [product.op.results[0]]
    moved = [product.found.left, product.found.right, *ends]
    return _us(tiles, moved, product.target)


def _tiles(product: PricedProduct, follows: Follows, rights: int) -> ProductTiles | None:
    """The tiles of a kernel of so many products like one; where these are single layers, all have the columns of one's.
    Several gates of a few rows have few columns each: what follows them is to have threads enough."""
    if NAME not in product.op.attributes:
        narrow = NARROW if rights > 2 and product.target.has_warpgroups else ()
        return product.tiles(follows, rights=rights, widths=(*narrow, *COLUMNS))
    widths = (columns / rights for columns in single_widths(rights * product.known[2]))
    return product.tiles(follows, rights=rights, widths=tuple(int(width) for width in widths if width % 32 == 0))


def _us(tiles: ProductTiles, moved: list[ir.Value], target: Target) -> float:
    nbytes = sum(map(tensor_bytes, moved))
    return max(tiles.microseconds, target.launch_us + dram_us(nbytes, target))


def _are_rows(parts: Parts, target: Target) -> bool:
    """Whether a product of few rows is faster as sums over rows, as schedule-products decides."""
    product = PricedProduct(op=parts.product, found=parts.found, target=target)
    product.read_sizes()
    thin = predicted_us(product.found, product.sizes, target) if is_zero_filled(product.found.init) else None
    if thin is None or prod(product.known) < LEAST:
        return thin is not None
    try:
        product.check()
    except UnsupportedError:
        return False
    tiles = product.tiles(follows_of(product.op))
    return takes_its_place(thin, None if tiles is None else tiles.microseconds)


def _sum_along_rows(products: Sequence[ir.Operation]) -> None:
    """Leaves products to schedule-rows, as sums that one kernel makes with what follows all of them."""
    for op in products:
        found = match_product(op)
        assert found is not None
        replace_op(op, by_rows(op, found))


def _are_faster(parts: Parts, met: Follows, target: Target) -> bool:
    """Whether a kernel of all parts is predicted to be faster than one of the product and one of what follows."""
    product = _priced(parts.product, target)
    if product is None:
        return False
    alone, count = _alone_us(product, follows_of(parts.product)), len(parts.slices)
    one = replace(product, sizes=product.sizes | {"n": parts.columns})
    tiles = _tiles(one, Follows([*count * parts.chain, *met.ops], met.stored), count)
    if alone is None or tiles is None:
        return False
    ends = [op.results[0] for op in met.stored]
    nbytes = sum(tensor_bytes(value) for value in [*(taken.results[0] for taken in parts.slices), *ends])
    launch = 0.0 if any(is_reduced(op.results[0]) for op in met.stored) else target.launch_us
    alone += launch + memory_us(nbytes, target)
    return _us(tiles, [product.found.left, product.found.right, *ends], target) < alone


@dataclass(frozen=True)
class _Group:
    """Products, what becomes of all, and the tiles of their kernel."""

    products: tuple[PricedProduct, ...]
    follows: Follows
    tiles: ProductTiles

    @staticmethod
    def of(products: Sequence[ir.Operation], target: Target) -> _Group | None:
        """None where they have no such kernel."""
        priced, follows = [_priced(op, target) for op in products], joined_follows(products)
        found = tuple(product for product in priced if product is not None)
        if len(found) < len(products) or follows is None:
            return None
        kinds = {(product.found.left, product.found.left_roles, product.found.right_roles) for product in found}
        tiles = _tiles(found[0], follows, len(found)) if len(kinds) == 1 else None
        return None if tiles is None else _Group(found, follows, tiles)

    @cached_property
    def step(self) -> Step:
        return Step.of([of.op for of in self.products], [of.found for of in self.products], self.follows)

    def us(self) -> float:
        """What its kernel takes."""
        moved = [of.found.right for of in self.products] + [op.results[0] for op in self.follows.stored]
        return _us(self.tiles, [self.products[0].found.left, *moved], self.products[0].target)

    def step_us(self) -> float:
        """What a step takes by itself, whose one product may be faster as sums over rows."""
        thin = predicted_us(self.products[0].found, self.products[0].sizes, self.products[0].target)
        return min(self.us(), thin) if thin is not None and len(self.products) == 1 else self.us()

    def takes_its_place(self) -> bool:
        """Whether it is predicted to be faster than a kernel each, the first of which has all that can follow it."""
        left, alone = list(self.follows.ops), []
        for number, product in enumerate(self.products):
            own = follows_of(product.op)
            ops = [op for op in own.ops if op in left]
            alone.append(_alone_us(product, own if not number else Follows(ops, ops[-1:])))
            left = [op for op in left if op not in ops]
        return None not in alone and self.us() < sum(us for us in alone if us)

    def build(self, name: str) -> None:
        """Puts the kernel in their place."""
        first, *others = self.products
        names = [ir.StringAttr(of.op.attributes[NAME]).value for of in self.products if NAME in of.op.attributes]
        ends = self.follows.stored
        with first.op.location, ir.InsertionPoint(self.follows.ops[-1]):
            given = first.op, first.found, first.target, [*names, name][0], first.sizes, first.pieces, first.words
            asked = Asked(*given, beside=tuple((other.op, other.found) for other in others))
            results = ProductKernel(asked, self.tiles, self.follows).build([op.results[0] for op in ends])
        for op, result in zip(ends, results, strict=True):
            op.results[0].replace_all_uses_with(result)
        for op in [*reversed(self.follows.ops), *(of.op for of in reversed(self.products))]:
            op.erase()
