"""schedule-products: matrix products outside pipelines become kernels at the schedule level.

    %c = linalg.batch_matmul ins(%a, %b : tensor<8x100x64xbf16>, tensor<8x64x72xbf16>) outs(%zero : ...)
    %d = linalg.generic {...} ins(%c, %bias) ...      // what follows elementwise, as long as nothing else reads it
  =>
    %p = "kitsune.kernel"() ({
      "kitsune.tiles"; two rings; an agent that copies chunks of both operands into them; an agent whose copies wait for
      chunks, multiply, and write a tile with what follows applied to it
    }) : () -> !kitsune.outputs
    %d = "kitsune.result"(%p) {index = 0 : i64}

The first chunk of a tile stands before the loop over the others, so that each chunk's slots are released behind the
next one's product: tensor cores have always one in flight.

Where a row group (a norm, a softmax) follows, and tiles of all columns are predicted to be faster than a kernel of its
own, it is computed on the product's tiles (`product_rows.py`). Of either operand any dimension may be the last: `box`
says which one lies along a slot's boxes; one operand may be a matrix of windows, which convolutions have. Where there
are too few tiles for all SMs the sum over k is cut into parts, which a linalg.generic adds up. Numbers of f32 are cut
into pieces of bf16, three where products are to be as exact as f32's (each has 8 of its 24 bits), else two; six or
three products of pieces make one. Products that have no such form (other types, sizes open until the call that are no
tensor's first) are left as they are, with a remark. The chunks of an operand that is the same for all tiles may be
copied once and kept in shared memory, where tiles are many and chunks few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from math import prod
from typing import ClassVar

from kitsune_mlir.contraction import NAMES, Contraction, is_zero_filled, match_product
from kitsune_mlir.dialects import kitsune, schedule
from kitsune_mlir.dialects.windows import in_memory
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, ir, linalg, remark, scf, tensor, walk
from kitsune_mlir.plan import DYNAMIC_SIZE
from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.cost import DRAM, Price
from kitsune_mlir.planning.kernel_cost import DEAR, dram_us
from kitsune_mlir.planning.product_tiles import CHUNK, COPY_ROWS, MOST_SPLIT, PAIRS, ProductTiles, choose
from kitsune_mlir.planning.target import Target
from kitsune_mlir.precision import tf32_pieces
from kitsune_mlir.traffic import type_bytes

from .base import ModulePass
from .operand_layout import laid_out
from .product_follows import is_elementwise, is_stored, tiled
from .product_rows import MOST_IN_PIECES, Followings, Rows, is_faster
from .row_bodies import RowBody, erase, gather
from .row_bodies import replace as replace_group
from .schedule_build import constant_index, empty_generic, i64

LEAST = 1 << 16  # multiply-adds that are worth a kernel of their own form
FEED_REGISTERS, MATH_REGISTERS = 24, 240
_WARPS = 4


@dataclass(frozen=True)
class ScheduleProducts(ModulePass):
    """target: what the kernels are for, a name or the path of a description."""

    name: ClassVar[str] = "schedule-products"
    target: str = "sm_90a"

    def run(self, module: ir.Module) -> None:
        target = targets.load(self.target)
        if target.products != "wgmma":
            return
        number, rows = 0, cache(Followings)
        for op in walk(module, "linalg.matmul"):
            of_f32 = isinstance(op.results[0].type.element_type, ir.F32Type)
            if of_f32 and _stands_alone(op) and not is_zero_filled(op.operands[2]):
                _begin_at_zero(op)
        for op in [op for op in walk(module, *NAMES) if _stands_alone(op) and match_product(op)]:
            found = match_product(op)
            assert found is not None
            try:
                with op.location:
                    number += _Scheduler(op, found, target, f"product{number}", rows(op.block)).schedule()
            except UnsupportedError as error:
                remark(op, f"is no product on tensor cores: {error}")


def _begin_at_zero(op: ir.Operation) -> None:
    """Has what a product's sums begin with added behind them."""
    before, result = op.operands[2], op.results[0]
    kind, identity = ir.RankedTensorType(result.type), ir.AffineMap.get_identity(2)
    sizes = [tensor.dim(before, constant_index(d)) if kind.is_dynamic_dim(d) else kind.shape[d] for d in range(2)]
    with op.location, ir.InsertionPoint(op):
        zero = arith.ConstantOp(kind.element_type, ir.FloatAttr.get(kind.element_type, 0.0)).result
        op.operands[2] = linalg.fill(zero, outs=[tensor.empty(sizes, kind.element_type)])
    with op.location, ir.InsertionPoint.after(op):
        start = tensor.empty(sizes, kind.element_type)
        total = empty_generic([result, before], [start], [identity] * 3, ["parallel"] * 2)
        with ir.InsertionPoint(total.regions[0].blocks[0]):
            linalg.YieldOp([arith.addf(*list(total.regions[0].blocks[0].arguments)[:2])])
    result.replace_all_uses_except(total.results[0], total)


def _stands_alone(op: ir.Operation) -> bool:
    return op.parent.name == "func.func"


@dataclass
class _Scheduler:
    """Puts a kernel in the place of one product."""

    op: ir.Operation
    found: Contraction
    target: Target
    name: str
    rows: Followings
    sizes: dict[str, int | None] = field(default_factory=dict)  # by role; None is open until the call

    def schedule(self) -> bool:
        """Whether it did. Raises UnsupportedError for a product worth a kernel that has no such form."""
        self._read_sizes()
        known = {role: DYNAMIC_SIZE if size is None else size for role, size in self.sizes.items()}
        if prod(known.values()) < LEAST:
            return False
        self._check()
        across = self.found.right_roles[-1] == "n"
        sizes = known.get("b", 1), known["m"], known["n"], known["k"]
        most_split = MOST_SPLIT if self.sizes["k"] is not None else 1  # parts of an open length would be open too
        follows = self._follows()
        work = sum(DEAR.get(inner.operation.name, 1) for op in follows for inner in op.regions[0].blocks[0].operations)
        tiles = choose(
            *sizes, across, len(PAIRS[self.pieces]), self.target, most_split, float(work), shared=self._shared()
        )
        if tiles is None:
            raise UnsupportedError(f"no tiles of it fit the {self.target.shared_bytes} bytes of shared memory")
        if self._with_rows(sizes, across, tiles):
            return True
        follows = [] if tiles.split > 1 else follows
        self.rows.forget(follows)
        last = follows[-1] if follows else self.op
        with ir.InsertionPoint(last):
            result = _Builder(self, tiles, follows).build(last.results[0].type)
        last.results[0].replace_all_uses_with(result)
        for op in [*reversed(follows), self.op]:
            op.erase()
        return True

    def _with_rows(self, sizes: tuple[int, int, int, int], across: bool, alone: ProductTiles) -> bool:
        """Puts a kernel in the place of the product and of the row group behind it, where that is one and faster."""
        b, m, n, _ = (self.sizes.get(role, 1) for role in "bmnk")
        if n is None or (self.pieces > 1 and n > MOST_IN_PIECES):
            return False
        shape = Rows(m, (b or 1) * (m or 1), b is None or m is None, "b" in self.sizes)
        plan = self.rows.of(self.op, shape, n)
        if plan is None:
            return False
        tiles = choose(*sizes, across, len(PAIRS[self.pieces]), self.target, work=plan.counts().work, whole=True)
        if tiles is None or not is_faster(tiles, alone, plan, self.target):
            return False
        self.rows.take(self.op, plan)
        gather(plan.group)
        body = RowBody(plan, COPY_ROWS, {self.op.results[0]: self.op.results[0]})
        last = plan.group.ordered[-1].op
        with last.location, ir.InsertionPoint(last):
            body.bring()
            found = _Builder(self, tiles, [], body).build_rows()
            replace_group(plan.group, found)
        erase(self.op)
        return True

    def _shared(self) -> frozenset[str]:
        """The operands that are the same throughout the batch, and of a length that is known."""
        roles = {"left": self.found.left_roles, "right": self.found.right_roles}
        own = {"left": "m", "right": "n"}
        known = [name for name in roles if self.sizes[own[name]] is not None and self.sizes["k"] is not None]
        return frozenset(name for name in known if "b" not in roles[name] or self.sizes["b"] == 1)

    @property
    def pieces(self) -> int:
        """How many numbers of bf16 stand for one of the operands; 1 where these have 16 bits."""
        if not isinstance(ir.RankedTensorType(self.found.left.type).element_type, ir.F32Type):
            return 1
        return tf32_pieces(self.op) + 1

    def _read_sizes(self) -> None:
        found = self.found
        for value, roles in ((found.left, found.left_roles), (found.right, found.right_roles)):
            kind = ir.RankedTensorType(value.type)
            for d, role in enumerate(roles):
                self.sizes[role] = None if kind.is_dynamic_dim(d) else kind.shape[d]

    def _check(self) -> None:
        left, right = (ir.RankedTensorType(value.type) for value in (self.found.left, self.found.right))
        element = left.element_type
        if not isinstance(element, ir.BF16Type | ir.F16Type | ir.F32Type) or right.element_type != element:
            raise UnsupportedError(f"it multiplies {left.element_type} with {right.element_type}")
        if not isinstance(ir.RankedTensorType(self.op.results[0].type).element_type, ir.F32Type):
            raise UnsupportedError("its sums are no f32")
        if not is_zero_filled(self.found.init):
            raise UnsupportedError("its sums do not begin at zero")
        if (self.sizes.get("b", 1) or DYNAMIC_SIZE) > self.target.sms and 1 in (self.sizes["m"], self.sizes["n"]):
            raise UnsupportedError("it multiplies a vector for each of many numbers of a batch, and a tile is 64 rows")
        if 0 in self.sizes.values():
            raise UnsupportedError("it multiplies nothing")
        if sum(size is None for size in self.sizes.values()) > 1:
            raise UnsupportedError("two of its sizes are open until the call")
        for value, roles in ((left, self.found.left_roles), (right, self.found.right_roles)):
            if not {"m", "n", "k"} & {roles[-1]}:
                raise UnsupportedError("the last dimension of an operand is its batch")
            _check_open(value)
        _check_open(ir.RankedTensorType(self.op.results[0].type))

    def _follows(self) -> list[ir.Operation]:
        """Elementwise operators, each the only reader of the one before it, the first of the product."""
        found: list[ir.Operation] = []
        value = self.op.results[0]
        while len(uses := list(value.uses)) == 1 and is_elementwise(uses[0].owner.operation, value):
            found.append(uses[0].owner.operation)
            value = found[-1].results[0]
        while found and not is_stored(found[-1]):
            found.pop()
        return found


class _Builder:
    """Builds the kernel of a product at the insertion point."""

    def __init__(
        self, of: _Scheduler, tiles: ProductTiles, follows: Sequence[ir.Operation], rows: RowBody | None = None
    ):
        self.of, self.tiles, self.follows, self.rows = of, tiles, follows, rows
        found = of.found
        self.operands = {"left": found.left_roles, "right": found.right_roles}
        values = {"left": found.left, "right": found.right}
        self.pieces = {name: laid_out(value, of.pieces) for name, value in values.items()}
        self.extents = {role: self._extent(role) for role in of.sizes}
        self.element = ir.RankedTensorType(self.pieces["left"][0].type).element_type

    def _extent(self, role: str) -> ir.Value:
        size = self.of.sizes[role]
        if size is not None:
            return constant_index(size)
        found = self.of.found
        for value, roles in ((found.left, found.left_roles), (found.right, found.right_roles)):
            if role in roles:
                return tensor.dim(in_memory(value), constant_index(roles.index(role)))
        raise AssertionError(role)

    def build_rows(self) -> list[ir.Value]:
        """What takes the place of the row group's outputs."""
        assert self.rows is not None
        return self.rows.results(self._kernel([self.of.op.results[0].type]))

    def build(self, type_: ir.Type) -> ir.Value:
        """What takes the place of the last operator's result."""
        whole = ir.RankedTensorType(self.of.op.results[0].type)
        if self.tiles.split > 1:
            type_ = ir.RankedTensorType.get([self.tiles.split, *whole.shape], ir.F32Type.get())
        result = kitsune.ResultOp(self._kernel([type_]).results[0], i64(0), type_).results[0]
        return self._summed(result, whole) if self.tiles.split > 1 else result

    def _kernel(self, types: Sequence[ir.Type]) -> schedule.KernelOp:
        """The kernel, whose results have about these types."""
        tiles, f32 = self.tiles, ir.F32Type.get()
        kernel = schedule.KernelOp(ir.StringAttr.get(self.of.name), kitsune.Outputs.get())
        kernel.attributes["target"] = ir.StringAttr.get(self.of.target.name)
        price = self._price(types)
        kernel.attributes["predicted_us"] = ir.FloatAttr.get(f32, price.us)
        kernel.attributes["limit"] = ir.StringAttr.get(price.limit)
        with ir.InsertionPoint(kernel.regions[0].blocks.append()):
            sizes = self._tile_sizes()
            roles = [role for role in "sbmn" if role in sizes]
            extents = [constant_index(tiles.split) if role == "s" else self.extents[role] for role in roles]
            index = ir.IndexType.get()
            dealt = schedule.TilesOp(extents, index, index, index)
            dealt.attributes["tile"] = ir.DenseI64ArrayAttr.get([sizes[role] for role in roles])
            rings = {name: self._ring(name, count) for name, count in (("left", tiles.rows), ("right", tiles.columns))}
            for name, copies, registers in (("feed", 1, FEED_REGISTERS), ("math", tiles.copies, MATH_REGISTERS)):
                agent = schedule.AgentOp(ir.StringAttr.get(name), *map(i64, (copies, _WARPS, registers)))
                with ir.InsertionPoint(agent.regions[0].blocks.append(index)):
                    kept = self._keep(rings, name)
                    loop = scf.ForOp(*dealt.results)
                    with ir.InsertionPoint(loop.body):
                        at = self._place(loop.induction_variable, roles, extents, sizes)
                        if name == "feed":
                            self._feed(rings, at)
                        else:
                            self._multiply(rings, at, agent.regions[0].blocks[0].arguments[0], kept)
                        scf.yield_([])
                    for slot in kept:
                        schedule.ReleaseOp(slot, [])
        return kernel

    def _keep(self, rings: dict[str, schedule.AllocRingOp], agent: str) -> list[ir.Value]:
        """In front of the loop over tiles: fills the slots of an operand that is kept, or opens them for the loop."""
        name = self.tiles.kept
        if name is None:
            return []
        if agent == "math":
            return [schedule.WaitOp(rings[name].results[0], _slot(rings[name])).results[0] for _ in range(self._chunks)]
        zero = constant_index(0)
        loop = scf.ForOp(zero, self.extents["k"], constant_index(CHUNK))
        with ir.InsertionPoint(loop.body):
            place = dict.fromkeys("bmn", zero) | {"k": loop.induction_variable}
            self._copy(name, rings[name], self.pieces[name][0], place)
            scf.yield_([])
        return []

    @property
    def _chunks(self) -> int:
        """Of the whole sum."""
        return -(-(self.of.sizes["k"] or 0) // CHUNK)

    def _price(self, types: Sequence[ir.Type]) -> Price:
        """The kernel's price: its tiles', or DRAM's where that is slower."""
        kinds = [*(in_memory(value).type for pieces in self.pieces.values() for value in pieces), *types]
        nbytes = sum(type_bytes(kind, DYNAMIC_SIZE) for kind in kinds)
        moved = Price(self.of.target.launch_us + dram_us(nbytes, self.of.target), DRAM)
        return max(self.tiles.price, moved, key=lambda price: price.us)

    def _tile_sizes(self) -> dict[str, int]:
        sizes = {"m": self.tiles.rows, "n": self.tiles.columns}
        if "b" in self.of.sizes:
            sizes["b"] = 1
        return sizes | ({"s": 1} if self.tiles.split > 1 else {})

    def _ring(self, name: str, count: int) -> schedule.AllocRingOp:
        roles = self.operands[name]
        tile = ir.RankedTensorType.get([count, CHUNK], self.element)
        box = "rows" if roles[-1] == "k" else "columns"
        share = "split" if name == "left" else "all"
        names = map(ir.StringAttr.get, (name, "smem", box, share))
        slots = self._chunks if name == self.tiles.kept else self.tiles.slots
        return schedule.AllocRingOp(*names, kitsune.ring_type(tile, slots))

    def _place(
        self, number: ir.Value, roles: Sequence[str], extents: Sequence[ir.Value], sizes: dict[str, int]
    ) -> dict[str, ir.Value]:
        """By role the first element of a tile."""
        at, rest = {}, number
        for role, extent in reversed(list(zip(roles, extents))):
            count = extent
            if sizes[role] > 1:
                count = arith.ceildivui(extent, constant_index(sizes[role]))
            at[role] = rest if role == roles[0] else arith.remui(rest, count)
            rest = arith.divui(rest, count) if role != roles[0] else rest
        return {role: x if sizes[role] == 1 else arith.muli(x, constant_index(sizes[role])) for role, x in at.items()}

    def _range(self, at: dict[str, ir.Value]) -> tuple[ir.Value, ir.Value, ir.Value]:
        """The bounds and the step of the loop over k: the tile's part of it."""
        if "s" not in at:
            return constant_index(0), self.extents["k"], constant_index(CHUNK)
        first = arith.muli(at["s"], constant_index(self.tiles.part))
        last = arith.minui(arith.addi(first, constant_index(self.tiles.part)), self.extents["k"])
        return first, last, constant_index(CHUNK)

    @property
    def _overlaps(self) -> bool:
        """Whether a chunk's slots are released behind the next chunk's product, for which the first chunk stands before
        the loop over the others. What is added outside of tensor cores is waited for anyway, and a length that is open
        until the call may be zero."""
        return self.of.pieces == 1 and self.of.sizes["k"] is not None

    def _rest(self, at: dict[str, ir.Value]) -> tuple[ir.Value, ir.Value, ir.Value]:
        """The range without its first chunk, where that stands before the loop."""
        first, last, step = self._range(at)
        return (arith.addi(first, step) if self._overlaps else first), last, step

    def _feed(self, rings: dict[str, schedule.AllocRingOp], at: dict[str, ir.Value]) -> None:
        if self._overlaps:
            self._copies(rings, at | {"k": self._range(at)[0]})
        loop = scf.ForOp(*self._rest(at))
        with ir.InsertionPoint(loop.body):
            self._copies(rings, at | {"k": loop.induction_variable})
            scf.yield_([])

    def _copies(self, rings: dict[str, schedule.AllocRingOp], place: dict[str, ir.Value]) -> None:
        """A chunk of the operands that are not kept, once for each pair of pieces, into the next slots."""
        for pair in PAIRS[self.of.pieces]:
            for (name, ring), piece in zip(rings.items(), pair):
                if name != self.tiles.kept:
                    self._copy(name, ring, self.pieces[name][piece], place)

    def _copy(self, name: str, ring: schedule.AllocRingOp, value: ir.Value, place: dict[str, ir.Value]) -> None:
        """A chunk of an operand's piece into the next slot."""
        roles, own = self.operands[name], "m" if name == "left" else "n"
        slot = schedule.AcquireOp(ring.results[0], _slot(ring)).results[0]
        offsets = [place[role] for role in roles]
        copy = schedule.CopyOp(slot, value, offsets, ir.StringAttr.get("tma"), schedule.Token.get())
        copy.attributes["dims"] = ir.DenseI64ArrayAttr.get([roles.index(own), roles.index("k")])
        schedule.CommitOp(slot, [copy.results[0]])

    def _summed_with(self, rings: dict[str, schedule.AllocRingOp], kept: Sequence[ir.Value], acc: ir.Type) -> ir.Value:
        """The sums of a tile, one operand's chunks being kept: of the other's each is released behind the next
        product, so that two run at a time."""
        sums, before = schedule.SumsOp(acc).results[0], None
        (other,) = (ring for name, ring in rings.items() if name != self.tiles.kept)
        for chunk in kept:
            slot = schedule.WaitOp(other.results[0], _slot(other)).results[0]
            pair = (chunk, slot) if self.tiles.kept == "left" else (slot, chunk)
            multiplied = schedule.ProductOp(sums, *pair, ir.StringAttr.get("wgmma"), acc, schedule.Token.get())
            if before is not None:
                schedule.ReleaseOp(before[0], [before[1]])
            sums, before = multiplied.results[0], (slot, multiplied.results[1])
        assert before is not None
        schedule.ReleaseOp(before[0], [before[1]])
        return sums

    def _multiply(
        self,
        rings: dict[str, schedule.AllocRingOp],
        at: dict[str, ir.Value],
        copy: ir.Value,
        kept: Sequence[ir.Value],
    ) -> None:
        tile = ir.RankedTensorType.get([COPY_ROWS, self.tiles.columns], ir.F32Type.get())
        acc = schedule.Acc.get(tile)
        if kept:
            total, last = self._summed_with(rings, kept, acc), []
        else:
            sums = schedule.SumsOp(acc).results[0]
            total, *last = (self._overlapped if self._overlaps else self._one_by_one)(rings, at, sums)
        value = schedule.SettleOp(total, tile).results[0]
        if last:
            self._release(*last)
        own = at | {"m": arith.addi(at["m"], arith.muli(copy, constant_index(COPY_ROWS)))}
        before = self.of.op.results[0]
        if self.rows is not None:
            self.rows.given = {before: value}
            self.rows.emit([own[role] for role in "bm" if role in own], constant_index(0))
            return
        for op in self.follows:
            value = tiled(op, before, value, own)
            before = op.results[0]
        roles = [role for role in "sbmn" if role in own]
        write = schedule.WriteOp(value, [own[role] for role in roles], i64(0))
        write.attributes["dims"] = ir.DenseI64ArrayAttr.get([roles.index("m"), roles.index("n")])

    def _overlapped(
        self, rings: dict[str, schedule.AllocRingOp], at: dict[str, ir.Value], sums: ir.Value
    ) -> list[ir.Value]:
        """The sums of all chunks, each chunk's slots released when the next one's product has been issued; and, of the
        last chunk, the slots and its product's token."""
        chunk = self._product(rings, sums)
        loop = scf.ForOp(*self._rest(at), chunk)
        with ir.InsertionPoint(loop.body):
            sums, *before = loop.inner_iter_args
            chunk = self._product(rings, sums)
            self._release(*before)
            scf.yield_(chunk)
        return list(loop.results)

    def _one_by_one(
        self, rings: dict[str, schedule.AllocRingOp], at: dict[str, ir.Value], sums: ir.Value
    ) -> list[ir.Value]:
        """The sums, each chunk's slots released behind its own product."""
        loop = scf.ForOp(*self._rest(at), [sums])
        with ir.InsertionPoint(loop.body):
            sums = loop.inner_iter_args[0]
            for _ in PAIRS[self.of.pieces]:
                sums, *chunk = self._product(rings, sums)
                self._release(*chunk)
            scf.yield_([sums])
        return list(loop.results)

    def _product(self, rings: dict[str, schedule.AllocRingOp], sums: ir.Value) -> list[ir.Value]:
        """Multiplies the next chunk: the sums, the slots that are read, the product's token."""
        slots = [schedule.WaitOp(ring.results[0], _slot(ring)).results[0] for ring in rings.values()]
        multiplied = schedule.ProductOp(sums, *slots, ir.StringAttr.get("wgmma"), sums.type, schedule.Token.get())
        if self.of.pieces > 1:
            multiplied.attributes["outside"] = ir.UnitAttr.get()
        total, done = multiplied.results
        return [total, *slots, done]

    @staticmethod
    def _release(*chunk: ir.Value) -> None:
        *slots, done = chunk
        for slot in slots:
            schedule.ReleaseOp(slot, [done])

    def _summed(self, parts: ir.Value, whole: ir.RankedTensorType) -> ir.Value:
        """The sum of the parts over the first dimension, each a part's element an operand: so that what follows is
        fused with it."""
        rank, count = whole.rank, self.tiles.split
        sizes = [
            tensor.dim(parts, constant_index(d + 1)) if whole.is_dynamic_dim(d) else whole.shape[d] for d in range(rank)
        ]
        start = tensor.empty(sizes, whole.element_type)
        dims = [ir.AffineDimExpr.get(d) for d in range(rank)]
        maps = [ir.AffineMap.get(rank, 0, [ir.AffineConstantExpr.get(part), *dims]) for part in range(count)]
        generic = empty_generic([parts] * count, [start], [*maps, ir.AffineMap.get_identity(rank)], ["parallel"] * rank)
        with ir.InsertionPoint(generic.regions[0].blocks[0]):
            *terms, _ = generic.regions[0].blocks[0].arguments
            while len(terms) > 1:  # neighbours, then their sums
                pairs = [arith.addf(a, b) for a, b in zip(terms[::2], terms[1::2])]
                terms = [*pairs, *terms[2 * len(pairs) :]]
            linalg.YieldOp(terms)
        return generic.results[0]


def _check_open(kind: ir.RankedTensorType) -> None:
    if any(kind.is_dynamic_dim(d) for d in range(1, kind.rank)):
        raise UnsupportedError(f"a size of {kind} that is open until the call is not its first")


def _slot(ring: schedule.AllocRingOp) -> ir.Type:
    return schedule.Slot.get(ring.tile)
