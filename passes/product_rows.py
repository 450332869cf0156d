"""The row group that takes a product's result, computed on its tiles where these have all columns of it.

    %c = linalg.matmul ...                     // 4096 x 256
    %y = ... layer norm of %c + bias ...       // a group that row_groups finds
  =>
    "kitsune.kernel"() ({ ... kitsune.settle; the group on the tile; kitsune.write })

Tiles of all columns are fewer than others, so that this is done only where it is predicted to be faster than a kernel
for the product and one for the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kitsune_mlir.mlir import ir
from kitsune_mlir.planning import row_tiles
from kitsune_mlir.planning.open_sizes import is_open
from kitsune_mlir.planning.product_tiles import ProductTiles
from kitsune_mlir.planning.target import Target

from .block_order import Order
from .priced_product import PricedProduct
from .row_groups import Group, Member, find, root, users
from .row_plan import RowPlan

MOST_KEPT = 160  # registers of a thread for tiles that are kept across a reduction
MOST_IN_PIECES = 64  # columns where sums are added outside tensor cores: with twice as many ptxas spills
_ROW_PARTS = 2  # a thread has a quarter of two rows: of each column of the tile half a register


@dataclass(frozen=True)
class Rows:
    """The rows of a product: how many in each batch, all that are known of, and whether the first size is open."""

    each: int | None
    known: int
    is_open: bool
    batched: bool


def rows_of(sizes: dict[str, int | None]) -> Rows:
    """The rows of a product whose sizes are these by role; None: open until the call."""
    b, m = sizes.get("b", 1), sizes.get("m", 1)
    return Rows(m, (b or 1) * (m or 1), b is None or m is None, "b" in sizes)


class Followings:
    """The row groups of a block, for its products."""

    def __init__(self, block: ir.Block):
        self._order = Order(block)
        self._groups = find(self._order)

    def of(self, op: ir.Operation, rows: Rows, columns: int) -> RowPlan | None:
        """The group that reads a product's result as its tiles have it, where it may be computed there."""
        value = op.results[0]
        group = next((group for group in self._groups if _reads(group, value)), None)
        if group is None or not _fits(group, op, rows, columns):
            return None
        if not self._order.is_convex([op, *(member.op for member in group.ordered)]):
            return None
        plan = RowPlan(group, [rows.each] if rows.batched and rows.each is not None and rows.each > 1 else [])
        wanted = 2 if rows.batched and rows.each != 1 else 1
        fits = plan.segments is not None and len(plan.segments) == wanted
        return plan if fits and kept(group, value) * columns // _ROW_PARTS <= MOST_KEPT else None

    def joined_tiles(self, product: PricedProduct, sizes: dict[str, int], work: float) -> ProductTiles | None:
        """The tiles on which the group behind a product would be computed, if it may be, with so many instructions for
        each element. The product's sizes are these by role, as tensor_sizes.py says them."""
        tiles = product.whole_tiles(work)
        of_batch = "b" in (*product.found.left_roles, *product.found.right_roles)
        known = {role: None if is_open(sizes[role]) else sizes[role] for role in ("bm" if of_batch else "m")}
        return None if tiles is None or self.of(product.op, rows_of(known), sizes["n"]) is None else tiles

    def take(self, op: ir.Operation, plan: RowPlan) -> None:
        """The group is computed with the product."""
        self._order.join([op, *(member.op for member in plan.group.ordered)])
        self._groups.remove(plan.group)

    def forget(self, ops: Sequence[ir.Operation]) -> None:
        """Operators that are computed elsewhere, their groups with them."""
        self._groups = [group for group in self._groups if not any(map(group.has, ops))]


def is_faster(fused: ProductTiles, alone: ProductTiles, plan: RowPlan, target: Target) -> bool:
    """Whether one kernel is predicted to be faster than two."""
    tiles = row_tiles.choose(plan.counts(), target)
    return tiles is None or fused.microseconds < alone.microseconds + tiles.microseconds


def kept(group: Group, value: ir.Value) -> int:
    """The most tiles that are needed again behind a reduction, having been computed for it or for one before."""
    members, most = group.ordered, 0
    done: set[ir.Value] = set()
    for number, member in enumerate(members):
        if member.kind != "reduction":
            continue
        done |= _cone(member, group, value)
        behind = [later for later in members[number + 1 :] if later.op.results[0] not in done]
        needed = {root(v) for later in behind for v in later.op.operands}
        most = max(most, len(done & needed))
    return max(most, 1)


def _cone(member: Member, group: Group, value: ir.Value) -> set[ir.Value]:
    """The tiles that a member is computed from."""
    found, left = set(), [member]
    while left:
        for operand in left.pop().op.operands:
            of = root(operand)
            maker = group.members.get(of)
            if of == value:
                found.add(of)
            elif maker is not None and maker.kind == "tile" and of not in found:
                found.add(of)
                left.append(maker)
    return found


def _reads(group: Group, value: ir.Value) -> bool:
    return any(root(v) == value for member in group.ordered for v in member.op.operands)


def _fits(group: Group, op: ir.Operation, rows: Rows, columns: int) -> bool:
    """Whether all readers of a product are in the group and have it as it is."""
    space, value = group.space, op.results[0]
    if (space.is_open, space.rows, space.columns) != (rows.is_open, rows.known, columns):
        return False
    for member in group.ordered:
        for v, role in zip(member.op.operands, member.roles):
            if root(v) == value and not (member.is_whole(role) and role is not None and role.columns):
                return False
    return all(map(group.has, users(value)))
