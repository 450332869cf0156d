"""Where the tiles of attention lie (attention_kernel.py): in the batch, in segments of its rows, and which columns of
scores they have. Sizes may be open until the call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, TypeVar

from kitsune_mlir.dialects import schedule
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.generics import constant_index
from kitsune_mlir.mlir import arith, ir, tensor
from kitsune_mlir.planning.attention_tiles import AttentionTiles
from kitsune_mlir.planning.back_to_back_tiles import BackToBackTiles
from kitsune_mlir.planning.open_sizes import factors, is_open, open_part
from kitsune_mlir.planning.product_engines import COPY_ROWS

from .kernel_build import cta_rank
from .of_places import Range, is_of_places, range_of
from .row_groups import Member, root
from .row_plan import RowPlan
from .softmax_rows import Weights, chosen_of

if TYPE_CHECKING:
    from .attention_kernel import Attention
    from .back_to_back_kernel import Computed

T = TypeVar("T")


def check_asked(segments: Sequence[int | None], columns: int, shapes: Iterable[Sequence[int]]) -> None:
    """Raises UnsupportedError where no operand of these shapes has a size of the rows, or of the columns, alone that is
    open until the call."""
    wanted = {open_part(size) for size in (*segments, columns) if size is not None and is_open(size)}
    if not wanted <= {open_part(size) for shape in shapes for size in shape if is_open(size)}:
        raise UnsupportedError("no operand has an open size of its rows, or of its columns, alone")


class Places:
    """Where a kernel's tiles lie, and which columns the CTA has of each."""

    def __init__(
        self, of: Attention | Computed, plan: RowPlan, tiles: AttentionTiles | BackToBackTiles, has_batch: bool
    ):
        self.of, self.tiles, self.has_batch = of, tiles, has_batch
        self.segments = [size for size in plan.segments or [] if size is not None]
        cuts, m = plan.cuts, of.sizes["m"]
        self.of_batch = cuts.index(m) + 1 if m in cuts else 0  # segments of rows that are the batch
        self.parts = -(-of.sizes["v"] // tiles.wide)  # of the values' columns
        self.is_uneven = (of.range.first, of.range.last).count(None) == 1  # some tiles have more columns than others
        self.order = list(range(len(self.segments)))
        if self.is_uneven:
            self.order = [self.order[-1], *self.order[:-1]]
        self.open: dict[int, ir.Value] = {}

    def ask(self, operands: Sequence[ir.Value]) -> None:
        """Reads the sizes that are open until the call, as tensors that are copied have them."""
        wanted = map(open_part, filter(is_open, (*self.segments, self.of.sizes["n"])))
        for size in dict.fromkeys(wanted):
            self.open[size] = next(
                tensor.dim(value, constant_index(d))
                for value in operands
                for d, own in enumerate(self.of.shape(value))
                if own == size
            )

    def deal(self) -> schedule.TilesOp:
        """The tiles of rows, and of parts of the values' columns."""
        last = len(self.segments) - 1
        extents = [self.size(self.segments[i]) for i in self.order]
        boxes = [self.tiles.rows if i == last else 1 for i in self.order]
        if self.parts > 1:
            extents.append(constant_index(self.of.sizes["v"]))
            boxes.append(self.tiles.wide)
        dealt = schedule.TilesOp(extents, *[ir.IndexType.get()] * 3)
        dealt.attributes["tile"] = ir.DenseI64ArrayAttr.get(boxes)
        return dealt

    def size(self, size: int) -> ir.Value:
        """A size: a number, one that is open until the call, or their product."""
        known = factors(size)[0]
        if not is_open(size):
            return constant_index(known)
        found = self.open[open_part(size)]
        return found if known == 1 else arith.muli(found, constant_index(known))

    def _of_values(self, number: ir.Value) -> ir.Value:
        """Has the first column of the values of a tile known as `first_value`; the tile's number without their part."""
        self.first_value = constant_index(0)
        if self.parts == 1:
            return number
        part_number = arith.remui(number, constant_index(self.parts))
        self.first_value = arith.muli(part_number, constant_index(self.tiles.wide))
        return arith.divui(number, constant_index(self.parts))

    def place(self, number: ir.Value) -> list[ir.Value]:
        """Where a tile of a number begins in each segment of the rows. Tiles of many columns come first: else the last
        CTAs to end would be those that begin with one of them late."""
        found, rest, last = {}, self._of_values(number), len(self.segments) - 1
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
        return self.size(size) if each == 1 else arith.ceildivui(self.size(size), constant_index(each))

    def offsets(self, at: Sequence[ir.Value]) -> dict[str, ir.Value]:
        """The number in the batch, and the row, of a place in the segments of the rows; and that row as the first one
        of its segment and its place in it."""
        *outer, inner = at
        apart = self._flat([*outer, constant_index(0)], self.of_batch, len(at))
        row = arith.addi(apart, inner)
        return {"b": self._flat(at, 0, self.of_batch), "m": row, "apart": apart, "together": inner}

    def batch(self, whole: list[T], segments: list[T]) -> list[T]:
        """What of the batch is a dimension of results: all of it, or, where it is open until the call, each segment;
        nothing where the product `has_batch` none."""
        if not self.has_batch:
            return []
        return segments[: self.of_batch] if is_open(self.of.sizes["b"]) else whole

    def _flat(self, at: Sequence[ir.Value], first: int, end: int) -> ir.Value:
        found = constant_index(0) if first == end else at[first]
        for i in range(first, end):
            rest = prod(self.segments[i + 1 : end])
            term = at[i] if rest == 1 else arith.muli(at[i], self.size(rest))
            found = term if i == first else arith.addi(found, term)
        return found

    def columns(self, at: Sequence[ir.Value]) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value | None]:
        """The bounds and the step of the loop over columns that the CTA has of a tile; and where those end that are
        there, unless that is a known number and turns do not go beyond it but for the last one's rest."""
        first, last, row = self.of.range.first, self.of.range.last, at[-1]
        step = constant_index(self.tiles.columns)
        lower, upper = constant_index(0), self.size(self.of.sizes["n"])
        if last is not None:
            upper = arith.minui(upper, arith.addi(row, constant_index(self.tiles.rows + last)))
        if first is not None and first < 0:
            lower = arith.subi(row, arith.minui(row, constant_index(-first)))
        elif first is not None:
            lower = arith.addi(row, constant_index(first))
        if first is not None:
            lower = arith.muli(arith.divui(lower, step), step)
        end = self.open.get(self.of.sizes["n"]) if self.tiles.shares_evenly else upper
        if self.tiles.cluster > 1:
            lower, upper = self._own_columns(lower, upper, step)
        return lower, upper, step, end

    def _own_columns(self, lower: ir.Value, upper: ir.Value, step: ir.Value) -> tuple[ir.Value, ir.Value]:
        """What of these columns the CTA of a cluster has: whole steps, or, where there are too few for all, some behind
        the last."""
        turns = arith.ceildivui(arith.subi(upper, lower), step)
        length = arith.muli(arith.ceildivui(turns, constant_index(self.tiles.cluster)), step)
        first = arith.addi(lower, arith.muli(cta_rank(), length))
        end = arith.minui(upper, arith.addi(first, length))
        return first, arith.maxui(end, arith.addi(first, constant_index(1)))

    @staticmethod
    def last(lower: ir.Value, upper: ir.Value, step: ir.Value) -> ir.Value:
        """Where the last turn of a loop begins, which has one or more."""
        turns = arith.divui(arith.subi(arith.subi(upper, constant_index(1)), lower), step)
        return arith.addi(lower, arith.muli(turns, step))


def range_of_scores(weights: Weights, plan: RowPlan, sizes: dict[str, int]) -> Range:
    """The columns that the masks of scores leave, by the last segment of rows: those that leave each tile some."""
    return usable(_range_of_masks(weights, plan), plan, sizes)


def usable(found: Range, plan: RowPlan, sizes: dict[str, int]) -> Range:
    """A range with those of its ends alone that leave each tile of rows some columns."""
    rows_ = (plan.segments or [1])[-1] or 1
    alike = is_open(rows_) == is_open(sizes["n"])
    first = found.first if found.first is not None and alike and rows_ + found.first <= sizes["n"] else None
    return Range(first, found.last if found.last is not None and found.last > -COPY_ROWS else None)


def _range_of_masks(weights: Weights, plan: RowPlan) -> Range:
    members = {member.op.results[0]: member for member in weights.scores}
    value, found = root(weights.largest.op.operands[0]), Range()
    while (member := members.get(value)) is not None:
        chosen = chosen_of(member.op)
        if chosen is None:
            return found
        mask, value, negated = chosen
        found = found.joined(range_of_mask(member, mask, negated, plan))
    return found


def range_of_mask(member: Member, mask: ir.Value, negated: bool, plan: RowPlan) -> Range:
    """The columns that a mask which an operator reads takes, by the last segment of rows, or those that it does not
    take; no range of one that is not of places."""
    role = dict(zip(map(root, member.op.operands), member.roles))[mask]
    if role is None or not role.columns or not is_of_places(mask):
        return Range()
    present = plan.present(member, role)
    long = [d for d, size in enumerate(ir.RankedTensorType(mask.type).shape) if size != 1]
    segments = [i for i, (here, size) in enumerate(zip(present, plan.segments or [])) if here and size != 1]
    last = len(present) - 1
    if last in segments and len(long) == len(segments) + 1:
        return range_of(mask, long[segments.index(last)], long[-1], negated)
    return Range()
