"""The kernel of two products with weights between them (schedule_attention.py): for each tile of rows a loop over the
columns of the first product, which the second sums over.

A turn has so many columns of the first product's sums, computes weights of them, and multiplies these, from registers,
with as many rows of the second product's right operand. Meanwhile the next columns are multiplied, into the registers
that these had. It carries the second product's sums, and for each row the largest number so far and the sum of weights:
what was summed before is multiplied by what the largest number's growth makes of it (softmax_rows.py).

Values of more columns than registers hold sums of are taken in parts, each by a tile of its own. Numbers of f32 are
multiplied as tf32: the values lie along rows then, in the order in which threads hold weights (operand_layout.py).
Where products are to be as exact as f32's, all numbers are pieces of bf16, weights too (product_pieces.py), and no next
columns are multiplied meanwhile: registers hold the sums of a chunk's products instead.

Sources: Dao et al., FlashAttention (arXiv 2205.14135), for sums that are multiplied as the largest numbers grow; Shah
et al., FlashAttention-3 (arXiv 2407.08608), for products that run beside a softmax.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kitsune_mlir.contraction import Contraction, Roles
from kitsune_mlir.dialects import kitsune, schedule
from kitsune_mlir.generics import constant_index
from kitsune_mlir.mlir import arith, ir, scf
from kitsune_mlir.operations import element_type
from kitsune_mlir.planning.attention_tiles import FEED_REGISTERS, AttentionTiles
from kitsune_mlir.planning.open_sizes import is_open
from kitsune_mlir.planning.product_engines import CHUNK, COPY_ROWS
from kitsune_mlir.planning.target import Target

from .attention_body import Weighing
from .attention_places import Places
from .chain_tiles import added, columns_of_tile, part, zeros
from .kernel_build import (
    acquire_slot,
    cta_rank,
    fill_slot,
    new_agent,
    new_kernel,
    new_ring,
    turns,
    wait_slot,
    write_box,
)
from .of_places import Range
from .operand_layout import GRANULE, laid_out, paired, with_last, words_laid_out
from .product_follows import Follows, tiled
from .product_pieces import multiplied, pieces_of_tile
from .reshapes import reshaped, reshaped_as
from .row_groups import Member
from .split_batches import Stored, along, offsets_of
from .tensor_sizes import Shape, or_dynamic

_WARPS = 4
_STEP = 16  # columns of 16 bits that tensor cores multiply at a time
WORD = 4  # bytes of an f32

Rings = dict[str, schedule.AllocRingOp]


@dataclass(frozen=True)
class Attention:
    """What the kernel computes: two products, `scores` and `values`, the second of which is the operation `op`, and
    what follows it. Columns outside of `range`, which says it by rows, have no weight. `sizes` are b, m, n, k, and v:
    the columns of the second product; those and what `shape` says of tensors are numbers also where they are open until
    the call. Each number is multiplied as so many `pieces`. `beside` are those of `numbers`, operators on numbers of
    rows, whose results are wanted, too."""

    op: ir.Operation
    scores: Contraction
    values: Contraction
    follows: Follows
    stored: Stored | None
    range: Range
    sizes: dict[str, int]
    pieces: int
    shape: Shape
    target: Target
    name: str
    beside: Sequence[Member] = ()
    numbers: Sequence[Member] = ()


class AttentionKernel:
    """Builds the kernel at the insertion point."""

    def __init__(self, of: Attention, body: Weighing, tiles: AttentionTiles):
        self.of, self.body, self.tiles = of, body, tiles
        given = {
            "left": (of.scores.left, of.scores.left_roles),
            "right": (of.scores.right, of.scores.right_roles),
            "values": (of.values.right, of.values.right_roles),
        }
        self.element = element_type(of.scores.left)
        self.pieces = of.pieces
        if self.pieces > 1:
            self.element = ir.BF16Type.get()
        self.words = isinstance(self.element, ir.F32Type)  # that are multiplied as tf32 numbers
        self.chunk = CHUNK // 2 if self.words else CHUNK  # columns of a slot
        self.operands = {name: self._laid_out(name, value, roles) for name, (value, roles) in given.items()}
        has_batch = ir.RankedTensorType(of.op.results[0].type).rank == 3
        self.wide, self.places = tiles.wide, Places(of, body.plan, tiles, has_batch)
        k, along = of.sizes["k"], all(self.operands[name][1][-1] == "k" for name in ("left", "right"))
        step = _STEP // 2 if self.words else _STEP
        step = step if along else self.chunk  # boxes along columns have whole chunks of k, and those beside as many
        self.chunks = [(first, min(self.chunk, -(-(k - first) // step) * step)) for first in range(0, k, self.chunk)]
        self.engine = ir.StringAttr.get("wgmma")

    def _laid_out(self, name: str, value: ir.Value, roles: Roles) -> tuple[list[ir.Value], Roles]:
        """An operand's pieces as tensor copies and products take them: rows have a known length. Of tf32 they are along
        what is summed over, and those of the values in the order in which threads hold weights."""
        if not self.words:
            if is_open(self.of.shape(value)[-1]):
                own = roles.index("n" if name == "values" else "k")
                value, roles = with_last(value, own), (*roles[:own], *roles[own + 1 :], roles[own])
            return laid_out(value, self.pieces), roles
        order = tuple(sorted(roles, key="k".__eq__))
        if name != "values":
            return [words_laid_out(value, roles, GRANULE)], order
        return [paired(words_laid_out(value, roles, 8 * WORD))], order

    def build(self) -> list[ir.Value]:
        """What takes the place of the stored results of what follows, or of the second product's."""
        of, tiles, places = self.of, self.tiles, self.places
        places.ask([value for (value, *_), _ in self.operands.values()])
        # A loop over columns has a turn or more, unless there are no rows either.
        least = 1 if is_open(of.sizes["n"]) and of.sizes["n"] not in places.segments else None
        cluster = tiles.cluster if tiles.cluster > 1 else None
        counts = {"cluster": cluster, "least": least, "ctas": tiles.resident if tiles.resident > 1 else None}
        with new_kernel(of.name, of.target, tiles.price.us, tiles.price.limit, **counts) as built:
            dealt = places.deal()
            rings = {
                "left": self._ring("left", tiles.rows, "split", tiles.left_slots),
                "right": self._ring("right", tiles.columns, "all", tiles.right_slots),
                "values": self._ring("values", self.wide, "all", tiles.value_slots),
            }
            for name, copies, registers in (("feed", 1, FEED_REGISTERS), ("math", tiles.copies, tiles.registers)):
                does = self._feed if name == "feed" else self._compute
                with new_agent(name, copies, _WARPS, registers) as self.copy_number, turns(*dealt.results) as number:
                    does(rings, places.place(number))
        return self._results(built)

    def _results(self, built: schedule.KernelOp) -> list[ir.Value]:
        of, places, found = self.of, self.places, []
        ends = list(of.stored.operations)[-1:] if of.stored is not None else of.follows.stored or [of.op]
        rows_ = [*self.places.batch([of.sizes["b"]], places.segments), *places.segments[places.of_batch :]]
        for number, op in enumerate([*ends, *(member.op for member in of.beside)]):
            kind = ir.RankedTensorType(op.results[0].type)
            shape, own = list(kind.shape), [] if of.stored is None else list(of.stored.sizes)
            if number >= len(ends):
                own = rows_
            elif of.stored is None:
                own = [*rows_, of.sizes["v"]]
            type_ = ir.RankedTensorType.get(list(map(or_dynamic, own)), kind.element_type)
            sizes = list(map(places.size, filter(is_open, own))) if len(places.open) > 1 else []
            result = kitsune.result(built.results[0], number, type_, sizes)
            if sizes:
                found.append(reshaped_as(result, own, of.shape(op.results[0]), places.size))
            else:
                found.append(
                    reshaped(result, [None if kind.is_dynamic_dim(d) else size for d, size in enumerate(shape)])
                )
        return found

    # ---- rings

    def _ring(self, name: str, count: int, share: str, slots: int) -> schedule.AllocRingOp:
        box = "rows" if self.operands[name][1][-1] == "k" else "columns"
        return new_ring(name, (count, self.chunk), self.element, slots, share, box)

    def _wait(self, of: schedule.AllocRingOp, columns: int) -> list[ir.Value]:
        """The pieces of a chunk of so many columns, which boxes along columns all have."""
        return [wait_slot(of, columns=columns if of.layout == "rows" else None) for _ in range(self.pieces)]

    def _feed(self, rings: Rings, at: Sequence[ir.Value]) -> None:
        """Copies what a tile needs, in the order in which it does."""
        place = self.places.offsets(at)
        for first, columns in self.chunks:
            self._copy("left", rings, place | {"k": constant_index(first)}, "m", columns)
        lower, upper, step, _ = self.places.columns(at)
        if self.pieces > 1:
            with turns(lower, upper, step) as column:
                self._feed_right(rings, place, column)
                self._feed_values(rings, place, column)
            return
        self._feed_right(rings, place, lower)
        with turns(lower, arith.subi(upper, step), step) as column:
            self._feed_right(rings, place, arith.addi(column, step))
            self._feed_values(rings, place, column)
        self._feed_values(rings, place, self.places.last(lower, upper, step))

    def _feed_right(self, rings: Rings, place: dict[str, ir.Value], column: ir.Value) -> None:
        for first, columns in self.chunks:
            self._copy("right", rings, place | {"n": column, "k": constant_index(first)}, "n", columns)

    def _feed_values(self, rings: Rings, place: dict[str, ir.Value], column: ir.Value) -> None:
        for first in range(0, self.tiles.columns, self.chunk):
            row = column if not first else arith.addi(column, constant_index(first))
            self._copy("values", rings, place | {"k": row, "n": self.places.first_value}, "n", self.chunk)

    def _copy(self, name: str, rings: Rings, place: dict[str, ir.Value], own: str, columns: int) -> None:
        values, roles = self.operands[name]
        offsets = offsets_of(roles, place, self.places.size)
        for value in values:
            slot = acquire_slot(rings[name], columns=columns if rings[name].layout == "rows" else None)
            copy = fill_slot(slot, value, offsets, [along(roles, own), roles.index("k")], "tma")
            if self.words:
                copy.attributes["rounded"] = ir.UnitAttr.get()

    # ---- a tile

    def _compute(self, rings: Rings, at: list[ir.Value]) -> None:
        own = [*at[:-1], arith.addi(at[-1], arith.muli(self.copy_number, constant_index(COPY_ROWS)))]
        pieces = [self._wait(rings["left"], columns) for _, columns in self.chunks]
        left = [first for first, *_ in pieces]
        lower, upper, step, self.body.end = self.places.columns(at)
        begin = [part(zeros(COPY_ROWS, self.wide), 0, self.wide, wide=True), *self.body.begin()]
        exact = self.pieces > 1
        begin += [] if exact else self._multiply(rings, left)
        loop = scf.ForOp(lower, upper if exact else arith.subi(upper, step), step, begin)
        with ir.InsertionPoint(loop.body):
            carried, column = list(loop.inner_iter_args), loop.induction_variable
            if exact:
                scf.yield_(self._exact_turn(rings, pieces, own, column, carried))
            else:
                scf.yield_(self._turn(rings, left, own, column, carried, goes_on=True))
        found = list(loop.results)
        if not exact:
            found = self._turn(rings, left, own, self.places.last(lower, upper, step), found, goes_on=False)
        for slot in sum(pieces, []):
            schedule.ReleaseOp(slot, [])
        self._finish(own, *found)

    def _exact_turn(
        self,
        rings: Rings,
        left: Sequence[Sequence[ir.Value]],
        own: list[ir.Value],
        column: ir.Value,
        carried: list[ir.Value],
    ) -> list[ir.Value]:
        """So many columns, in pieces: the sums, the largest numbers and the sums of weights with them."""
        before, largest, weights = carried
        self.body.place(own, column, self.tiles.columns)
        if self.tiles.reads_ahead:
            self.body.read_ahead(self.body.weights.scores)
        widths = [columns for _, columns in self.chunks]
        scores = self._exact_product(rings["right"], left, widths, self.tiles.columns)
        made, grown, largest, weights = self.body.weigh(scores, largest, weights, ir.F32Type.get())
        made = part(made, 0, self.tiles.columns, wide=True)
        firsts = range(0, self.tiles.columns, self.chunk)
        total = self.body.scaled(before, grown)
        pieces = [pieces_of_tile(columns_of_tile(made, first, self.chunk), self.pieces) for first in firsts]
        total = self._exact_product(rings["values"], pieces, [self.chunk] * len(pieces), self.wide, total)
        return [total, largest, weights]

    def _exact_product(
        self,
        ring: schedule.AllocRingOp,
        lefts: Sequence[Sequence[ir.Value]],
        widths: Sequence[int],
        columns: int,
        total: ir.Value | None = None,
    ) -> ir.Value:
        """A total with the products of the pieces of chunks with those in a ring. Tensor cores cut off what they add:
        each chunk's sums begin at zero and are added outside of them."""
        acc = schedule.Acc.get(ir.RankedTensorType.get([COPY_ROWS, columns], ir.F32Type.get()))
        for left, width in zip(lefts, widths, strict=True):
            slots = self._wait(ring, width)
            tile = multiplied(left, slots, acc, self.engine)
            for slot in slots:
                schedule.ReleaseOp(slot, [])
            total = tile if total is None else part(added(total, tile), 0, columns, wide=True)
        assert total is not None
        return total

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
            self.body.read_ahead(self.body.weights.scores)
        scores = schedule.SettleOp(scores, schedule.tile_of(scores)).results[0]
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
            slots += self._wait(rings["values"], self.chunk)
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
            slots += self._wait(rings["right"], columns)
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
        of, place = self.of, self.places.offsets(own) | {"n": self.places.first_value}
        if self.tiles.cluster > 1:
            sums, largest, weights = self.body.met(sums, largest, weights, self.tiles.cluster)
            share = arith.muli(cta_rank(), constant_index(self.wide // self.tiles.cluster))
            place["n"] = arith.addi(place["n"], share)
        self.body.place(own, place["n"], self.tiles.columns)
        made = {of.op.results[0]: self.body.shared(sums, largest, weights)}
        for op in of.follows.ops:
            made[op.results[0]] = tiled(op, made, place)
        at = [*self.places.batch([place["b"]], own), *own[self.places.of_batch :]]
        if of.stored is not None:
            roles = of.stored.roles
            offsets, dims = offsets_of(roles, place, self.places.size), [along(roles, "m"), roles.index("n")]
        else:
            offsets, dims = [*at, place["n"]], [len(at) - 1, len(at)]
        ends = of.follows.stored or [of.op]
        for number, op in enumerate(ends):
            write_box(made[op.results[0]], offsets, number, dims)
        numbers = self.body.numbers_of(of.numbers)
        for number, member in enumerate(of.beside, len(ends)):
            write_box(numbers[member.op.results[0]], at, number, [len(at) - 1])
