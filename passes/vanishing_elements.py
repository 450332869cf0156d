"""Which elements operators between products make zero whatever the products are: those outside of a range of columns
that a mask of places leaves, as of causal attention's weights and of what these are multiplied with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from kitsune_mlir.mlir import ir

from .attention_places import range_of_mask
from .of_places import Range
from .row_groups import Member, root
from .row_plan import RowPlan
from .scalar_bodies import constant_of
from .softmax_rows import CASTS, EXPONENTIALS


@dataclass(frozen=True)
class _Outside:
    """Elements that are `value`, 0 or -inf, outside of a range."""

    value: float
    range: Range


def range_of_elements(members: Sequence[Member], wanted: Sequence[ir.Value], plan: RowPlan) -> Range:
    """The columns, by the last segment of rows, outside of which all the results that are `wanted` are zero."""
    known: dict[ir.Value, _Outside] = {}
    for member in members:
        found = _Body(member, known, plan).result()
        if found is not None:
            known[member.op.results[0]] = found
    ranges = [known[value].range if value in known and not known[value].value else Range() for value in wanted]
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
        *inner, end = (op.operation for op in self.member.s.body.operations)
        for op in inner:
            if (found := self._of(op)) is not None:
                self.found[op.results[0]] = found
        return self.found.get(end.operands[0])

    def _of(self, op: ir.Operation) -> _Outside | None:
        own = [self.found.get(value) for value in op.operands]
        if op.name == "arith.select":
            return self._chosen(op, own[1:])
        there = [one for one in own if one is not None]
        if not there:
            return None
        zeros = [one for one in there if not one.value]
        if op.name in CASTS or op.name == "arith.negf" and zeros:
            return there[0]
        if op.name in EXPONENTIALS and not zeros:
            return _Outside(0.0, there[0].range)
        if op.name == "arith.mulf" and zeros:
            return _Outside(0.0, zeros[0].range.joined(zeros[-1].range))
        if op.name == "arith.divf" and own[0] in zeros:
            return own[0]
        if len(there) > 1 or zeros:
            return None
        if op.name == "arith.addf" or op.name == "arith.subf" and own[0] is not None:
            return there[0]
        scaled = op.name == "arith.mulf" and any((constant_of(value) or 0.0) > 0 for value in op.operands)
        return there[0] if scaled else None

    def _chosen(self, op: ir.Operation, own: Sequence[_Outside | None]) -> _Outside | None:
        mask, *taken = op.operands
        if mask not in self.operands:
            return None
        for negated, (x, other) in ((False, (0, 1)), (True, (1, 0))):
            value, before = constant_of(taken[other]), own[x]
            if value in (0.0, -inf):
                range_ = range_of_mask(self.member, self.operands[mask], negated, self.plan)
                alike = before is not None and before.value == value
                return _Outside(value, range_.joined(before.range) if alike and before is not None else range_)
        return None
