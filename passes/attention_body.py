"""What attention does with tiles of scores and of sums (attention_kernel.py): the group between its products on some
columns, for each row the largest number so far and the sum of weights, and what these make of sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log, log2

from kitsune_mlir import rows
from kitsune_mlir.dialects.clusters import MeetOp, TotalOp
from kitsune_mlir.generics import clone_operations
from kitsune_mlir.mlir import arith, ir, math
from kitsune_mlir.operations import element_type, operations_of

from .chain_tiles import part
from .row_groups import Member, joined, root, scalar_of
from .row_plan import RowPlan
from .score_tiles import ROWS, TILE, ScoreTiles, widened
from .softmax_rows import CASTS, Weights, of_any, or_zero
from .tensor_sizes import TensorSizes

_LOG2_E = 1 / log(2)
_LARGE = 2.0**26  # as a power of two: beyond it neighbouring numbers of f32 are weights apart


@dataclass(frozen=True)
class _Powers:
    """Weights as powers of two, of two instructions each: a number is multiplied by its row's `by`, and its row's
    `less` is added, which is what the row's largest number, `number`, is multiplied to. That product is rounded, those
    of the others are not (PTX ISA, fma), so all weights of a row are off by one factor, between 2^-4 and 2^4 as long as
    the number is within `limit`: it goes out of what is divided by their sum, and `grown` has it. Beyond, no product is
    rounded; neighbouring numbers are so far apart that by what they are multiplied no longer matters."""

    number: ir.Value
    by: ir.Value
    less: ir.Value
    limit: float

    def of(self, body: Weighing, tile: ir.Value) -> ir.Value:
        """The weights of a tile."""

        def power(x: ir.Value, by: ir.Value, less: ir.Value) -> ir.Value:
            return math.exp2(math.fma(x, by, less))

        return body._made([tile, self.by, self.less], [TILE, ROWS, ROWS], rows.shape_of(tile), body.f32, power)

    def grown(self, body: Weighing, before: _Powers) -> ir.Value:
        """By what sums of weights are multiplied whose rows had other largest numbers before. None is left of them
        where either number is beyond the limit and they are not the same."""

        def factor(a: ir.Value, b: ir.Value, less_a: ir.Value, less_b: ir.Value) -> ir.Value:
            differ = arith.cmpf(arith.CmpFPredicate.UNE, a, b)
            beyond = arith.ori(_is_beyond(a, self.limit), _is_beyond(b, self.limit))
            far = arith.andi(differ, beyond)
            return arith.select(far, arith.constant(body.f32, 0.0), math.exp2(arith.subf(less_b, less_a)))

        return body._of_rows([before.number, self.number, before.less, self.less], factor)


class Weighing(ScoreTiles):
    """The weights of a product's result, `scores`, on tiles of a warpgroup's rows and some columns, of `size` that
    there are; `known` knows the sizes of tensors. Numbers of rows are tiles of one dimension, of f32."""

    def __init__(self, plan: RowPlan, weights: Weights, scores: ir.Value, size: int, known: TensorSizes):
        super().__init__(plan, [scores], size, known)
        self.weights, self.scores = weights, scores

    def begin(self) -> list[ir.Value]:
        """The largest numbers and the sums of weights before any column."""
        return [self._of_rows([], lambda n=n: arith.constant(self.f32, n)) for n in (float("-inf"), 0.0)]

    def weigh(
        self, scores: ir.Value, largest: ir.Value, total: ir.Value, element: ir.Type
    ) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value]:
        """The weights of a tile of scores, as elements of that type; by what sums of what came before are multiplied;
        the largest numbers, and the sums of weights."""
        found, scale = self.weights, self.weights.scale
        self.given = {self.scores: scores}
        for member in found.scores:
            if scale is not None and member == scale.member:  # done with the exponentials
                self.values[member.op.results[0]] = (self.given | self.values)[scale.of]
            else:
                self._emit(member)
        x = root(found.largest.op.operands[0])
        if self.has_rest:
            self.values[x] = self.only_inside(self.values.get(x, scores), float("-inf"))
        join, before = joined(found.largest.op), largest
        assert join is not None
        make = arith.maximumf if join.name == "arith.maximumf" else arith.maxnumf
        powers, weights = self._powers(before) if found.is_plain else None, found.weights
        largest = self._of_rows([before, self._emit(found.largest)], make)
        if powers is not None:
            now, (_, power, *weights) = self._powers(largest), weights
            self.values[power.op.results[0]] = now.of(self, self.values.get(x, scores))
            grown = self._of_any(before, now.grown(self, powers))
        else:
            grown = self._grown(before, largest)
        for member in weights:
            self._emit(member)
        if found.total is not None:
            added = self._emit(found.total)
            total = self._of_rows([total, grown, added], lambda a, b, c: arith.addf(arith.mulf(a, b), c))
        weight = self.values[found.weight]
        return self._made([weight], [TILE], rows.shape_of(weight), element, lambda a: a), grown, largest, total

    def _grown(self, before: ir.Value, largest: ir.Value) -> ir.Value:
        """By what sums of weights are multiplied as the rows' largest numbers grow, by what is taken off numbers."""
        found = self.weights
        shift_before, shift = self._shift(before), self._shift(largest)
        safe = self._of_rows([shift], or_zero)  # where all numbers so far are -inf
        self.values[found.shift] = self._typed(safe, element_type(shift))
        exponential = math.exp if found.exponential == "math.exp" else math.exp2
        return self._of_any(before, self._of_rows([shift_before, safe], lambda a, b: exponential(arith.subf(a, b))))

    def _of_any(self, largest: ir.Value, grown: ir.Value) -> ir.Value:
        """The same for rows whose largest number so far is this one. Where that is what is taken off, -inf is far."""
        return self._of_rows([largest, grown], of_any) if self.weights.shifts else grown

    def met(
        self, sums: ir.Value, largest: ir.Value, total: ir.Value, cluster: int
    ) -> tuple[ir.Value, ir.Value, ir.Value]:
        """Sums, largest numbers and sums of weights of all columns, of which each CTA of a cluster has had some. Of the
        sums each gets its share of the values' columns."""
        found = self.weights
        join = joined(found.largest.op)
        assert join is not None
        everywhere = TotalOp(largest, ir.StringAttr.get(join.name), largest.type).results[0]
        if found.is_plain:
            before = self._powers(largest)
            grown = self._of_any(largest, self._powers(everywhere).grown(self, before))
        else:
            grown = self._grown(largest, everywhere)
        if found.total is not None:
            total = self._of_rows([total, grown], arith.mulf)
            total = TotalOp(total, ir.StringAttr.get("arith.addf"), total.type).results[0]
        rows_, columns = rows.shape_of(sums)
        share = ir.RankedTensorType.get([rows_, columns // cluster], self.f32)
        own = part(self.scaled(sums, grown), 0, columns, wide=True)
        return MeetOp(own, share).results[0], everywhere, total

    def scaled(self, tile: ir.Value, by: ir.Value) -> ir.Value:
        """A tile of f32 whose rows are multiplied."""
        return self._made([tile, by], [TILE, ROWS], rows.shape_of(tile), self.f32, arith.mulf)

    def shared(self, sums: ir.Value, largest: ir.Value, total: ir.Value) -> ir.Value:
        """Sums with weights as those with what the group gives: divided as it divides weights."""
        found = self.weights
        self._shift(largest)
        if found.total is not None:
            result = found.total.op.results[0]
            self.values[result] = self._typed(total, element_type(result))
        for member in found.sums:
            self._emit(member)
        for member in found.shares:
            sums = self._share(member, sums)
        return sums

    def numbers_of(self, members: Sequence[Member]) -> dict[ir.Value, ir.Value]:
        """What operators make of the rows' numbers, behind `shared`."""
        for member in members:
            self.given[member.op.results[0]] = self._emit(member)
        return self.given

    def _shift(self, largest: ir.Value) -> ir.Value:
        """What is taken off each row's numbers, from the largest of them, as its type is."""
        found = self.weights
        if found.scale is not None:
            factor = found.scale.factor
            largest = self._of_rows([largest], lambda a: arith.mulf(a, arith.constant(self.f32, factor)))
        result = found.largest.op.results[0]
        self.values[result] = self._typed(largest, element_type(result))
        free = (member for member in found.scores if member.kind == "rows" and member.op.results[0] not in self.values)
        for member in (*free, *found.shifts):
            self._emit(member)
        return self.values[found.shift]

    def _powers(self, largest: ir.Value) -> _Powers:
        """How a tile's numbers become weights where these are the largest of their rows."""
        found = self.weights
        scale = 1.0 if found.scale is None else found.scale.factor
        base = _LOG2_E if found.exponential == "math.exp" else 1.0
        number, own = (self._shift(largest), 1.0) if found.shifts else (largest, scale)
        factor, limit = base * own, _LARGE / (base * own)
        exact = 2.0 ** min(0, ceil(log2(factor)))  # no product with it is rounded, nor infinite
        by = self._of_rows([number], lambda a: arith.select(_is_beyond(a, limit), *map(self._number, (exact, factor))))
        less = self._of_rows([number, by], lambda a, b: arith.negf(arith.mulf(or_zero(a), b)))
        if own != scale:
            by = self._of_rows([by], lambda a: arith.mulf(a, self._number(scale)))
        return _Powers(number, by, less, limit)

    def _number(self, x: float) -> ir.Value:
        return arith.constant(self.f32, x)

    def _share(self, member: Member, sums: ir.Value) -> ir.Value:
        """What an operator that divides weights, or multiplies them, makes of sums with these."""
        others = {
            argument: self.values[root(value)]
            for argument, value, role in zip(member.s.body.arguments, member.op.operands, member.roles)
            if role is not None and not role.columns
        }

        def body(sums: ir.Value, *numbers: ir.Value) -> ir.Value:
            values: dict[ir.Value, ir.Value | None] = dict(zip(others, numbers))
            weights = set[ir.Value]()
            for argument, value, role in zip(member.s.body.arguments, member.op.operands, member.roles):
                if role is None:
                    scalar = scalar_of(value)
                    assert scalar is not None
                    values[argument] = scalar
                elif role.columns:
                    values[argument] = sums
                    weights.add(argument)
            *inner, end = operations_of(member.s.body)
            for op in inner:
                if weights.isdisjoint(op.operands):
                    clone_operations([op], values)
                    continue
                operands = [values.get(value, value) for value in op.operands]
                weights |= set(op.results)
                if op.name in CASTS:  # sums are of f32
                    values[op.results[0]] = operands[0]
                else:
                    make = arith.mulf if op.name == "arith.mulf" else arith.divf
                    values[op.results[0]] = make(*map(widened, operands))
            return values[end.operands[0]]  # of weights, as all that the group gives

        return self._generic(
            [sums, *others.values()], [TILE] + [ROWS] * len(others), rows.shape_of(sums), self.f32, body
        )


def _is_beyond(x: ir.Value, limit: float) -> ir.Value:
    """Whether a number is more than a limit, or less than its negative."""
    return arith.cmpf(arith.CmpFPredicate.OGT, math.absf(x), arith.constant(x.type, limit))
