"""Which elements operators between products make zero whatever the products are: those outside of a range of columns
that a mask of places leaves, as of causal attention's weights and of what these are multiplied with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, nan

from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import operations_of

from .attention_places import range_of_mask
from .of_places import Range
from .row_groups import Member, root
from .row_plan import RowPlan
from .scalar_bodies import constant_of
from .softmax_rows import CASTS, EXPONENTIALS

_KEEP_ZERO = (*CASTS, "arith.negf", "arith.mulf", "math.absf", "math.erf", "math.sqrt", "math.tanh")


@dataclass(frozen=True)
class _Outside:
    """Elements that are `value`, 0 or -inf, outside of a range; nan where they may be infinite, or no number, for what
    else these are made of: no product with zeros is zero then."""

    value: float
    range: Range


_UNKNOWN = _Outside(nan, Range())


def range_of_elements(members: Sequence[Member], wanted: Sequence[ir.Value], plan: RowPlan) -> Range:
    """The columns, by the last segment of rows, outside of which all the results that are `wanted` are zero."""
    known: dict[ir.Value, _Outside] = {}
    for member in members:
        found = _Body(member, known, plan).result()
        if found is not None:
            known[member.op.results[0]] = found
    ranges = [known[value].range if value in known and known[value].value == 0 else Range() for value in wanted]
    firsts, lasts = [one.first for one in ranges], [one.last for one in ranges]
    return Range(
        None if None in firsts else min(first for first in firsts if first is not None),
        None if None in lasts else max(last for last in lasts if last is not None),
    )


class _Body:
    """What is known of the values in an operator's body."""

    def __init__(self, member: Member, known: dict[ir.Value, _Outside], plan: RowPlan):
        self.member, self.plan = member, plan
        self.operands = dict(zip(member.s.body.arguments, map(root, member.op.operands)))
        self.found = {argument: known[value] for argument, value in self.operands.items() if value in known}

    def result(self) -> _Outside | None:
        *inner, end = operations_of(self.member.s.body)
        for op in inner:
            if (found := self._of(op)) is not None:
                self.found[op.results[0]] = found
        return self.found.get(end.operands[0])

    def _of(self, op: ir.Operation) -> _Outside | None:
        own = [self.found.get(value) for value in op.operands]
        if op.name == "arith.select" and (chosen := self._chosen(op, own[1:])) is not None:
            return chosen
        there = [one for one in own if one is not None]
        zeros = [one for one in there if one.value == 0]
        if len(zeros) == len(there):
            return self._of_zeros(op, own, zeros)
        if len(there) > 1 or there[0].value != -inf:
            return _UNKNOWN
        scaled = op.name == "arith.mulf" and any((constant_of(value) or 0.0) > 0 for value in op.operands)
        if op.name in (*CASTS, "arith.addf") or op.name == "arith.subf" and own[0] is not None or scaled:
            return there[0]
        return _Outside(0.0, there[0].range) if op.name in EXPONENTIALS else _UNKNOWN

    def _of_zeros(self, op: ir.Operation, own: Sequence[_Outside | None], zeros: list[_Outside]) -> _Outside | None:
        """A result of zeros, and of numbers of which nothing is known, which are finite and not zero."""
        if not zeros:
            return None
        if op.name in _KEEP_ZERO:
            return _Outside(0.0, zeros[0].range.joined(zeros[-1].range))
        if op.name == "arith.divf" and own[1] is None:
            return zeros[0]
        is_sum = op.name in ("arith.addf", "arith.subf") and None in own
        return None if is_sum or op.name in EXPONENTIALS else _UNKNOWN

    def _chosen(self, op: ir.Operation, own: Sequence[_Outside | None]) -> _Outside | None:
        mask, *taken = op.operands
        if mask not in self.operands:
            return None
        for negated, (x, other) in ((False, (0, 1)), (True, (1, 0))):
            value, before = constant_of(taken[other]), own[x]
            if value in (0.0, -inf):
                if before is not None and before.value not in (0.0, value):
                    return _UNKNOWN  # within the range of what is taken
                range_ = range_of_mask(self.member, self.operands[mask], negated, self.plan)
                alike = before is not None and before.value == value
                return _Outside(value, range_.joined(before.range) if alike and before is not None else range_)
        return None
