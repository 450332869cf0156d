"""schedule-back-to-back: products, what elementwise operators make of them, and products of that become few kernels.

    %s = linalg.batch_matmul ins(%q, %k) ...
    %p = linalg.generic ... exp(%s - %l)
    %o = linalg.batch_matmul ins(%p transposed, %g) ...
  =>
    %a = "kitsune.kernel"() ({
      "kitsune.tiles"; rings of chunks of %k, %q and %g; an agent that copies into them; an agent whose copies go over
      the columns of %s transposed: products of a few columns, elements, products with as many rows of %g
    }) : () -> !kitsune.outputs
    %o = "kitsune.result"(%a) {index = 0 : i64}

What lies between the products does not go through memory. Products that sum over columns are one kernel, and so are
those that sum over rows, whose first products are computed once more with rows in the place of columns; or each is one
where registers do not hold all their sums. Done where all of them together are predicted to be faster than what they
replace; on chips with wgmma, of 16-bit elements. So are gradients of attention (back_to_back.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import inf, prod
from typing import ClassVar

from kitsune_mlir.contraction import Roles
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import in_block_order, ir, remark, walk
from kitsune_mlir.operations import element_type, operations_of
from kitsune_mlir.planning import back_to_back_tiles
from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.back_to_back_tiles import BackToBack, BackToBackTiles
from kitsune_mlir.planning.cost import DRAM, Price
from kitsune_mlir.planning.kernel_cost import dram_us
from kitsune_mlir.planning.open_sizes import factors, is_open
from kitsune_mlir.planning.target import Target

from .attention_places import usable
from .back_to_back import NAMES, Between, Product, Walk, between_of, place_of, sources
from .back_to_back_kernel import BackToBackKernel, Computed, Second
from .base import ModulePass
from .batches_apart import check_open
from .block_order import are_convex
from .of_places import Range
from .operand_layout import GRANULE
from .priced_product import PricedProduct
from .product_follows import Follows, follows_of
from .row_bodies import erase, gather
from .row_groups import Group, root
from .row_plan import RowPlan
from .score_tiles import ScoreTiles, work_of_elements
from .split_batches import Stored, stored_apart, with_split_batches, with_split_right
from .tensor_sizes import TensorSizes
from .turned_elements import turned
from .vanishing_elements import range_of_elements

_F32 = 4  # bytes


@dataclass(frozen=True)
class ScheduleBackToBack(ModulePass):
    """target: what the kernels are for, a name or the path of a description."""

    name: ClassVar[str] = "schedule-back-to-back"
    target: str = "sm_90a"

    def run(self, module: ir.Module) -> None:
        target = targets.load(self.target)
        if not target.has_warpgroups:
            return
        number, refused = 0, set[ir.Value]()
        while (found := _next(module, target, refused)) is not None:
            number = found.build(number)


def _next(module: ir.Module, target: Target, refused: set[ir.Value]) -> _Kernels | None:
    """Products that become kernels, none of those whose results were `refused`, to which others are added."""
    sizes_of, walk_of = cache(TensorSizes), cache(Walk)  # of a block, until it is changed
    for op in walk(module, *NAMES):
        if op.parent.name != "func.func" or op.results[0] in refused:
            continue
        try:
            sizes = sizes_of(op.block)
            between = between_of(op, sizes, walk_of)
            if between is None:
                continue
            refused |= {second.result for second in between.seconds}
            found = _Kernels.of(between, sizes, target)
            if found.is_faster():
                found.prepare()
                return found
        except UnsupportedError as error:
            refused.add(op.results[0])
            remark(op, f"is no kernel with the products of whose elements it takes some: {error}")
    return None


def _plan(between: Between, sizes: TensorSizes) -> RowPlan:
    """The dimensions into which the rows are cut, of which the batch is one, or several where it is open."""
    rows_ = between.space.rows // between.batch
    cuts = [rows_] if between.batch > 1 else []
    if is_open(between.batch):
        cuts.append(factors(between.batch)[0] * rows_)
    return RowPlan(Group(between.space, dict(between.members)), cuts, sizes.taken)


@dataclass
class _Side:
    """What one kernel computes: products that all sum over the columns."""

    between: Between
    plan: RowPlan
    sizes: TensorSizes
    target: Target

    @classmethod
    def of(cls, between: Between, sizes: TensorSizes, target: Target) -> _Side:
        """Raises UnsupportedError for what has no such kernel."""
        side = cls(between, _plan(between, sizes), sizes, target)
        side._check()
        return side

    def _check(self) -> None:
        elements, shape, where = set(), self.sizes.shape, []
        for one in (*self.between.firsts, *self.between.seconds):
            priced = PricedProduct(op=one.op, found=one.found, target=self.target)
            found = one.found
            for value, roles in ((found.left, found.left_roles), (found.right, found.right_roles)):
                priced.sizes |= dict(zip(roles, shape(value), strict=True))
                elements.add(str(element_type(value)))
            if any(is_open(priced.sizes[role]) for role in ("k" if one in self.between.firsts else "n")):
                raise UnsupportedError("the columns of an operand are open until the call")
            priced.examples = {role: self.sizes.taken(size) for role, size in priced.sizes.items()}
            priced.check_kind()
            where += [(found.left, found.left_roles, 0)] if one in self.between.firsts else []
            where.append((found.right, found.right_roles, 0))
        if len(elements) > 1 or not elements <= {"bf16", "f16"}:
            raise UnsupportedError(f"operands are of {' and '.join(sorted(elements))}")
        for one in self.between.firsts:
            if {
                self._last(one.found.left, one.found.left_roles),
                self._last(one.found.right, one.found.right_roles),
            } != {"k"}:
                raise UnsupportedError("an operand does not lie along what is summed over")
        if any(self._last(one.found.right, one.found.right_roles) != "n" for one in self.between.seconds):
            raise UnsupportedError("an operand lies along what is summed over")
        check_open(where, [self.between.batch, self.rows, self.between.space.columns], self.sizes)
        self._body().check()

    def _last(self, value: ir.Value, roles: Roles) -> str:
        """The role of an operand's last dimension where it lies."""
        return (place_of(value, roles, self.sizes.shape)[1] or roles)[-1]

    def _body(self) -> ScoreTiles:
        scores = [first.result for first in self.between.firsts]
        return ScoreTiles(self.plan, scores, self.between.space.columns, self.sizes)

    @property
    def rows(self) -> int:
        """How many rows one of the batch has."""
        return self.between.space.rows // self.between.batch

    @property
    def widths(self) -> list[int]:
        """The columns of the seconds."""
        return [self.sizes.shape(one.result)[-1] for one in self.between.seconds]

    def range(self) -> Range:
        """The columns that tiles of rows need."""
        given = [second.given for second in self.between.seconds]
        found = range_of_elements(list(self.between.members.values()), given, self.plan)
        return usable(found, self.plan, self._by_role)

    @property
    def _by_role(self) -> dict[str, int]:
        between = self.between
        return {"b": between.batch, "m": self.rows, "n": between.space.columns, "v": max(self.widths)}

    def build(self, name: str, tiles: BackToBackTiles) -> list[ir.Operation]:
        """Puts the kernel in the operators' place; these are given, and nobody reads them any more."""
        between, shape = self.between, self.sizes.shape
        follows = [follows_of(one.op) for one in between.seconds]
        seconds = []
        for one, own in zip(between.seconds, follows, strict=True):
            ends = own.stored or [one.op]
            stored = stored_apart(ends[0].results[0], 0, shape) if len(ends) == 1 else None
            if stored is not None and "m" not in stored.roles:
                stored = None
            found = with_split_right(one.found, shape, self.sizes.as_value)
            is_flat = self._is_flat(stored, tiles)
            seconds.append(Second(one.op, found, one.given, own, stored, is_flat))
        behind = [op for one in seconds for op in (*one.follows.ops, *(one.stored.operations if one.stored else ()))]
        own = in_block_order([*between.ops, *behind])
        gather(own)
        last = own[-1]
        with last.location, ir.InsertionPoint(last):
            firsts = [with_split_batches(one.found, 0, shape, number=self.sizes.as_value) for one in between.firsts]
            computed = Computed(between, firsts, seconds, self.range(), self._by_role, shape, self.target, name)
            body = self._body()
            body.bring()
            results = BackToBackKernel(computed, body, tiles).build()
        for second, made in zip(seconds, results, strict=True):
            for op, result in zip(second.replaced, made, strict=True):
                op.results[0].replace_all_uses_with(result)
        return own

    @staticmethod
    def _is_flat(stored: Stored | None, tiles: BackToBackTiles) -> bool:
        """Whether a stored result is written as rows and columns, each several of its dimensions, as concatenations and
        products take it: where no tile has some of the next rows' or columns' elements then."""
        if stored is None:
            return False
        sizes = dict(zip(stored.roles, stored.sizes, strict=True))
        return stored.roles[-1] == "n" and not sizes["m"] % tiles.rows and not sizes["n"] % GRANULE

    def counts(self, of: Between, is_turned: bool) -> BackToBack:
        """What the price of a kernel of some of the seconds depends on, perhaps with rows in the place of columns."""
        brought = {
            root(value)
            for member in of.members.values()
            for value, role in zip(member.op.operands, member.roles)
            if role is not None and role.columns and member.is_whole(role) and root(value) not in of.members
        }
        work, read = work_of_elements(of.members.values(), brought - {first.result for first in of.firsts})
        range_, rows_, columns = self.range(), self.rows, of.space.columns
        first, last = range_.first, range_.last
        if is_turned:
            rows_, columns = columns, rows_
            first, last = (None if end is None else -end for end in (range_.last, range_.first))
        shared = sources(of, self.sizes.shape, is_turned)
        widths = [self.sizes.shape(one.result)[-1] for one in of.seconds]
        return BackToBack(
            *map(self.sizes.taken, (of.batch, rows_, columns)),
            tuple(self._summed(one) for one in of.firsts),
            tuple(width for width, source in sorted(zip(widths, shared, strict=True), key=lambda one: one[1] < 0)),
            sum(source >= 0 for source in shared),
            len({second.given for second in of.seconds}),
            *(work, read, first, last),
        )

    def _summed(self, one: Product) -> int:
        return self.sizes.shape(one.found.left)[one.found.left_roles.index("k")]


@dataclass(frozen=True)
class _Part:
    """A kernel of some of the seconds, perhaps with rows in the place of columns."""

    is_turned: bool
    seconds: tuple[Product, ...]
    tiles: BackToBackTiles


@dataclass
class _Kernels:
    """The kernels of all that stands between products, and behind them."""

    between: Between
    whole: _Side
    parts: list[_Part]
    sides: list[_Side] = field(default_factory=list)  # of the parts, once they are prepared

    @classmethod
    def of(cls, between: Between, sizes: TensorSizes, target: Target) -> _Kernels:
        """Raises UnsupportedError where there are none."""
        if not are_convex(between.ops):
            raise UnsupportedError("what stands between the products takes what is computed beside them")
        made = cls(between, _Side(between, _plan(between, sizes), sizes, target), [])
        for is_turned in (False, True):
            own = tuple(one for one in between.seconds if one.is_straight != is_turned)
            ways = (made._parts(is_turned, way) for way in ([own], [(one,) for one in own]))
            found = [parts for parts in ways if parts is not None]
            if not found:
                raise UnsupportedError("no tiles of it fit registers and shared memory")
            made.parts += min(found, key=lambda parts: sum(one.tiles.price.us for one in parts))
        return made

    def _parts(self, is_turned: bool, ways: Sequence[tuple[Product, ...]]) -> list[_Part] | None:
        """Kernels of these seconds; None where one of them has no tiles."""
        found = []
        for seconds in filter(None, ways):
            of, target = self.between.only(seconds), self.whole.target
            tiles = back_to_back_tiles.choose(self.whole.counts(of, is_turned), target)
            if tiles is None:
                return None
            tensors = [one.found.left for one in of.firsts] + [one.found.right for one in (*of.firsts, *seconds)]
            moved = self._dram_us({*tensors, *(one.result for one in seconds)})
            price = max(tiles.price, Price(moved, DRAM), key=lambda price: price.us)
            found.append(_Part(is_turned, seconds, replace(tiles, price=price)))
        return found

    def _dram_us(self, tensors: set[ir.Value]) -> float:
        sizes = self.whole.sizes
        return dram_us(sum(2.0 * sizes.taken(prod(sizes.shape(value))) for value in tensors), self.whole.target)

    def is_faster(self) -> bool:
        """Whether they are predicted to be faster than kernels of each product, the elements going through memory."""
        between, whole = self.between, self.whole
        if is_open(whole.rows) or is_open(between.space.columns):
            return True  # such products have no other kernel
        elements, apart = float(whole.sizes.taken(between.space.rows * between.space.columns)), 0.0
        given = len({second.given for second in between.seconds})
        for number, one in enumerate((*between.firsts, *between.seconds)):
            is_first = number < len(between.firsts)
            priced = PricedProduct(op=one.op, found=one.found, target=whole.target)
            priced.read_sizes()
            tiles = priced.tiles(Follows() if is_first else follows_of(one.op))
            moved = 2.0 * elements
            if is_first:  # sums of f32, until the last of them has all
                moved = _F32 * elements
                if number == len(between.firsts) - 1:
                    moved = (_F32 * number + 2.0 * given) * elements
            apart += max(inf if tiles is None else tiles.microseconds, dram_us(moved, whole.target))
        return sum(one.tiles.price.us for one in self.parts) < apart

    def prepare(self) -> None:
        """Makes what is turned. Raises UnsupportedError, and leaves nothing of it, where there are none after all."""
        block, sizes = self.between.seconds[0].op.block, self.whole.sizes
        for one in self.parts:
            gather([second.op for second in one.seconds])
        before = {result for op in block.operations for result in op.operation.results}
        try:
            for one in self.parts:
                of, last = self.between.only(one.seconds), one.seconds[-1].op
                if one.is_turned:
                    with last.location, ir.InsertionPoint(last):
                        of = turned(of, sizes)
                side = _Side.of(of, sizes, self.whole.target)
                if side.counts(of, False) != self.whole.counts(self.between.only(one.seconds), one.is_turned):
                    raise UnsupportedError("a kernel is another one than was priced")
                self.sides.append(side)
        except UnsupportedError:
            for op in reversed(operations_of(block)):
                if len(op.results) and op.results[0] not in before:
                    op.erase()
            sizes.forget_erased()
            raise

    def build(self, number: int) -> int:
        """Puts the kernels in the operators' place; `number` is the first's, and the next one's is given."""
        left = {op.results[0]: op for op in self.between.ops}
        for one, side in zip(self.parts, self.sides, strict=True):
            for old, made in zip(one.seconds, side.between.seconds, strict=True):
                if old.result != made.result:
                    old.result.replace_all_uses_with(made.result)
            left |= {op.results[0]: op for op in side.build(f"back_to_back{number}", one.tiles)}
            number += 1
        for op in reversed(in_block_order(left.values())):
            erase(op)
        return number
