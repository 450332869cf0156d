"""Row groups that give weights: exponentials of numbers less the largest of their row, perhaps over their sum.

    %m = linalg.generic ... maximumf           // of each row of %x
    %e = exp(%x - %m)
    %s = linalg.generic ... addf               // of each row of %e
    %p = %e / %s

A product of such weights can be summed over their columns by and by, without all of a row at once: where a larger
number comes, what was summed is multiplied by exp(%m before - %m), and what divides a row divides its sums as well.
Known is not the form of a softmax, but how each number of the group depends on the row's largest one and on the sum:
what stands around it (masks, a largest number that is clamped, a sum that is) may be anything that keeps it so.

Source: Milakov and Gimelshein, Online normalizer calculation for softmax (arXiv 1805.02867).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from kitsune_mlir.mlir import arith, ir
from kitsune_mlir.operations import element_type, made_by, operations_of

from .row_groups import Group, Member, joined, root, scalar_of, users
from .scalar_bodies import constant_of

CASTS = ("arith.extf", "arith.truncf")
_LARGEST, _TOTAL = ("arith.maximumf", "arith.maxnumf"), "arith.addf"
_GROWING = ("arith.addf", "arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf", "arith.select")
EXPONENTIALS = ("math.exp", "math.exp2")

# How a number depends on its row's largest number and on the sum of its row's weights.
_FREE = "free"  # not at all
_SHIFT = "shift"  # computed from the largest alone, a number for each row, which grows with it
_NOTE = "note"  # the same, but it may be less where the largest is more
_LESS = "less"  # a free number less a shift
_WEIGHT = "weight"  # proportional to exp(-shift)
_SUM = "sum"  # computed from the sum of weights, a number for each row
_SHARE = "share"  # a weight times, or over, such numbers


@dataclass(frozen=True)
class Scale:
    """An operator that multiplies `of` by a number above zero, `factor`, where scores are what some elements of that
    are, others -inf: the largest of these, times the factor, is the largest score."""

    member: Member
    of: ir.Value
    factor: float


@dataclass(frozen=True)
class Weights:
    """A group that gives weights, by what happens when. `scores` are computed of what comes in, `largest` along their
    rows; `shifts` from that, for each row; `weights` are exponentials, the last of which is `weight`; `total` is the
    sum along rows, None where there is none, `sums` are computed from it for each row; `shares` make of weights the
    result. `exponential` is the name of the operation."""

    scores: tuple[Member, ...]
    largest: Member
    shifts: tuple[Member, ...]
    weights: tuple[Member, ...]
    total: Member | None
    sums: tuple[Member, ...]
    shares: tuple[Member, ...]
    shift: ir.Value
    weight: ir.Value
    exponential: str

    @property
    def is_plain(self) -> bool:
        """Whether the first two of the weights' operators take off the shift and raise to the power, and nothing else,
        nor anything else reads what they do."""
        names = [[op.operation.name for op in member.s.body.operations][:-1] for member in self.weights[:2]]
        if names != [["arith.subf"], [self.exponential]] or not all(map(_is_of_f32, self.weights[:2])):
            return False
        less, powers = self.weights[:2]
        return list(users(less.op.results[0])) == [powers.op]

    @property
    def scale(self) -> Scale | None:
        """The multiplication behind which nothing but choices makes scores, each alone in reading the one before, which
        then nothing but the weights' first operators reads."""
        value = root(self.largest.op.operands[0])
        if not self.is_plain or not all(op in (self.largest.op, self.weights[0].op) for op in users(value)):
            return None
        members = {member.op.results[0]: member for member in self.scores}
        while (member := members.get(value)) is not None:
            if (chosen := chosen_of(member.op)) is None:
                return _as_scale(member)
            value = chosen[1]
            if len(list(users(value))) != 1:
                return None
        return None


def _is_of_f32(member: Member) -> bool:
    return isinstance(element_type(member.op.results[0]), ir.F32Type)


def chosen_of(op: ir.Operation) -> tuple[ir.Value, ir.Value, bool] | None:
    """Of an operator that leaves elements as they are or makes them -inf: the mask that says of which, the elements,
    and whether the mask says which become -inf."""
    body = op.regions[0].blocks[0]
    inner = operations_of(body)
    if [one.name for one in inner] != ["arith.select", "linalg.yield"]:
        return None
    arguments = {argument: root(op.operands[number]) for number, argument in enumerate(body.arguments)}
    mask, *taken = inner[0].operands
    for negated, (x, other) in ((False, taken), (True, taken[::-1])):
        if mask in arguments and x in arguments and constant_of(other) == -inf:
            return arguments[mask], arguments[x], negated
    return None


def _as_scale(member: Member) -> Scale | None:
    *inner, end = operations_of(member.s.body)
    if len(inner) != 1 or inner[0].name not in ("arith.mulf", "arith.divf") or not _is_of_f32(member):
        return None
    argument, by = inner[0].operands
    if inner[0].name == "arith.mulf" and not isinstance(argument.owner, ir.Block):
        argument, by = by, argument
    factor = constant_of(by)
    if factor is None or not 0 < factor < inf or not isinstance(argument.owner, ir.Block):
        return None
    value = member.op.operands[ir.BlockArgument(argument).arg_number]
    if not isinstance(element_type(value), ir.F32Type):
        return None
    return Scale(member, root(value), factor if inner[0].name == "arith.mulf" else 1 / factor)


def weights_of(group: Group) -> Weights | None:
    """The group as one that gives weights, if it is one: it has one result."""
    if len(group.outputs) != 1:
        return None
    walk = _Walk(group)
    for member in group.ordered:
        if not walk.take(member):
            return None
    return walk.found(group.outputs[0].op.results[0])


def with_beside(group: Group, result: ir.Value) -> Group:
    """Those members of a group that serve this result alone, and beside them those that compute something else of the
    rows' numbers, such as the logarithm of a sum of exponentials; if other things take part, as `for_one` has it."""
    needed = {result}
    for member in reversed(group.ordered):
        if member.op.results[0] in needed:
            needed |= {root(value) for value in member.op.operands} & group.members.keys()
    others = [member for value, member in group.members.items() if value not in needed]
    known = {value for value in needed if group.members[value].kind in ("rows", "reduction")}
    known |= {member.op.results[0] for member in others}
    read = {root(value) for member in others for value, role in zip(member.s.given, member.roles) if role is not None}
    if not others or any(member.kind != "rows" for member in others) or not read <= known:
        return group.for_one(result)
    kept = {value: member for value, member in group.members.items() if value in needed}
    return Group(group.space, kept, tuple(others)).for_one(result)


@dataclass(frozen=True)
class Online:
    """A row's `largest` number and the sum of its weights, `total`, in one pass: `shift` is what is taken off numbers,
    which `shifts` compute of the largest, `exponential` the operation by which they are weights then."""

    largest: Member
    total: Member
    shifts: tuple[Member, ...]
    shift: ir.Value
    exponential: str


def find_online(group: Group) -> Online | None:
    """The first such two reductions of a group, if it has any."""
    for total in group.ordered:
        if total.kind != "reduction":
            continue
        needed = {total.op.results[0]}
        for member in reversed(group.ordered):
            if member.op.results[0] in needed:
                needed |= {root(value) for value in member.op.operands} & group.members.keys()
        walk = _Walk(group)
        known = all(walk.take(member) for result, member in group.members.items() if result in needed)
        if known and walk.total == total and walk.largest is not None and walk.shift is not None:
            shifts = tuple(walk.members[_SHIFT])
            return Online(walk.largest, total, shifts, walk.shift, walk.exponential)
    return None


def or_zero(x: ir.Value) -> ir.Value:
    """A number, zero for -inf."""
    none = arith.cmpf(arith.CmpFPredicate.OEQ, x, arith.constant(x.type, float("-inf")))
    return arith.select(none, arith.constant(x.type, 0.0), x)


def of_any(largest: ir.Value, factor: ir.Value) -> ir.Value:
    """By what sums of weights are multiplied whose largest number was this one: of none, which -inf stands for, nothing
    is left whatever the factor is. It is infinite where less is taken off the numbers behind."""
    none = arith.cmpf(arith.CmpFPredicate.OEQ, largest, arith.constant(largest.type, float("-inf")))
    return arith.select(none, arith.constant(factor.type, 0.0), factor)


class _Walk:
    """How each number depends, operator by operator."""

    def __init__(self, group: Group):
        self.group = group
        self.kinds: dict[ir.Value, str] = {}
        self.members: dict[str, list[Member]] = {name: [] for name in (_FREE, _SHIFT, _WEIGHT, _SUM, _SHARE)}
        self.largest: Member | None = None
        self.total: Member | None = None
        self.shift: ir.Value | None = None
        self.exponential = ""

    def take(self, member: Member) -> bool:
        """Whether an operator's result depends in a way that is known."""
        if member.kind == "reduction":
            kind = self.kinds[member.op.results[0]] = self._reduced(member) or ""
            return bool(kind)
        kind = self._body(member)
        if kind is None:
            return False
        self.kinds[member.op.results[0]] = kind
        self.members[{_LESS: _WEIGHT, _NOTE: _SHIFT}.get(kind, kind)].append(member)
        return kind == _FREE or member.kind == ("tile" if kind in (_LESS, _WEIGHT, _SHARE) else "rows")

    def found(self, result: ir.Value) -> Weights | None:
        """What was taken, which gives this result."""
        kind, shift = self.kinds[result], self.shift
        if self.largest is None or shift is None or kind not in (_WEIGHT, _SHARE):
            return None
        shares, weight = self.members[_SHARE], result
        for member, behind in zip(shares, [*(m.op.results[0] for m in shares[1:]), result][: len(shares)]):
            tiles = [root(v) for v in member.op.operands if self.kinds.get(root(v)) in (_WEIGHT, _SHARE)]
            if (
                len(tiles) != 1
                or behind != result
                and member.op.results[0] not in map(root, self.group.members[behind].op.operands)
            ):
                return None
        if shares:
            weight = next(root(v) for v in shares[0].op.operands if self.kinds.get(root(v)) == _WEIGHT)
        members = {name: tuple(own) for name, own in self.members.items()}
        return Weights(
            *(members[_FREE], self.largest, members[_SHIFT], members[_WEIGHT], self.total),
            *(members[_SUM], members[_SHARE], shift, weight, self.exponential),
        )

    def _arguments(self, member: Member) -> dict[ir.Value, str]:
        operands = member.s.given
        return {
            argument: _FREE if scalar_of(value) is not None else self.kinds.get(root(value), _FREE)
            for argument, value in zip(member.s.body.arguments, operands)
        }

    def _reduced(self, member: Member) -> str | None:
        join, kinds = joined(member.op), self._arguments(member)
        assert join is not None
        own = [value for value in join.operands if not self._is_of_those_before(value, member)]
        for inner in member.s.body.operations:
            if inner.operation != join and inner.operation.name != "linalg.yield":
                self._infer(inner.operation, kinds)
        kind = kinds.get(own[0]) if len(own) == 1 else None
        if join.name in _LARGEST and kind == _FREE and self.largest is None:
            self.largest = member
            return _SHIFT
        if join.name == _TOTAL and kind == _WEIGHT and self.total is None:
            self.total = member
            return _SUM
        return None

    @staticmethod
    def _is_of_those_before(value: ir.Value, member: Member) -> bool:
        """Whether a value in a reduction's body is what was joined before."""
        return _before_casts(value) == list(member.s.body.arguments)[-1]

    def _body(self, member: Member) -> str | None:
        kinds = self._arguments(member)
        *inner, end = member.s.body.operations
        for op in inner:
            self._infer(op.operation, kinds)
        return _kind_of(end.operands[0], kinds)

    def _infer(self, op: ir.Operation, kinds: dict[ir.Value, str | None]) -> None:
        """The kind of an operation's result, None where it is none of those known."""
        found = self._inferred(op, [_kind_of(value, kinds) for value in op.operands])
        kinds.update((result, found) for result in op.results)

    def _inferred(self, op: ir.Operation, own: list[str | None]) -> str | None:
        if op.name in CASTS:
            return own[0]
        if None in own:
            return None
        if set(own) <= {_FREE}:
            return _FREE
        if op.name == "arith.subf" and own == [_FREE, _SHIFT]:
            scores, shift = map(self._from_outside, op.operands)
            assert self.largest is not None
            if scores is None:  # a number
                return _NOTE
            if scores == root(self.largest.op.operands[0]) and shift is not None and self.shift in (None, shift):
                self.shift = shift
                return _LESS
            return None
        if set(own) <= {_FREE, _SHIFT, _NOTE}:
            return _SHIFT if _grows(op, own) else _NOTE
        if op.name in EXPONENTIALS and own == [_LESS] and self.exponential in ("", op.name):
            self.exponential = op.name
            return _WEIGHT
        if (
            op.name == "arith.mulf"
            and sorted(own) == [_FREE, _WEIGHT]
            or op.name == "arith.divf"
            and own == [_WEIGHT, _FREE]
        ):
            return _WEIGHT
        if (
            op.name == "arith.select"
            and own[0] == _FREE
            and _WEIGHT in own
            and all(kind == _WEIGHT or _is_zero(value) for value, kind in list(zip(op.operands, own))[1:])
        ):
            return _WEIGHT
        if set(own) <= {_FREE, _SHIFT, _NOTE, _SUM} and _SUM in own:
            return _SUM
        proportional = op.name == "arith.divf" and own[0] in (_WEIGHT, _SHARE) and own[1] == _SUM
        proportional |= op.name == "arith.mulf" and sorted(own) in ([_SHARE, _SUM], [_SUM, _WEIGHT])
        return _SHARE if proportional else None

    @staticmethod
    def _from_outside(value: ir.Value) -> ir.Value | None:
        """The tensor whose element, perhaps cast, a value in a body is."""
        value = _before_casts(value)
        if not isinstance(value.owner, ir.Block):
            return None
        argument = ir.BlockArgument(value)
        return root(argument.owner.owner.operands[argument.arg_number])


def _kind_of(value: ir.Value, kinds: Mapping[ir.Value, str | None]) -> str | None:
    """The kind of a value in a body; constants from around it are free."""
    return kinds.get(value, _FREE)


def _grows(op: ir.Operation, own: list[str | None]) -> bool:
    """Whether an operation's result grows with shifts among its operands, of these kinds: what is taken off numbers
    that come late must not be so much less that nothing is left of the weights before. Choices do, which are of what
    is not finite, or clamp."""
    if op.name in ("arith.mulf", "arith.divf"):
        numbers = [constant_of(value) for value in op.operands]
        factor = numbers[1] if own[0] == _SHIFT else numbers[0] if op.name == "arith.mulf" else None
        return factor is not None and factor > 0
    taken = own[1:] if op.name == "arith.select" else own
    grows = op.name in _GROWING or op.name == "arith.subf" and own[1] == _FREE
    return grows and set(taken) <= {_FREE, _SHIFT}


def _is_zero(value: ir.Value) -> bool:
    return constant_of(_before_casts(value)) == 0


def _before_casts(value: ir.Value) -> ir.Value:
    """What a value in a body is cast from, or the value."""
    while made_by(value, *CASTS) is not None:
        value = value.owner.operands[0]
    return value
