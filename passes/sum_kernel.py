"""The kernel of a pipeline that sums over its rows, at the schedule level (schedule_chains.py).

Its tiles are blocks of the sum, each of so many rows of the call: a part. An agent copies 64 rows at a time, one of two
warpgroups multiplies them, and keeps the sums of a block in its registers; behind the last rows it writes them, and a
linalg.generic around the kernel adds the parts up. A right tile that is not just loaded another agent computes, chunk
by chunk of 64 columns, and puts into a ring for both products: that across the rows, and the one beside it.

    feed:  loads, left            ->  rings in shared memory
    make:  loads                  ->  the right tile's chunks, in a ring
    math:  left, chunks           ->  sums of a block, to its part at the end
           chunks, weights        ->  rows of the product beside

Every part is an output's of its own, so CTAs wait for nobody else.
"""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir import rows
from kitsune_mlir.chains.sums import BLOCK_ROWS, CHUNK, COPIES, TILE_ROWS, Summation, whole_of
from kitsune_mlir.dialects import kitsune, schedule
from kitsune_mlir.dialects.kernels import COPY_ROWS, OUTBOX_BYTES, outboxes_of
from kitsune_mlir.dialects.roles import FillOp
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.generics import constant_index, generic
from kitsune_mlir.mlir import arith, ir, scf, tensor
from kitsune_mlir.operations import element_type
from kitsune_mlir.planning.cost import adding_us
from kitsune_mlir.planning.place import parts_of
from kitsune_mlir.planning.target import Target
from kitsune_mlir.traffic import tensor_bytes

from .chain_kernel import kernel_of
from .kernel_build import acquire_slot, deal_tiles, fill_slot, new_agent, new_ring, turns, wait_slot, write_box
from .operand_layout import weight_laid_out
from .partial_sums import summed
from .product_follows import tiled

_WARPS = 4
_REGISTERS = (24, 240)  # of a thread that feeds, that multiplies
_MAKING = (24, 200, 88)  # the same, and that computes tiles
_BOX_BYTES = TILE_ROWS * CHUNK * 2
_BARRIERS = 2048  # bytes
# What is loaded to be computed with comes first: with as many bytes as may be on their way from memory.
MOST_SLOTS = {"left": 4, "right": 6, "load": 12, "made": 4}
LEAST_SLOTS = 2
PARTIAL, BESIDE = 0, 1  # the kernel's outputs


class SumKernel:
    """Raises UnsupportedError for a pipeline that has no such kernel on the target; what it takes it builds, once the
    pipeline is placed so."""

    def __init__(self, pipeline: kitsune.PipelineOp, target: Target):
        self.pipeline, self.target, self.plan = pipeline, target, Summation(pipeline)
        if self.plan.blocks > target.sms:
            raise UnsupportedError(
                f"a sum of {self.plan.m} by {self.plan.n} has more blocks than {target.name} has SMs"
            )
        self.rows = rows.shape_of(whole_of(self.plan.left))[0]
        if not self.rows:
            raise UnsupportedError("there are no rows to sum over")
        self.chunks = self.plan.columns // CHUNK if self.plan.computes else 1
        self.slots = self._slots()

    @property
    def parts(self) -> int:
        """Parts of the rows: one for each group of CTAs that have all blocks."""
        known = None if self.rows == rows.DYNAMIC else self.rows
        return parts_of(known, TILE_ROWS, self.plan.blocks, self.target)

    def _slots(self) -> dict[str, int]:
        """How many slots rings of each kind have: as many as shared memory holds, those of loads first."""
        plan = self.plan
        room, sizes = self.target.shared_bytes - _BARRIERS, {"left": COPIES * _BOX_BYTES}
        if plan.computes:
            sizes |= {"load": len(plan.loads) * _BOX_BYTES, "made": _BOX_BYTES}
        else:
            sizes["right"] = plan.columns // CHUNK * _BOX_BYTES
        if plan.beside is not None:
            room -= COPIES * self._outboxes * OUTBOX_BYTES + self.chunks * self._weight_rows * CHUNK * 2
        found = dict.fromkeys(sizes, LEAST_SLOTS)
        room -= LEAST_SLOTS * sum(sizes.values())
        if room < 0:
            raise UnsupportedError(f"shared memory does not hold {LEAST_SLOTS} tiles of a sum of {plan.m} by {plan.n}")
        grows = True
        while grows:
            grows = False
            for kind in sorted(sizes, key=lambda kind: found[kind] / MOST_SLOTS[kind]):
                if found[kind] < MOST_SLOTS[kind] and sizes[kind] <= room:
                    found[kind], room, grows = found[kind] + 1, room - sizes[kind], True
                    break
        return found

    @property
    def _outboxes(self) -> int:
        """The boxes through which rows of the product beside leave."""
        assert self.plan.beside is not None
        element = element_type(self.plan.beside.stored)
        return outboxes_of(ir.RankedTensorType.get([COPY_ROWS, self.plan.beside.columns], element))

    @property
    def _weight_rows(self) -> int:
        """Columns of the product beside that a CTA has."""
        assert self.plan.beside is not None
        return COPIES * self.plan.beside.columns

    def build(self) -> None:
        """The kernel at the insertion point, and what adds its parts up, in the place of the pipeline's results."""
        plan, f32 = self.plan, ir.F32Type.get()
        with ir.InsertionPoint(self.pipeline):
            self.weights = weight_laid_out(plan.beside.op.operands[1]) if plan.beside is not None else None
        kernel = kernel_of(self.pipeline)
        shape = [plan.n, plan.m] if plan.transposed else [plan.m, plan.n]
        kind = ir.RankedTensorType.get([self.parts, *shape], f32)
        adding = adding_us(tensor_bytes(plan.total.results[0]), self.parts, self.target)
        alone = ir.FloatAttr(kernel.attributes["predicted_us"]).value - adding
        kernel.attributes["predicted_us"] = ir.FloatAttr.get(ir.F64Type.get(), round(alone, 3))
        with ir.InsertionPoint(kernel.regions[0].blocks.append()):
            self._emit()
        parts = kitsune.result(kernel.results[0], PARTIAL, kind)
        plan.total.results[0].replace_all_uses_with(summed(parts))
        if plan.beside is not None:
            result = plan.beside.result.results[0]
            made = kitsune.result(kernel.results[0], BESIDE, result.type)
            result.replace_all_uses_with(made)

    def _emit(self) -> None:
        """Tiles, rings and agents."""
        plan, whole = self.plan, whole_of(self.plan.left)
        self.extent = tensor.dim(whole, constant_index(0)) if self.rows == rows.DYNAMIC else constant_index(self.rows)
        dealt = deal_tiles([constant_index(n) for n in (self.parts, plan.m, plan.n)], [1, BLOCK_ROWS, plan.columns])
        self.rings = self._alloc_rings()
        names = ("feed", "math", "make") if plan.computes else ("feed", "math")
        does = {"feed": self._feed, "math": self._multiply, "make": self._make}
        for name, count in zip(names, _MAKING if plan.computes else _REGISTERS, strict=False):
            copies = COPIES if name == "math" else 1
            with new_agent(name, copies, _WARPS, count) as self.copy, turns(*dealt.results) as number:
                self._place(number)
                does[name]()

    def _place(self, number: ir.Value) -> None:
        """A tile: the first row and column of its block, its part, and where the rows of that begin and end."""
        plan = self.plan
        self.column, self.row = constant_index(0), constant_index(0)
        if plan.across > 1:
            across = constant_index(plan.across)
            self.column = arith.muli(arith.remui(number, across), constant_index(plan.columns))
            number = arith.divui(number, across)
        if plan.down > 1:
            down = constant_index(plan.down)
            self.block = arith.remui(number, down)
            self.row = arith.muli(self.block, constant_index(BLOCK_ROWS))
            number = arith.divui(number, down)
        else:
            self.block = constant_index(0)
        self.part = number
        tile = constant_index(TILE_ROWS)
        if self.rows == rows.DYNAMIC:
            each = arith.muli(arith.ceildivui(self.extent, constant_index(self.parts * TILE_ROWS)), tile)
        else:
            each = constant_index(-(-self.rows // (self.parts * TILE_ROWS)) * TILE_ROWS)
        first = arith.muli(number, each)
        self.range = first, arith.minui(arith.addi(first, each), self.extent), tile

    def _alloc_rings(self) -> dict[str, schedule.AllocRingOp]:
        plan, element = self.plan, element_type(self.plan.right)

        found = {"left": new_ring("left", (BLOCK_ROWS, CHUNK), element, self.slots["left"], "split", "columns")}
        if not plan.computes:
            right = new_ring("right", (plan.columns, CHUNK), element, self.slots["right"], box="columns")
            return found | {"right": right}
        for name in (f"load{i}" for i in range(len(plan.loads))):
            found[name] = new_ring(name, (TILE_ROWS, CHUNK), element, self.slots["load"])
        found["made"] = new_ring("made", (TILE_ROWS, CHUNK), element, self.slots["made"])
        if plan.beside is not None:
            box = "rows" if plan.beside.turned else "columns"
            found["weights"] = new_ring("weights", (self._weight_rows, CHUNK), element, self.chunks, "split", box)
        return found

    # ---- what agents do with a tile

    def _feed(self) -> None:
        plan = self.plan
        if plan.beside is not None:
            first = arith.muli(self.block, constant_index(self._weight_rows))
            for chunk in range(self.chunks):
                at = [first, constant_index(chunk * CHUNK)]
                self._copy("weights", self.weights, at if plan.beside.turned else at[::-1], plan.beside.turned)
        first, last, step = self.range
        if self._overlaps:
            self._copies(first)
            first = arith.addi(first, step)
        with turns(first, last, step) as row:
            self._copies(row)

    def _copies(self, row: ir.Value) -> None:
        """64 rows of all tensors."""
        plan = self.plan
        self._copy("left", whole_of(plan.left), [row, self.row], False)
        if not plan.computes:
            self._copy("right", whole_of(plan.right), [row, self.column], False)
        for chunk in range(self.chunks if plan.computes else 0):
            at = [row, arith.addi(self.column, constant_index(chunk * CHUNK))]
            for number, load in enumerate(plan.loads):
                self._copy(f"load{number}", whole_of(load), at, True)

    @property
    def _overlaps(self) -> bool:
        """Whether a product alone goes on beside the next one, whose slots are released behind that: the first then
        stands before the loop over the others, of which there is one in each part where rows are known."""
        return not self.plan.computes and self.rows != rows.DYNAMIC

    def _copy(self, name: str, source: ir.Value, at: Sequence[ir.Value], by_rows: bool) -> None:
        """Copies a box into the next slot, the tensor's first dimension the tile's first where it is `by_rows`."""
        fill_slot(acquire_slot(self.rings[name]), source, at, [0, 1] if by_rows else [1, 0], "tma")

    def _make(self) -> None:
        """The right tile's chunks."""
        with turns(*self.range):
            for _ in range(self.chunks):
                made: dict[int, ir.Value] = {}
                for number, load in enumerate(self.plan.loads):
                    loaded = self.rings[f"load{number}"]
                    slot = wait_slot(loaded)
                    made[hash(load)] = schedule.ReadOp(slot, [], loaded.tile).results[0]
                    schedule.ReleaseOp(slot, [])
                slot = acquire_slot(self.rings["made"])
                FillOp(slot, _computed(self.plan.right, made), constant_index(0))
                schedule.CommitOp(slot, [])

    def _multiply(self) -> None:
        plan = self.plan
        width = CHUNK if plan.computes else plan.columns
        tile = ir.RankedTensorType.get([COPY_ROWS, width], ir.F32Type.get())
        sums = [schedule.SumsOp([], schedule.Acc.get(tile)).results[0] for _ in range(self.chunks)]
        totals, behind = self._overlapped(sums[0]) if self._overlaps else self._one_by_one(sums)
        row = arith.addi(self.row, arith.muli(self.copy, constant_index(COPY_ROWS)))
        for chunk, total in enumerate(totals):
            value = schedule.SettleOp(total, tile).results[0]
            column = arith.addi(self.column, constant_index(chunk * width))
            place = [column, row] if plan.transposed else [row, column]
            write_box(value, [self.part, *place], PARTIAL, [2, 1] if plan.transposed else [1, 2])
        for slot, *done in behind:
            schedule.ReleaseOp(slot, done)

    def _overlapped(self, sums: ir.Value) -> tuple[list[ir.Value], list[list[ir.Value]]]:
        """The sums of all rows, and what is to be released behind them: slots with tokens."""
        first, last, step = self.range
        loop = scf.ForOp(arith.addi(first, step), last, step, self._product(sums))
        with ir.InsertionPoint(loop.body):
            sums, *slots, done = loop.inner_iter_args
            made = self._product(sums)
            for slot in slots:
                schedule.ReleaseOp(slot, [done])
            scf.yield_(made)
        total, left, right, done = loop.results
        return [total], [[left, done], [right, done]]

    def _product(self, sums: ir.Value) -> list[ir.Value]:
        """Multiplies the next 64 rows of both operands: the sums, the slots, the product's token."""
        left, right = (wait_slot(self.rings[name]) for name in ("left", "right"))
        token = schedule.Token.get()
        total, done = schedule.ProductOp(sums, left, right, ir.StringAttr.get("wgmma"), sums.type, token).results
        return [total, left, right, done]

    def _one_by_one(self, sums: list[ir.Value]) -> tuple[list[ir.Value], list[list[ir.Value]]]:
        """The same, each 64 rows' slots released with them."""
        beside = self.plan.beside is not None
        weights = [wait_slot(self.rings["weights"]) for _ in range(self.chunks)] if beside else []
        loop = scf.ForOp(*self.range, sums)
        with ir.InsertionPoint(loop.body):
            scf.yield_(self._rows(loop.induction_variable, list(loop.inner_iter_args), weights))
        return list(loop.results), [[slot] for slot in weights]

    def _rows(self, row: ir.Value, sums: list[ir.Value], weights: Sequence[ir.Value]) -> list[ir.Value]:
        """The sums once 64 rows are multiplied. Each chunk is released behind the next one's products."""
        plan, engine, token = self.plan, ir.StringAttr.get("wgmma"), schedule.Token.get()
        beside: ir.Value | None = None
        if plan.beside is not None:
            whole = ir.RankedTensorType.get([COPY_ROWS, plan.beside.columns], ir.F32Type.get())
            beside = schedule.SumsOp([], schedule.Acc.get(whole)).results[0]
        left, done, before = wait_slot(self.rings["left"]), list[ir.Value](), list[ir.Value]()
        for chunk, acc in enumerate(sums):
            right = wait_slot(self.rings["made" if plan.computes else "right"])
            product = schedule.ProductOp(acc, left, right, engine, acc.type, token)
            if plan.computes:
                product.attributes["turned"] = ir.UnitAttr.get()
            sums[chunk], own = product.results
            done.append(own)
            after = [right, own]
            if beside is not None:
                beside, own = schedule.ProductOp(beside, right, weights[chunk], engine, beside.type, token).results
                after.append(own)
            if before:
                schedule.ReleaseOp(before[0], before[1:])
            before = after
        schedule.ReleaseOp(before[0], before[1:])
        schedule.ReleaseOp(left, done)
        if beside is not None:
            self._store_beside(row, schedule.SettleOp(beside, whole).results[0])
        return sums

    def _store_beside(self, row: ir.Value, tile: ir.Value) -> None:
        """What becomes of 64 rows of the product beside."""
        beside = self.plan.beside
        assert beside is not None
        own = arith.addi(arith.muli(self.block, constant_index(COPIES)), self.copy)
        at = {"m": row, "n": arith.muli(own, constant_index(beside.columns))}
        made = {beside.op.results[0]: tile}

        def value(of: ir.Value) -> ir.Value:
            if of not in made:
                op = rows.producer(of)
                for operand in rows.Structured(op).given:
                    if _stands_beside(operand, beside.op):
                        value(operand)
                made[of] = tiled(op, made, at)
            return made[of]

        write_box(value(beside.stored), [at["m"], at["n"]], BESIDE, [0, 1], schedule.COPIED)


def _stands_beside(value: ir.Value, product: ir.Operation) -> bool:
    """Whether a product's stage computes a value."""
    op = rows.producer(value)
    return op is not None and op.parent == product.parent


def _computed(tile: ir.Value, made: dict[int, ir.Value]) -> ir.Value:
    """A tile on chunks of what it is computed from, element by element."""
    if hash(tile) not in made:
        op, identity = rows.producer(tile), ir.AffineMap.get_identity(2)
        inputs = [_computed(operand, made) for operand in rows.Structured(op).given]
        element = element_type(tile)
        start = tensor.empty([TILE_ROWS, CHUNK], element)
        maps, body = [identity] * (len(inputs) + 1), rows.Structured(op).body
        made[hash(tile)] = generic(inputs, [start], maps, ["parallel"] * 2, body).results[0]
    return made[hash(tile)]
