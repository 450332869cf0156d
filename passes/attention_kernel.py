"""The kernel of two products with weights between them (schedule_attention.py): for each tile of rows a loop over the
columns of the first product, which the second sums over.

A turn has so many columns of the first product's sums, computes weights of them, and multiplies these, from registers,
with as many rows of the second product's right operand. Meanwhile the next columns are multiplied, into the registers
that these had. It carries the second product's sums, and for each row the largest number so far and the sum of weights:
what was summed before is multiplied by what the largest number's growth makes of it (softmax_rows.py).

Values of more columns than registers hold sums of are taken in parts, each by a tile of its own. Numbers of f32 are
multiplied as tf32: the values lie along rows then, in the order in which threads hold weights (operand_layout.py).

Sources: Dao et al., FlashAttention (arXiv 2205.14135), for sums that are multiplied as the largest numbers grow; Shah
et al., FlashAttention-3 (arXiv 2407.08608), for products that run beside a softmax.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeVar

from kitsune_mlir.contraction import Contraction, Roles
from kitsune_mlir.dialects import kitsune, schedule
from kitsune_mlir.mlir import arith, ir, scf, tensor
from kitsune_mlir.planning.attention_tiles import AttentionTiles
from kitsune_mlir.planning.open_sizes import factors, is_open
from kitsune_mlir.planning.product_tiles import CHUNK, COPY_ROWS
from kitsune_mlir.planning.target import Target

from .attention_body import Weighing
from .chain_tiles import part, zeros
from .of_places import Range
from .operand_layout import GRANULE, laid_out, paired, words_laid_out
from .product_follows import Follows, tiled
from .schedule_build import constant_index, i64, reshaped
from .split_batches import Stored, along, offsets_of
from .tensor_sizes import Shape, or_dynamic

_WARPS = 4
_FEED_REGISTERS, _REGISTERS = 24, 240
_STEP = 16  # columns of 16 bits that tensor cores multiply at a time
WORD = 4  # bytes of an f32

Rings = dict[str, schedule.AllocRingOp]
T = TypeVar("T")


@dataclass(frozen=True)
class Attention:
    """What the kernel computes: two products, `scores` and `values`, the second of which is the operation `op`, and
    what follows it. Columns outside of `range`, which says it by rows, have no weight. `sizes` are b, m, n, k, and v:
    the columns of the second product; those and what `shape` says of tensors are numbers also where they are open until
    the call."""

    op: ir.Operation
    scores: Contraction
    values: Contraction
    follows: Follows
    stored: Stored | None
    range: Range
    sizes: dict[str, int]
    shape: Shape
    target: Target
    name: str


class AttentionKernel:
    """Builds the kernel at the insertion point."""

    def __init__(self, of: Attention, body: Weighing, tiles: AttentionTiles):
        self.of, self.body, self.tiles = of, body, tiles
        given = {
            "left": (of.scores.left, of.scores.left_roles),
            "right": (of.scores.right, of.scores.right_roles),
            "values": (of.values.right, of.values.right_roles),
        }
        self.element = ir.RankedTensorType(of.scores.left.type).element_type
        self.words = isinstance(self.element, ir.F32Type)  # that are multiplied as tf32 numbers
        self.chunk = CHUNK // 2 if self.words else CHUNK  # columns of a slot
        self.operands = {name: self._laid_out(name, value, roles) for name, (value, roles) in given.items()}
        self.segments = [size for size in body.plan.segments or [] if size is not None]
        cuts, m = body.plan.cuts, of.sizes["m"]
        self.of_batch = cuts.index(m) + 1 if m in cuts else 0  # segments of rows that are the batch
        self.wide, self.parts = tiles.wide, -(-of.sizes["v"] // tiles.wide)  # of the values' columns
        k, along = of.sizes["k"], all(self.operands[name][1][-1] == "k" for name in ("left", "right"))
        step = _STEP // 2 if self.words else _STEP
        step = step if along else self.chunk  # boxes along columns have whole chunks of k, and those beside as many
        self.chunks = [(first, min(self.chunk, -(-(k - first) // step) * step)) for first in range(0, k, self.chunk)]
        self.has_batch = ir.RankedTensorType(of.op.results[0].type).rank == 3
        self.is_uneven = (of.range.first, of.range.last).count(None) == 1  # some tiles have more columns than others
        self.order = list(range(len(self.segments)))
        if self.is_uneven:
            self.order = [self.order[-1], *self.order[:-1]]
        self.engine = ir.StringAttr.get("wgmma")

    def _laid_out(self, name: str, value: ir.Value, roles: Roles) -> tuple[ir.Value, Roles]:
        """An operand as tensor copies and products take it. Of f32 rows are along what is summed over, and those of the
        values in the order in which threads hold weights."""
        if not self.words:
            return laid_out(value, 1)[0], roles
        order = tuple(sorted(roles, key="k".__eq__))
        if name != "values":
            return words_laid_out(value, roles, GRANULE), order
        return paired(words_laid_out(value, roles, 8 * WORD)), order

    def build(self) -> list[ir.Value]:
        """What takes the place of the stored results of what follows, or of the second product's."""
        of, tiles, index, f32 = self.of, self.tiles, ir.IndexType.get(), ir.F32Type.get()
        self.open = {size: self._asked(size) for size in (*self.segments, of.sizes["n"]) if is_open(size)}
        self.body.open_columns = self.open.get(of.sizes["n"])
        kernel = schedule.KernelOp(ir.StringAttr.get(of.name), kitsune.Outputs.get())
        kernel.attributes["target"] = ir.StringAttr.get(of.target.name)
        kernel.attributes["predicted_us"] = ir.FloatAttr.get(f32, tiles.price.us)
        kernel.attributes["limit"] = ir.StringAttr.get(tiles.price.limit)
        if is_open(of.sizes["n"]) and not any(map(is_open, self.segments)):  # a loop over columns has a turn or more
            kernel.attributes["least"] = i64(1)
        with ir.InsertionPoint(kernel.regions[0].blocks.append()):
            last = len(self.segments) - 1
            extents = [self._size(self.segments[i]) for i in self.order]
            boxes = [tiles.rows if i == last else 1 for i in self.order]
            if self.parts > 1:
                extents.append(constant_index(of.sizes["v"]))
                boxes.append(self.wide)
            dealt = schedule.TilesOp(extents, *[index] * 3)
            dealt.attributes["tile"] = ir.DenseI64ArrayAttr.get(boxes)
            rings = {
                "left": self._ring("left", tiles.rows, "split", tiles.left_slots),
                "right": self._ring("right", tiles.columns, "all", tiles.right_slots),
                "values": self._ring("values", self.wide, "all", tiles.value_slots),
            }
            for name, copies, registers in (("feed", 1, _FEED_REGISTERS), ("math", tiles.copies, _REGISTERS)):
                agent = schedule.AgentOp(ir.StringAttr.get(name), *map(i64, (copies, _WARPS, registers)))
                with ir.InsertionPoint(agent.regions[0].blocks.append(index)):
                    self.copy_number = agent.regions[0].blocks[0].arguments[0]
                    loop = scf.ForOp(*dealt.results, [])
                    with ir.InsertionPoint(loop.body):
                        at = self._place(self._of_values(loop.induction_variable))
                        (self._feed if name == "feed" else self._compute)(rings, at)
                        scf.yield_([])
        return self._results(kernel)

    def _results(self, kernel: schedule.KernelOp) -> list[ir.Value]:
        of, found = self.of, []
        ends = list(of.stored.operations)[-1:] if of.stored is not None else of.follows.stored or [of.op]
        for number, op in enumerate(ends):
            kind = ir.RankedTensorType(op.results[0].type)
            shape, own = list(kind.shape), [] if of.stored is None else list(of.stored.sizes)
            if of.stored is None:
                own = [*self._batch([of.sizes["b"]], self.segments), *self.segments[self.of_batch :], of.sizes["v"]]
            type_ = ir.RankedTensorType.get(list(map(or_dynamic, own)), kind.element_type)
            result = kitsune.ResultOp(kernel.results[0], i64(number), type_).results[0]
            found.append(reshaped(result, [None if kind.is_dynamic_dim(d) else size for d, size in enumerate(shape)]))
        return found

    def _batch(self, whole: list[T], segments: list[T]) -> list[T]:
        """What of the batch is a dimension of results: all of it, or, where it is open until the call, each segment."""
        if not self.has_batch:
            return []
        return segments[: self.of_batch] if is_open(self.of.sizes["b"]) else whole

    # ---- sizes

    def _size(self, size: int) -> ir.Value:
        """A size: a number, one that is open until the call, or their product."""
        known, open_ = factors(size)
        if not open_:
            return constant_index(known)
        (found,) = (self.open[one] for one in open_)
        return found if known == 1 else arith.muli(found, constant_index(known))

    def _asked(self, size: int) -> ir.Value:
        """One that is open until the call, as a tensor that is copied has it."""
        return next(
            tensor.dim(value, constant_index(d))
            for value, _ in self.operands.values()
            for d, own in enumerate(self.of.shape(value))
            if own == size
        )

    # ---- places

    def _of_values(self, number: ir.Value) -> ir.Value:
        """Has the first column of the values of a tile known as `first_value`; the tile's number without their part."""
        self.first_value = constant_index(0)
        if self.parts == 1:
            return number
        part_number = arith.remui(number, constant_index(self.parts))
        self.first_value = arith.muli(part_number, constant_index(self.wide))
        return arith.divui(number, constant_index(self.parts))

    def _place(self, number: ir.Value) -> list[ir.Value]:
        """Where a tile begins in each segment of the rows. Tiles of many columns come first: else the last CTAs to end
        would be those that begin with one of them late."""
        found, rest, last = {}, number, len(self.segments) - 1
        for i in reversed(self.order[1:]):
            found[i] = arith.remui(rest, self._count(i))
            rest = arith.divui(rest, self._count(i))
        found[self.order[0]] = rest
        if self.is_uneven and self.of.range.last is not None:
            found[last] = arith.subi(arith.subi(self._count(last), constant_index(1)), found[last])
        found[last] = arith.muli(found[last], constant_index(self.tiles.rows))
        return [found[i] for i in range(len(self.segments))]

    def _count(self, segment: int) -> ir.Value:
        """The tiles along a segment of the rows."""
        size, each = self.segments[segment], self.tiles.rows if segment == len(self.segments) - 1 else 1
        if not is_open(size):
            return constant_index(-(-size // each))
        return self._size(size) if each == 1 else arith.ceildivui(self._size(size), constant_index(each))

    def _offsets(self, at: Sequence[ir.Value]) -> dict[str, ir.Value]:
        """The number in the batch, and the row, of a place in the segments of the rows; and that row as the first one
        of its segment and its place in it."""
        *outer, inner = at
        apart = self._flat([*outer, constant_index(0)], self.of_batch, len(at))
        row = arith.addi(apart, inner)
        return {"b": self._flat(at, 0, self.of_batch), "m": row, "apart": apart, "together": inner}

    def _flat(self, at: Sequence[ir.Value], first: int, end: int) -> ir.Value:
        found = constant_index(0) if first == end else at[first]
        for i in range(first, end):
            rest = prod(self.segments[i + 1 : end])
            term = at[i] if rest == 1 else arith.muli(at[i], self._size(rest))
            found = term if i == first else arith.addi(found, term)
        return found

    def _columns(self, at: Sequence[ir.Value]) -> tuple[ir.Value, ir.Value, ir.Value]:
        """The bounds and the step of the loop over columns that a tile has."""
        first, last, row = self.of.range.first, self.of.range.last, at[-1]
        step = constant_index(self.tiles.columns)
        lower, upper = constant_index(0), self._size(self.of.sizes["n"])
        if last is not None:
            upper = arith.minui(upper, arith.addi(row, constant_index(self.tiles.rows + last)))
        if first is not None and first < 0:
            lower = arith.subi(row, arith.minui(row, constant_index(-first)))
        elif first is not None:
            lower = arith.addi(row, constant_index(first))
        if first is not None:
            lower = arith.muli(arith.divui(lower, step), step)
        return lower, upper, step

    @staticmethod
    def _last(lower: ir.Value, upper: ir.Value, step: ir.Value) -> ir.Value:
        """Where the last turn of a loop begins, which has one or more."""
        turns = arith.divui(arith.subi(arith.subi(upper, constant_index(1)), lower), step)
        return arith.addi(lower, arith.muli(turns, step))

    # ---- rings

    def _ring(self, name: str, count: int, share: str, slots: int) -> schedule.AllocRingOp:
        tile = ir.RankedTensorType.get([count, self.chunk], self.element)
        box = "rows" if self.operands[name][1][-1] == "k" else "columns"
        names = map(ir.StringAttr.get, (name, "smem", box, share))
        return schedule.AllocRingOp(*names, kitsune.ring_type(tile, slots))

    def _slot(self, ring: schedule.AllocRingOp, columns: int) -> ir.Type:
        """The slot of a chunk of so many columns, which boxes along columns all have."""
        tile = ir.RankedTensorType(ring.results[0].type.tile)
        own = columns if ring.layout == "rows" else tile.shape[1]
        return schedule.Slot.get(ir.RankedTensorType.get([tile.shape[0], own], tile.element_type))

    def _wait(self, ring: schedule.AllocRingOp, columns: int) -> ir.Value:
        return schedule.WaitOp(ring.results[0], self._slot(ring, columns)).results[0]

    def _feed(self, rings: Rings, at: Sequence[ir.Value]) -> None:
        """Copies what a tile needs, in the order in which it does."""
        place = self._offsets(at)
        for first, columns in self.chunks:
            self._copy("left", rings, place | {"k": constant_index(first)}, "m", columns)
        lower, upper, step = self._columns(at)
        self._feed_right(rings, place, lower)
        loop = scf.ForOp(lower, arith.subi(upper, step), step, [])
        with ir.InsertionPoint(loop.body):
            self._feed_right(rings, place, arith.addi(loop.induction_variable, step))
            self._feed_values(rings, place, loop.induction_variable)
            scf.yield_([])
        self._feed_values(rings, place, self._last(lower, upper, step))

    def _feed_right(self, rings: Rings, place: dict[str, ir.Value], column: ir.Value) -> None:
        for first, columns in self.chunks:
            self._copy("right", rings, place | {"n": column, "k": constant_index(first)}, "n", columns)

    def _feed_values(self, rings: Rings, place: dict[str, ir.Value], column: ir.Value) -> None:
        for first in range(0, self.tiles.columns, self.chunk):
            row = column if not first else arith.addi(column, constant_index(first))
            self._copy("values", rings, place | {"k": row, "n": self.first_value}, "n", self.chunk)

    def _copy(self, name: str, rings: Rings, place: dict[str, ir.Value], own: str, columns: int) -> None:
        value, roles = self.operands[name]
        slot = schedule.AcquireOp(rings[name].results[0], self._slot(rings[name], columns)).results[0]
        offsets = offsets_of(roles, place, self._size)
        copy = schedule.CopyOp(slot, value, offsets, ir.StringAttr.get("tma"), schedule.Token.get())
        copy.attributes["dims"] = ir.DenseI64ArrayAttr.get([along(roles, own), roles.index("k")])
        if self.words:
            copy.attributes["rounded"] = ir.UnitAttr.get()
        schedule.CommitOp(slot, [copy.results[0]])

    # ---- a tile

    def _compute(self, rings: Rings, at: list[ir.Value]) -> None:
        own = [*at[:-1], arith.addi(at[-1], arith.muli(self.copy_number, constant_index(COPY_ROWS)))]
        left = [self._wait(rings["left"], columns) for _, columns in self.chunks]
        lower, upper, step = self._columns(at)
        sums = part(zeros(COPY_ROWS, self.wide), 0, self.wide, wide=True)
        begin = [sums, *self.body.begin(), *self._multiply(rings, left)]
        loop = scf.ForOp(lower, arith.subi(upper, step), step, begin)
        with ir.InsertionPoint(loop.body):
            carried = list(loop.inner_iter_args)
            scf.yield_(self._turn(rings, left, own, loop.induction_variable, carried, goes_on=True))
        last = self._last(lower, upper, step)
        found = self._turn(rings, left, own, last, list(loop.results), goes_on=False)
        for slot in left:
            schedule.ReleaseOp(slot, [])
        self._finish(own, *found)

    def _turn(
        self,
        rings: Rings,
        left: Sequence[ir.Value],
        own: list[ir.Value],
        column: ir.Value,
        carried: list[ir.Value],
        goes_on: bool,
    ) -> list[ir.Value]:
        """So many columns: the sums, the largest numbers and the sums of weights with them; where it `goes_on` also the
        next columns' products, which run beside what is done with these."""
        before, largest, weights, scores, *chunks = carried
        self.body.place(own, column, self.tiles.columns)
        if self.tiles.reads_ahead:
            self.body.read_ahead()
        scores = schedule.SettleOp(scores, ir.TypeAttr(scores.type.elem).value).results[0]
        self._release(chunks[: len(self.chunks)], chunks[len(self.chunks) :])
        following: list[ir.Value] = []
        if goes_on:  # in the same registers
            held, scores = scores, part(scores, 0, self.tiles.columns, wide=True)
            following = self._multiply(rings, left, [held])
        packed, grown, largest, weights = self.body.weigh(scores, largest, weights, self.element)
        wide = part(self.body.scaled(before, grown), 0, self.wide, wide=True)
        total = schedule.SumsOp([wide], schedule.Acc.get(ir.RankedTensorType(before.type)))
        total.attributes["begin"] = ir.UnitAttr.get()
        sums, slots, tokens = total.results[0], [], []
        for first in range(0, self.tiles.columns, self.chunk):
            slots.append(self._wait(rings["values"], self.chunk))
            sums, token = self._product(sums, part(packed, first, self.chunk), slots[-1])
            tokens.append(token)
        sums = schedule.SettleOp(sums, before.type).results[0]
        self._release(slots, tokens)
        return [sums, largest, weights, *following]

    def _multiply(self, rings: Rings, left: Sequence[ir.Value], over: Sequence[ir.Value] = ()) -> list[ir.Value]:
        """The products of a tile with the next columns: their sums, the slots and the products' tokens."""
        tile = ir.RankedTensorType.get([COPY_ROWS, self.tiles.columns], ir.F32Type.get())
        sums, slots, tokens = schedule.SumsOp(over, schedule.Acc.get(tile)).results[0], [], []
        for a, (_, columns) in zip(left, self.chunks, strict=True):
            slots.append(self._wait(rings["right"], columns))
            sums, token = self._product(sums, a, slots[-1])
            tokens.append(token)
        return [sums, *slots, *tokens]

    def _product(self, sums: ir.Value, left: ir.Value, right: ir.Value) -> tuple[ir.Value, ir.Value]:
        made = schedule.ProductOp(sums, left, right, self.engine, sums.type, schedule.Token.get())
        return made.results[0], made.results[1]

    @staticmethod
    def _release(slots: Sequence[ir.Value], tokens: Sequence[ir.Value]) -> None:
        for slot, token in zip(slots, tokens, strict=True):
            schedule.ReleaseOp(slot, [token])

    def _finish(self, own: list[ir.Value], sums: ir.Value, largest: ir.Value, weights: ir.Value) -> None:
        """Divides the sums as weights are divided, computes what follows, and writes it."""
        of, place = self.of, self._offsets(own) | {"n": self.first_value}
        self.body.place(own, place["n"], self.tiles.columns)
        made = {of.op.results[0]: self.body.shared(sums, largest, weights)}
        for op in of.follows.ops:
            made[op.results[0]] = tiled(op, made, place)
        if of.stored is not None:
            roles = of.stored.roles
            offsets, dims = offsets_of(roles, place, self._size), [along(roles, "m"), roles.index("n")]
        else:
            offsets = [*self._batch([place["b"]], own), *own[self.of_batch :], place["n"]]
            dims = [len(offsets) - 2, len(offsets) - 1]
        for number, op in enumerate(of.follows.stored or [of.op]):
            write = schedule.WriteOp(made[op.results[0]], offsets, i64(number))
            write.attributes["dims"] = ir.DenseI64ArrayAttr.get(dims)
