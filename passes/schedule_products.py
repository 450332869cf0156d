"""schedule-products: matrix products outside pipelines become kernels at the schedule level.

    %c = linalg.batch_matmul ins(%a, %b : tensor<8x100x64xbf16>, tensor<8x64x72xbf16>) outs(%zero : ...)
    %d = linalg.generic {...} ins(%c, %bias) ...      // what follows elementwise, as long as nothing else reads it
  =>
    %p = "kitsune.kernel"() ({
      "kitsune.tiles"; two rings; an agent that copies chunks of both operands into them; an agent whose copies wait for
      chunks, multiply, and write a tile with what follows applied to it
    }) : () -> !kitsune.outputs
    %d = "kitsune.result"(%p) {index = 0 : i64}

On Hopper the first chunk of a tile stands before the loop over the others, so that each chunk's slots are released
behind the next one's product: tensor cores have always one in flight. Elsewhere copies and products are those of
threads and warps (the attribute `engine`), which end before a warp goes on.

Where a row group (a norm, a softmax) follows, and tiles of all columns are predicted to be faster than a kernel of its
own, it is computed on the product's tiles (`product_rows.py`). Of either operand any dimension may be the last: `box`
says which one lies along a slot's boxes; one operand may be a matrix of windows, which convolutions have. Where there
are too few tiles for all SMs the sum over k is cut into parts, which a linalg.generic adds up. Numbers of f32 are cut
into pieces of bf16, three where products are to be as exact as f32's (each has 8 of its 24 bits), else two; six or
three products of pieces make one. Pieces of what is computed with each call are made in the kernel, or by one before,
whichever is faster (`product_pieces.py`); so are operands of products in tf32 turned whose rows are not along k. Sizes
may be open until the call; where several are that are not the same, operands lie as products want them, lines of an
open length those of sums. Products that have no such form (other types) are left as they are, with a remark. Those
of few rows or columns are left to schedule-rows, as sums over the rows of the longer operand, where that is predicted
to be faster (`thin_products.py`), and those across the rows of both operands, batches of small ones, and sums of a few
products, which are elementwise, to convert-linalg-to-gpu. The chunks of an operand that is the same for all tiles may
be copied once and kept in shared memory, where tiles are many and chunks few. Matrices that a batch takes out of a
tensor by number, as a mixture's blocks of rows do, are read there (`numbered_matrices.py`); small ones of many vectors,
as types of edges choose them, are made first where that is predicted to be faster.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import inf, prod
from typing import ClassVar

from kitsune_mlir.contraction import NAMES, NUMBERED, Contraction, Roles, is_zero_filled, match_product
from kitsune_mlir.dialects.windows import has_open_windows, windows_of
from kitsune_mlir.errors import UnsupportedError, UserError
from kitsune_mlir.generics import generic, sizes_of, zero_tensor
from kitsune_mlir.mlir import arith, ir, remark, replace_op, tensor, walk
from kitsune_mlir.operations import element_type
from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.cut import KERNEL_US
from kitsune_mlir.planning.kernel_cost import dram_us
from kitsune_mlir.planning.open_rows import MANY
from kitsune_mlir.planning.open_sizes import is_open
from kitsune_mlir.planning.product_engines import CHUNK, COPY_ROWS
from kitsune_mlir.planning.product_tiles import CLUSTERS, PAIRS, ProductTiles, choose
from kitsune_mlir.planning.thin_products import small_us, takes_its_place
from kitsune_mlir.traffic import element_bytes

from . import dots
from .base import ModulePass
from .batches_apart import batch_parts, check_apart
from .flat_follows import flatten_follows
from .numbered_matrices import by_number
from .operand_layout import ending_in_zeros, has_open_lines, with_last
from .patch_kernel import PatchKernel
from .priced_product import Asked, PricedProduct
from .product_follows import Follows, follows_of
from .product_kernel import ProductKernel
from .product_rows import MOST_IN_PIECES, Followings, is_faster, rows_of
from .row_bodies import RowBody, erase, gather
from .row_bodies import replace as replace_group
from .single_products import LEAST, NAME
from .split_batches import has_open_parts, stored_apart, with_split_batches
from .tensor_sizes import TensorSizes
from .thin_products import (
    across_predicted_us,
    along_k,
    by_elements,
    by_rows,
    elementwise_predicted_us,
    has_windows,
    predicted_us,
)


@dataclass(frozen=True)
class ScheduleProducts(ModulePass):
    """target: what the kernels are for, a name or the path of a description. split_k: CTAs of a cluster that share the
    sum over k of products that have such a form; 0 chooses."""

    name: ClassVar[str] = "schedule-products"
    target: str = "sm_90a"
    split_k: int = 0

    def __post_init__(self) -> None:
        if self.split_k not in (0, *CLUSTERS):
            known = ", ".join(map(str, (0, *CLUSTERS)))
            raise UserError(f"{self.name}: split-k must be one of {known}, found {self.split_k}")

    def run(self, module: ir.Module) -> None:
        target = targets.load(self.target)
        if not target.has_tensor_cores:
            return
        flatten_follows(module)
        number, rows = 0, cache(Followings)
        for op in walk(module, "linalg.matmul"):
            of_f32 = isinstance(op.results[0].type.element_type, ir.F32Type)
            if of_f32 and _stands_alone(op) and not is_zero_filled(op.operands[2]):
                _begin_at_zero(op)
        waiting = deque(op for op in walk(module, *NAMES) if _stands_alone(op) and match_product(op))
        while waiting:
            op = waiting.popleft()
            found = match_product(op)
            assert found is not None
            try:
                with op.location:
                    name = ir.StringAttr(op.attributes[NAME]).value if NAME in op.attributes else f"product{number}"
                    given = {"op": op, "found": found, "target": target, "waiting": waiting}
                    number += _Scheduler(**given, name=name, rows=rows(op.block), asked=self).schedule()
            except UnsupportedError as error:
                remark(op, f"is no product on tensor cores: {error}")


def _begin_at_zero(op: ir.Operation) -> None:
    """Has what a product's sums begin with added behind them."""
    before, result = op.operands[2], op.results[0]
    kind, identity = ir.RankedTensorType(result.type), ir.AffineMap.get_identity(2)
    with op.location, ir.InsertionPoint(op):
        sizes = sizes_of(before)
        op.operands[2] = zero_tensor(sizes, kind.element_type)
    with op.location, ir.InsertionPoint.after(op):
        start = tensor.empty(sizes, kind.element_type)
        total = generic([result, before], [start], [identity] * 3, ["parallel"] * 2, lambda a, b, _: arith.addf(a, b))
    result.replace_all_uses_except(total.results[0], total)


def _stands_alone(op: ir.Operation) -> bool:
    return op.parent.name == "func.func"


@dataclass(kw_only=True)
class _Scheduler(PricedProduct):
    """Puts a kernel in the place of one product."""

    name: str
    rows: Followings
    waiting: deque[ir.Operation]  # the products that come next
    asked: ScheduleProducts
    several: TensorSizes | None = None  # where several sizes are open until the call

    def schedule(self) -> bool:
        """Whether it did. Raises UnsupportedError for a product worth a kernel that has no such form."""
        self.read_sizes()
        known = self.taken
        if prod(known.values()) >= LEAST:
            with ir.InsertionPoint(self.op):
                self.found = by_number(self.found)
        if self._are_vectors:
            self.found = along_k(self.found)
        sizes = known if self._are_vectors else self.sizes
        thin = predicted_us(self.found, sizes, self.target) if is_zero_filled(self.found.init) else None
        if (small := self._dots(thin)) is not None:
            self.rows.forget([self.op, *small.follows])
            dots.build(small, self.target, self.name)
            return True
        if self._is_elementwise(known):
            self.rows.forget([self.op])
            replace_op(self.op, by_elements(self.op, self.found))
            return False
        if prod(known.values()) < self._least:
            if thin is not None:
                self._by_rows()
            return False
        if thin is not None and self._are_vectors:
            self._by_rows()
            return False
        plain, self.found = self.found, self._where_it_lies()
        self.check_alone()
        follows = self._follows
        tiles = self.tiles(follows, self.asked.split_k)
        tiles_us = None if tiles is None else tiles.microseconds
        if takes_its_place(thin, tiles_us):
            self.found = plain
            self._by_rows()
            return False
        across = across_predicted_us(self.found, self.sizes, self.target)
        if takes_its_place(across, tiles_us):
            return False  # convert-linalg-to-gpu sums over the rows
        if takes_its_place(self._small_us(), tiles_us):
            return False  # so it does products of which a tile would be mostly empty
        if tiles is None:
            raise UnsupportedError(f"no tiles of it fit the {self.target.shared_bytes} bytes of shared memory")
        has_open = has_open_windows(self.found.left)
        if self.several is None and not has_open and self._with_rows(tiles):
            return True
        follows = Follows() if tiles.split > 1 else follows
        ends = follows.stored or [self.op]
        apart = tiles.split == 1 and len(ends) == 1 and tiles.patch is None and self.several is None and not has_open
        stored = stored_apart(ends[0].results[0]) if apart else None
        moved = [] if stored is None else list(stored.operations)
        self.rows.forget([self.op, *follows.ops, *moved])
        ends = moved[-1:] or ends
        with ir.InsertionPoint((moved or follows.ops or [self.op])[-1]):
            if tiles.patch is None:
                made = ProductKernel(self._asked(), tiles, follows, stored=stored)
            else:
                made = PatchKernel(self._asked(), tiles, follows)
            results = made.build([end.results[0] for end in ends])
        for end, result in zip(ends, results, strict=True):
            end.results[0].replace_all_uses_with(result)
        for op in [*reversed(moved), *reversed(follows.ops), self.op]:
            op.erase()
        return True

    @property
    def _least(self) -> int:
        """The multiply-adds in the example that are worth a kernel: where several sizes are open, few too, for those
        of a call may be many."""
        open_ = sum(size is None for size in self.sizes.values())
        return LEAST // MANY**open_ if open_ > 1 else LEAST

    def _where_it_lies(self) -> Contraction:
        """The product, of operands where they lie, if offsets there are known numbers, and an open size is not cut. An
        operand whose lines have an open length is turned where its columns then have a known one; where several sizes
        are open, and lines of others than sums, both operands have lines along k that end in zeros."""
        in_pieces = frozenset(self._computed) if self.pieces > 1 else frozenset()
        if None not in self.sizes.values():
            return with_split_batches(self.found, converted=in_pieces)
        plain, sizes = self.found, TensorSizes(self.op.block)
        self._read_open(sizes)
        found = plain
        if self.several is None or self._is_apart:
            found = with_split_batches(plain, 0, sizes.shape, in_pieces, sizes.as_value)
        left, left_roles = self._open_operand((found.left, found.left_roles), (plain.left, plain.left_roles))
        right, right_roles = self._open_operand((found.right, found.right_roles), (plain.right, plain.right_roles))
        if self.several is not None:
            lines = [roles[-1] for value, roles in ((left, left_roles), (right, right_roles)) if has_open_lines(value)]
            if lines not in ([], ["k"]):  # of one of sums the other operand has as many places
                left, left_roles = self._along_k(left, left_roles)
                right, right_roles = self._along_k(right, right_roles)
        if (matrix := windows_of(left)) is not None and matrix.chunk < CHUNK and right_roles[-1] != "k":
            with self.op.location, ir.InsertionPoint(self.op):  # boxes across columns have whole chunks
                right, right_roles = with_last(right, right_roles.index("k")), ("n", "k")
        return replace(found, left=left, right=right, left_roles=left_roles, right_roles=right_roles)

    @property
    def _operands(self) -> tuple[tuple[ir.Value, Roles], tuple[ir.Value, Roles]]:
        """Both operands as they stand in the product, with the roles of their dimensions."""
        return (self.found.left, self.found.left_roles), (self.found.right, self.found.right_roles)

    @property
    def _is_apart(self) -> bool:
        """Whether operands of a product of several open sizes are read where they lie: both have the batch in the same
        parts, one of which is open, and that is an argument's size."""
        assert self.several is not None
        shape = self.several.shape
        try:
            for value, roles in self._operands:
                check_apart(value, roles, 0, shape, self.several.is_computed)
        except UnsupportedError:
            return False
        left, right = (batch_parts(value, roles, shape) for value, roles in self._operands)
        return left is not None and left == right

    def _read_open(self, given: TensorSizes) -> None:
        """Finds out whether several sizes are open that are not known to be the same one."""
        sizes = {
            role: size for value, roles in self._operands for role, size in zip(roles, given.shape(value), strict=True)
        }
        if len({size for role, size in sizes.items() if role in self.sizes and is_open(size)}) > 1:
            self.several = given
        vectors = 1 in (self.sizes["m"], self.sizes["n"])
        if vectors and any(map(has_open_lines, (self.found.left, self.found.right, self.op.results[0]))):
            raise UnsupportedError("it multiplies vectors, and lines are of an open length: it takes as long as these")

    def _open_operand(self, apart: tuple[ir.Value, Roles], plain: tuple[ir.Value, Roles]) -> tuple[ir.Value, Roles]:
        """An operand of a product of an open size: where it lies, or else as it is, its lines of a known length where
        there is one."""
        value, roles = apart
        own = [role for role in plain[1] if role in self.sizes and self.sizes[role] is None]
        if self.several is not None and any(role.startswith("b/") for role in roles):
            own = [role for role in own if role != "b"]
        if not {*own} <= {*roles} or has_open_parts(roles) or has_open_lines(value) and not has_open_lines(plain[0]):
            value, roles = plain
        known = [role for role in "mnk" if role in roles and self.sizes[role] is not None]
        if not has_open_lines(value) or not known:
            return value, roles
        with self.op.location, ir.InsertionPoint(self.op):
            turned = with_last(value, roles.index(known[0]))
        return turned, (*(role for role in roles if role != known[0]), known[0])

    def _along_k(self, value: ir.Value, roles: Roles) -> tuple[ir.Value, Roles]:
        """An operand of an open k with lines along it. Raises UnsupportedError where k is known, or no dimension."""
        if "k" not in roles or self.sizes["k"] is not None:
            raise UnsupportedError("several of its sizes are open until the call, those of lines among them")
        with self.op.location, ir.InsertionPoint(self.op):
            padded = ending_in_zeros(value, roles.index("k"))
        return padded, (*(role for role in roles if role != "k"), "k")

    @property
    def _are_vectors(self) -> bool:
        """Whether matrices of a large batch, which may be open, are multiplied with a vector each."""
        m, n, k = (self.sizes.get(role, 1) for role in "mnk")
        return self.taken.get("b", 1) > self.target.sms and None not in (m, n, k) and 1 in (m, n)

    @cached_property
    def _follows(self) -> Follows:
        return follows_of(self.op)

    def _dots(self, thin: float | None) -> dots.Plan | None:
        """The kernel of warps that takes the product's place, and that of gathers around it, where it is faster. `thin`
        is what the product takes as sums over rows, None where it is none."""
        follows = self._follows
        one = follows.stored == follows.ops[-1:]
        if self.found.numbers is not None:
            return None
        plan = dots.plan(self.op, self.found, follows.ops if one else [], self.target)
        if plan is None or not plan.moves_less:
            return None
        b, m, n, k = self.known
        pairs, short = len(PAIRS[self.pieces]), self.short(follows.ops)
        tiles = choose(b, m, n, k, False, pairs, self.target, words=self.words, short=short)
        alone = min((us for us in (thin, tiles and tiles.microseconds) if us is not None), default=inf)
        return plan if plan.form.price.us < alone + plan.saved_us(self.target) else None

    def _small_us(self) -> float | None:
        """What it takes as a batch of small products in threads, and where numbers name its matrices, to make these;
        None where it is none, or an operand is in no memory."""
        if has_windows(self.found):
            return None
        b, *sizes = ((self.taken if role == "b" else self.sizes).get(role, 1) for role in "bmnk")
        us = small_us(b, *sizes, self.target)
        if us is None or self.found.numbers is None:
            return us
        roles = self.found.right_roles if NUMBERED in self.found.right_roles else self.found.left_roles
        elements = prod(self.taken[role] for role in {"b", *roles} - {NUMBERED})
        nbytes = elements * element_bytes(element_type(self.found.left))
        return us + KERNEL_US + self.target.launch_us + 2 * dram_us(nbytes, self.target)

    def _is_elementwise(self, known: dict[str, int]) -> bool:
        """Whether it is a sum of few products that is faster as an elementwise operator than on tensor cores."""
        if self.sizes["k"] is None or NAME in self.op.attributes or not is_zero_filled(self.found.init):
            return False
        us = elementwise_predicted_us(self.op, self.found, known, self.target)
        if us is None or prod(known.values()) < LEAST:
            return us is not None
        tiles = self.tiles(self._follows)
        return tiles is None or us < tiles.microseconds

    def _by_rows(self) -> None:
        """Leaves the product to schedule-rows."""
        self.rows.forget([self.op])
        replace_op(self.op, by_rows(self.op, self.found))

    def _with_rows(self, alone: ProductTiles) -> bool:
        """Puts a kernel in the place of the product and of the row group behind it, where that is one and faster."""
        n = self.sizes.get("n", 1)
        if n is None or (self.pieces > 1 and n > MOST_IN_PIECES):
            return False
        plan = self.rows.of(self.op, rows_of(self.sizes), n)
        if plan is None:
            return False
        tiles = self.whole_tiles(plan.counts().work)
        if tiles is None or not is_faster(tiles, alone, plan, self.target):
            return False
        self.rows.take(self.op, plan)
        self.rows.forget([self.op])
        for product in [member.op for member in plan.group.ordered if member.op in self.waiting]:
            self.waiting.remove(product)  # a product of one column is a sum over rows
        gather(plan.group.ops)
        body = RowBody(plan, COPY_ROWS, {self.op.results[0]: self.op.results[0]})
        last = plan.group.ordered[-1].op
        with last.location, ir.InsertionPoint(last):
            body.bring()
            found = ProductKernel(self._asked(), tiles, Follows(), body).build_rows()
            replace_group(plan.group.results, found, plan.group.ops)
        erase(self.op)
        return True

    def _asked(self) -> Asked:
        given = self.op, self.found, self.target, self.name, self.sizes, self.pieces, self.words
        return Asked(*given, several=self.several)
