"""schedule-attention: two products with weights between them become one kernel at the schedule level.

    %s = linalg.batch_matmul ins(%q, %k) ...            // scores
    %p = ... exp(%s - max) / sum ...                     // weights: a softmax of their rows, masks and scales with it
    %o = linalg.batch_matmul ins(%p, %v) ...
  =>
    %a = "kitsune.kernel"() ({
      "kitsune.tiles"; rings of chunks of %q, %k and %v; an agent that copies into them; an agent whose copies go over
      the columns of %s: products of a few columns, their weights, products with as many rows of %v
    }) : () -> !kitsune.outputs
    %o = "kitsune.result"(%a) {index = 0 : i64}

Neither scores nor weights go through memory. Which groups of operators give weights, `softmax_rows.py` says; columns
that a mask of places takes away from all rows of a tile, as a causal one does, are not computed (`of_places.py`). Done
where one kernel is predicted to be faster than those that it replaces; on chips with wgmma, of 16-bit elements and of
f32, which is multiplied as tf32 or in pieces of bf16. The batch, the rows and the columns may be open until the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import inf, prod
from typing import ClassVar

from kitsune_mlir import rows
from kitsune_mlir.contraction import Contraction, Roles, match_product
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import ir, remark, walk
from kitsune_mlir.operations import element_type
from kitsune_mlir.planning import attention_tiles, row_tiles
from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.cost import DRAM, Price
from kitsune_mlir.planning.cut import KERNEL_US
from kitsune_mlir.planning.kernel_cost import dram_us, memory_us
from kitsune_mlir.planning.open_sizes import factors, is_alone, is_open, open_part
from kitsune_mlir.planning.product_engines import COPY_ROWS
from kitsune_mlir.planning.product_tiles import PAIRS, ProductTiles
from kitsune_mlir.planning.target import Target
from kitsune_mlir.planning.thin_products import SMALL_POINT_US
from kitsune_mlir.traffic import element_bytes
from kitsune_mlir.weights import is_weight

from .attention_body import Weighing
from .attention_kernel import Attention, AttentionKernel
from .attention_places import check_asked, range_of_scores
from .back_to_back import NAMES, product_of
from .base import ModulePass
from .batches_apart import check_open
from .block_order import Order
from .flat_follows import flatten_follows
from .of_places import Range
from .priced_product import PricedProduct
from .product_follows import Follows, follows_of
from .product_rows import Followings
from .row_bodies import erase, gather
from .row_groups import Group, Member, find, root, users
from .row_plan import RowPlan
from .score_tiles import work_of_elements
from .single_products import LEAST
from .softmax_rows import EXPONENTIALS, Weights, weights_of, with_beside
from .split_batches import rows_together, stored_apart, with_split_batches, with_split_right
from .tensor_sizes import Shape, TensorSizes
from .thin_products import predicted_us


@dataclass(frozen=True)
class ScheduleAttention(ModulePass):
    """target: what the kernels are for, a name or the path of a description."""

    name: ClassVar[str] = "schedule-attention"
    target: str = "sm_90a"

    def run(self, module: ir.Module) -> None:
        target = targets.load(self.target)
        if not target.has_warpgroups:
            return
        seconds = [op for op in walk(module, *NAMES) if op.parent.name == "func.func" and _reads_computed(op)]
        if not seconds or not walk(module, *EXPONENTIALS):
            return
        flatten_follows(module, keep_places=True)
        groups, pairs = cache(_Groups), []
        for second in seconds:
            try:
                pair = _Pair.of(second, groups(second.block), target)
                if pair is not None and pair.is_faster():
                    pair.take()
                    pairs.append(pair)
            except UnsupportedError as error:
                remark(second, f"is no kernel with the product whose softmax it multiplies: {error}")
        for number, pair in enumerate(pairs):
            pair.looked_at_again().build(f"attention{number}")


def _reads_computed(op: ir.Operation) -> bool:
    """Whether a product's left operand is computed by an operator."""
    found = match_product(op)
    maker = None if found is None else root(found.left).owner
    return maker is not None and not isinstance(maker, ir.Block) and maker.name == "linalg.generic"


class _Groups:
    """The row groups of a block, and the sizes of its tensors. `order` knows nothing of the groups, for only parts of
    them may go into a kernel."""

    def __init__(self, block: ir.Block):
        self.block, self.order, self.sizes = block, Order(block), TensorSizes(block)
        self.groups = find(Order(block), self.sizes.shape)

    @cached_property
    def followings(self) -> Followings:
        """The groups as schedule-products will find them."""
        return Followings(self.block)


@dataclass
class _Pair:
    """Two products with weights between them, and what their kernel's price depends on."""

    first: PricedProduct
    second: PricedProduct
    groups: _Groups
    group: Group
    weights: Weights
    plan: RowPlan
    range: Range
    sizes: dict[str, int]

    @classmethod
    def of(cls, op: ir.Operation, groups: _Groups, target: Target) -> _Pair | None:
        """The pair whose second product an operation is, if it is one. Raises UnsupportedError for one that has no such
        kernel."""
        values = match_product(op)
        assert values is not None
        order, made, shape = groups.order, root(values.left), groups.sizes.shape
        group = next((group for group in groups.groups if made in group.members), None)
        group = None if group is None else with_beside(group, made)
        found = None if group is None else weights_of(group)
        if group is None or found is None or any(user != op for user in users(made)):
            return None
        read = {root(value) for member in (*found.scores, found.largest) for value in member.op.operands}
        products = [
            product
            for value in read
            if value not in group.members
            and (product := product_of(rows.producer(value))) is not None
            and (group.space.rows, group.space.columns) == _space(shape(product.result))
            and all(map(group.has, users(value)))
        ]
        if len(products) != 1:
            return None
        first = PricedProduct(op=products[0].op, found=products[0].found, target=target)
        second = PricedProduct(op=op, found=values, target=target)
        sizes, own = _sizes_of(first.found, shape), _sizes_of(second.found, shape)
        for product, found_sizes in ((first, sizes), (second, own)):
            product.sizes = {role: groups.sizes.taken(size) for role, size in found_sizes.items()}
            product.check_kind()
        sizes |= {"v": own["n"]} | ({} if "b" in sizes else {"b": 1})
        if [sizes[role] for role in "bmn"] != [own.get("b", 1), own["m"], own["k"]]:
            raise UnsupportedError("it takes the weights of another product")
        _check_open(sizes)
        elements = {str(element_type(v)) for v in (values.right, first.found.left)}
        if elements == {"f32"}:
            if is_open(sizes["n"]):
                if second.words:
                    raise UnsupportedError("columns of tf32 are open until the call")
                first.check_alone()  # threads multiply single rows of f32 in less time than they split operands
        elif len(elements) > 1 or not elements <= {"bf16", "f16"}:
            raise UnsupportedError(f"operands are of {' and '.join(sorted(elements))}")
        if not order.is_convex([first.op, op, *(member.op for member in (*group.ordered, *group.beside))]):
            raise UnsupportedError("what stands between the products takes what is computed beside them")
        cuts = [sizes["m"]] if sizes["b"] > 1 else []
        if is_open(sizes["b"]):  # it is a dimension of its own
            cuts.append(factors(sizes["b"])[0] * sizes["m"])
        if together := _open_rows(sizes["m"]) or rows_together(first.found, COPY_ROWS, shape):
            cuts.append(together)
        where = [
            (first.found.left, first.found.left_roles, together),
            (first.found.right, first.found.right_roles, 0),
            (values.right, values.right_roles, 0),
        ]
        check_open(where, sizes.values(), groups.sizes)
        plan = RowPlan(group, cuts, groups.sizes.taken)
        Weighing(plan, found, products[0].result, sizes["n"], groups.sizes).check()
        copied = (first.found.left, first.found.right, second.found.right)
        check_asked(plan.segments or [], sizes["n"], map(shape, copied))
        return cls(first, second, groups, group, found, plan, range_of_scores(found, plan, sizes), sizes)

    @property
    def tiles(self) -> attention_tiles.AttentionTiles | None:
        rows = (self.plan.segments or [1])[-1] or 1
        found = self.weights
        skipped = [found.scale.member] if found.scale is not None else []
        skipped += found.weights[:2] if found.is_plain else []
        done = [member for member in (*found.scores, found.largest, *found.weights) if member not in skipped]
        brought = {
            root(value)
            for member in (*found.scores, *found.weights)
            for value, role in zip(member.op.operands, member.roles)
            if role is not None and role.rows and role.columns and not self.plan.is_inside(value)
        }
        work, read = work_of_elements(done, brought - {self.first.op.results[0]})
        blocks = self.sizes["b"] * self.sizes["m"] // rows
        sizes = (self.sizes[role] for role in "nkv")
        given = map(self.groups.sizes.taken, (blocks, rows, *sizes))
        second, nbytes = self.second, 2
        if second.pieces == 1:
            nbytes = element_bytes(element_type(second.found.right))
        of = attention_tiles.Weighed(
            *(*given, work, read, self.range.first, self.range.last, nbytes, len(PAIRS[second.pieces])),
            with_numbers=bool(self.group.beside),
        )
        return attention_tiles.choose(of, second.target)

    def is_faster(self) -> bool:
        """Whether one kernel is predicted to be faster than those that it replaces."""
        tiles = self.tiles
        if tiles is None:
            raise UnsupportedError("no tiles of it fit registers and shared memory")
        target = self.second.target
        if any(is_open(size) for role, size in self.sizes.items() if role != "b"):
            return True  # such products have no other kernel
        between = row_tiles.choose(self.plan.counts(), target)
        weights = [self.second.found.left]
        left, right, own = self.first.found.left, self.first.found.right, self.second.found.right
        around = [own, self.second.op.results[0]]
        values = self.second.tiles(follows_of(self.second.op))
        apart = max(_alone_us(self.first, self.first.tiles(Follows())), self._dram_us([left, right]))
        apart += max(_alone_us(self.second, values), self._dram_us(around))
        nbytes = self.groups.sizes.taken(self.sizes["b"] * self.sizes["m"] * self.sizes["n"]) * 4.0
        apart += between.microseconds if between is not None else target.launch_us
        apart = max(apart, dram_us(2.5 * nbytes, target))
        joined = self.groups.followings.joined_tiles(self.first, self.sizes, self.plan.counts().work)
        if joined is not None and values is not None:
            moved = max(joined.microseconds, self._dram_us([left, right, *weights]))
            apart = min(apart, moved + max(values.microseconds, self._dram_us([*weights, *around])))
        return self._price(tiles).us + self._before_us() < apart

    def _price(self, tiles: attention_tiles.AttentionTiles) -> Price:
        """The kernel's price: its tiles', or DRAM's where that is slower."""
        found = self.first.found, self.second.found
        tensors = [found[0].left, found[0].right, found[1].right, self.second.op.results[0]]
        return max(tiles.price, Price(self._dram_us(tensors), DRAM), key=lambda price: price.us)

    def _dram_us(self, tensors: Sequence[ir.Value]) -> float:
        """What DRAM takes for tensors, all of which have about the elements of the operands."""
        nbytes, known = element_bytes(element_type(self.second.found.right)), self.groups.sizes
        return dram_us(sum(nbytes * known.taken(prod(known.shape(value))) for value in tensors), self.second.target)

    def _before_us(self) -> float:
        """What kernels take that make pieces of operands of f32, or turn them, and the values' rows."""
        own = {"left": self.first.found.left, "right": self.first.found.right, "values": self.second.found.right}
        target = self.second.target
        if not isinstance(element_type(own["left"]), ir.F32Type):
            return 0.0
        if self.second.pieces > 1:
            each, alone = 4.0 + 2 * self.second.pieces, target.launch_us  # one goes on beside another
            moved = [*{value for value in own.values() if not is_weight(value)}]
        else:
            each, alone = 8.0, target.launch_us + KERNEL_US
            moved = [own["values"], own["values"]]
            moved += [own[name] for name, roles in self._first_roles.items() if roles[-1] != "k"]
        nbytes = [each * self.groups.sizes.taken(prod(self.groups.sizes.shape(value))) for value in moved]
        return sum(alone + memory_us(each, target) for each in nbytes)

    @property
    def _first_roles(self) -> dict[str, Roles]:
        return {"left": self.first.found.left_roles, "right": self.first.found.right_roles}

    def _follows(self) -> Follows:
        """What the kernel computes behind the products: nothing, where that reads tensors in which a size that is open
        until the call is a part of a dimension."""
        found = follows_of(self.second.op)
        made = [self.second.op.results[0], *(op.results[0] for op in found.ops)]
        inputs = [value for op in found.ops for value in rows.Structured(op).given]
        read = [value for value in inputs if rows.is_tensor(value) and value not in made]
        sizes = [size for value in read for size in self.groups.sizes.shape(value) if is_open(size)]
        return found if all(map(is_alone, sizes)) else Follows()

    def take(self) -> None:
        """What is computed together is one operation for what is decided afterwards."""
        members = (*self.group.ordered, *self.group.beside)
        self.groups.order.join([self.first.op, self.second.op, *(member.op for member in members)])

    def looked_at_again(self) -> _Pair:
        """The pair after others have been built. Sizes that are open until the call, and no argument's, are others."""
        if all(self.groups.sizes.is_given(size) for size in self.sizes.values() if is_open(size)):
            self.groups.sizes.look_again()
            return self
        again = self.of(self.second.op, _Groups(self.second.op.block), self.second.target)
        assert again is not None
        return again

    def build(self, name: str) -> None:
        """Puts the kernel in their place."""
        first, second = self.first, self.second
        for product in (first, second):  # an operand may be what a pair gave whose kernel has been built
            found = match_product(product.op)
            assert found is not None
            product.found = found
        tiles = self.tiles
        assert tiles is not None
        tiles = replace(tiles, price=self._price(tiles))
        shape, number = self.groups.sizes.shape, self.groups.sizes.as_value
        follows = self._follows()
        ends = follows.stored or [second.op]
        segments = self.plan.segments or [1]
        together = segments[-1] or 0  # rows that no tile crosses
        stored = stored_apart(ends[0].results[0], together, shape) if len(ends) == 1 else None
        if stored is not None and "m" in stored.roles and together != self.sizes["m"]:
            stored = None
        moved = [] if stored is None else list(stored.operations)
        gather(self.group.ops)
        last = (moved or follows.ops or [second.op])[-1]
        beside = [member.op for member in self.group.beside]
        if beside:  # what reads their results stands behind the kernel
            before = [op for op in beside if op.is_before_in_block(last)]
            gather([*self.group.ops, *before, second.op, *follows.ops, *moved, last])
        with last.location, ir.InsertionPoint(last):
            made = Attention(
                *(
                    second.op,
                    with_split_batches(first.found, together, shape, number=number),
                    with_split_right(second.found, shape, number),
                    follows,
                    stored,
                ),
                *(self.range, self.sizes, second.pieces, shape, second.target, name),
                *([member for member in self.group.beside if _is_read(member, beside)], self.group.beside),
            )
            body = Weighing(self.plan, self.weights, first.op.results[0], self.sizes["n"], self.groups.sizes)
            body.bring()
            results = AttentionKernel(made, body, tiles).build()
        read = [member.op for member in made.beside]
        for end, result in zip([*(moved[-1:] or ends), *read], results, strict=True):
            end.results[0].replace_all_uses_with(result)
        for op in (*reversed(beside), *(member.op for member in reversed(self.group.ordered)), first.op):
            erase(op)


def _is_read(member: Member, beside: Sequence[ir.Operation]) -> bool:
    """Whether something else than those operators takes a member's result."""
    return any(op not in beside for op in users(member.op.results[0]))


def _alone_us(product: PricedProduct, tiles: ProductTiles | None) -> float:
    """What a product takes that has a kernel, with these tiles or, of few rows or in all, by threads."""
    target, points = product.target, prod(product.taken.values())
    thin = predicted_us(product.found, product.sizes, target)
    small = target.launch_us + KERNEL_US + points * SMALL_POINT_US if points < LEAST else None
    ways = [None if tiles is None else tiles.microseconds, thin, small]
    return min((way for way in ways if way is not None), default=inf)


def _sizes_of(found: Contraction, shape: Shape) -> dict[str, int]:
    """The sizes of a product by role."""
    operands = ((found.left, found.left_roles), (found.right, found.right_roles))
    return {role: size for value, roles in operands for role, size in zip(roles, shape(value), strict=True)}


def _check_open(sizes: dict[str, int]) -> None:
    """Raises UnsupportedError where sizes are open until the call that a kernel has no form for."""
    if is_open(sizes["k"]) or is_open(sizes["v"]):
        raise UnsupportedError("the columns of an operand are open until the call")


def _open_rows(rows_: int) -> int:
    """How many of rows lie together of which the number is a multiple of an open size; 0 of others."""
    return 0 if not is_open(rows_) or is_alone(rows_) else open_part(rows_)


def _space(sizes: Sequence[int]) -> tuple[int, int]:
    *outer, columns = sizes
    return prod(outer), columns
