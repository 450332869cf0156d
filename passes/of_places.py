"""Tensors that are computed of nothing but places, such as the masks of causal attention: `column <= row`.

A kernel computes elements of them where it uses them, and need not read them. Where such a mask says of columns which
it takes, and its condition is one of a column and a row, a tile of rows needs no columns outside of a range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kitsune_mlir import rows
from kitsune_mlir.generics import extended, generic
from kitsune_mlir.mlir import arith, attr_int, ir, linalg, tensor
from kitsune_mlir.operations import element_type, is_generic, made_by, operations_of
from kitsune_mlir.planning.linear_sums import LinearSum

_CASTS = ("arith.index_cast", "arith.index_castui", "arith.extsi", "arith.extui")
_NEAR = (  # what gives no integers far larger than places, which are computed in 32 bits
    *("arith.addi", "arith.subi", "arith.cmpi", "arith.andi", "arith.ori", "arith.xori", "arith.minsi", "arith.maxsi"),
    *("arith.divsi", "arith.floordivsi", "arith.divui", "arith.remsi", "arith.remui", "arith.select", "arith.constant"),
    *("math.absi",),
    *(*_CASTS, "linalg.index", "linalg.yield"),
)
_NUMBERS = ("f", "bf", "i1", "i32", "i64", "index")  # how the names of types begin that are computed
_LARGEST = 1 << 24
_LESS = {2: 1, 3: 0}  # the predicates a < b and a <= b of arith.cmpi, and what a lacks of b at least
_MORE = {4: 1, 5: 0}
_NOT = {2: 5, 3: 4, 4: 3, 5: 2}
MOST_OPERATIONS = 24  # of an element; more are not computed anew for each


def is_of_places(value: ir.Value) -> bool:
    """Whether its elements are computed of their places alone."""
    if not rows.is_tensor(value) or isinstance(element_type(value), ir.IndexType):
        return False
    return _operations(value, MOST_OPERATIONS) is not None


def _operations(value: ir.Value, most: int) -> int | None:
    """How many operations an element takes; None where it is not of places alone, or takes more than `most`. No more
    are gone through: what reads a tensor twice, and is read twice, takes twice as many with each step."""
    op = rows.producer(value)
    if op is None or not rows.is_tensor(value):
        return None
    if op.name == "linalg.fill":
        scalar = rows.producer(op.operands[0])
        return 0 if scalar is not None and scalar.name == "arith.constant" else None
    if op.name in rows.RESHAPES:
        return _operations(op.operands[0], most) if matched_dims(op) is not None else None
    if not is_generic(op):
        return None
    s = rows.Structured(op)
    plain = operations_of(s.body)
    count = len(plain) - 1
    known = count <= most and all(map(_is_near, plain))
    if not known or "reduction" in s.iterators or s.reads_start:
        return None
    if not all(map(_is_constant, rows.used_values(op)[len(op.operands) :])):
        return None
    if any(rows.dim_of(expr) is None for expr in s.maps[-1].results):
        return None
    if any(rows.dim_of(expr) is None and str(expr) != "0" for map_ in s.maps[: s.inputs] for expr in map_.results):
        return None
    for operand in s.given:
        inside = _operations(operand, most - count)
        if inside is None:
            return None
        count += inside
    return count


def _is_constant(value: ir.Value) -> bool:
    op = made_by(value, "arith.constant")
    if op is None or rows.is_tensor(value):
        return False
    attribute = op.attributes["value"]
    return not isinstance(attribute, ir.IntegerAttr) or abs(attribute.value) < _LARGEST


def _is_near(op: ir.Operation) -> bool:
    """Whether an operation of a body is known, and of types that are."""
    types = [value.type for value in (*op.operands, *op.results)]
    if not all(str(type_).startswith(_NUMBERS) for type_ in types) or len(op.regions):
        return False
    if op.name == "arith.constant":
        return _is_constant(op.results[0])
    of_floats = op.name.startswith("arith.") and all(isinstance(v.type, ir.FloatType) for v in op.results)
    return op.name in _NEAR or of_floats


def matched_dims(reshape: ir.Operation) -> list[int | None] | None:
    """For each dimension of what is reshaped the dimension of the result that it is, None for one of a single element;
    None where others become one, or are cut."""
    source, result = rows.shape_of(reshape.operands[0]), rows.shape_of(reshape.results[0])
    long = [d for d, size in enumerate(result) if size != 1]
    own = [d for d, size in enumerate(source) if size != 1]
    if [source[d] for d in own] != [result[d] for d in long]:
        return None
    return [long[own.index(d)] if d in own else None for d in range(len(source))]


def tile_of_places(
    value: ir.Value, shape: Sequence[int], first: Sequence[ir.Value | None], place: Sequence[int | None]
) -> ir.Value:
    """A tile of these sizes of such a tensor. Dimension d of the tensor is at `first[d]` where the tile begins, and
    goes along dimension `place[d]` of the tile, None for one that does not."""

    def element(_: ir.Value) -> ir.Value:
        found = []
        for start, dim in zip(first, place, strict=True):
            terms = [arith.index_cast(_i32(), start)] if start is not None else []
            terms += [arith.index_cast(_i32(), linalg.IndexOp(dim).result)] if dim is not None else []
            found.append(terms[0] if len(terms) == 1 else arith.addi(*terms) if terms else arith.constant(_i32(), 0))
        computed = _Elements().element(value, found)
        return extended(computed, kind)

    kind = element_type(value)
    start = tensor.empty(list(shape), kind)
    return generic([], [start], [ir.AffineMap.get_identity(len(shape))], ["parallel"] * len(shape), element).results[0]


def _i32() -> ir.Type:
    return ir.IntegerType.get_signless(32)


def _narrow(type_: ir.Type) -> ir.Type:
    """What an element is computed in: places and what is near them in 32 bits."""
    return _i32() if str(type_) in ("index", "i64") else type_


class _Elements:
    """Computes elements at the insertion point."""

    def element(self, value: ir.Value, at: Sequence[Any]) -> Any:
        op = rows.producer(value)
        assert op is not None
        if op.name == "linalg.fill":
            return self.constant(op.operands[0])
        if op.name in rows.RESHAPES:
            matched = matched_dims(op)
            assert matched is not None
            return self.element(op.operands[0], [self.zero() if d is None else at[d] for d in matched])
        s = rows.Structured(op)
        loops = {rows.dim_of(expr): place for expr, place in zip(s.maps[-1].results, at)}
        values: dict[ir.Value, Any] = {}
        for argument, operand, map_ in zip(s.body.arguments, op.operands, s.maps[: s.inputs]):
            if list(argument.uses):
                dims = [rows.dim_of(expr) for expr in map_.results]
                values[argument] = self.element(operand, [self.zero() if d is None else loops[d] for d in dims])
        for inner in operations_of(s.body):
            if inner.name == "linalg.yield":
                return (
                    values.get(inner.operands[0]) if inner.operands[0] in values else self.constant(inner.operands[0])
                )
            if inner.name == "linalg.index":
                values[inner.results[0]] = loops[attr_int(inner, "dim")]
                continue
            if inner.name == "arith.constant":
                values[inner.results[0]] = self.constant(inner.results[0])
                continue
            operands = [values[v] if v in values else self.constant(v) for v in inner.operands]
            values[inner.results[0]] = self.operation(inner, operands)
        raise AssertionError("a generic's body ends with linalg.yield")

    def zero(self) -> Any:
        return arith.constant(_i32(), 0)

    def constant(self, value: ir.Value) -> Any:
        attribute, type_ = value.owner.attributes["value"], _narrow(value.type)
        if type_ == value.type:
            return arith.ConstantOp(type_, attribute).result
        return arith.constant(type_, ir.IntegerAttr(attribute).value)

    def operation(self, op: ir.Operation, operands: Sequence[Any]) -> Any:
        type_ = _narrow(op.results[0].type)
        if op.name in _CASTS and operands[0].type == type_:
            return operands[0]
        attributes = {name: op.attributes[name] for name in op.attributes}
        return ir.Operation.create(op.name, [type_], operands, attributes).results[0]


@dataclass(frozen=True)
class Range:
    """Columns that rows need: of a row number r those from r + `first` on and up to r + `last`; None where there is no
    such end."""

    first: int | None = None
    last: int | None = None

    def joined(self, other: Range) -> Range:
        """What both take."""
        firsts = [x for x in (self.first, other.first) if x is not None]
        lasts = [x for x in (self.last, other.last) if x is not None]
        return Range(max(firsts, default=None), min(lasts, default=None))


def range_of(mask: ir.Value, row: int, column: int, negated: bool = False) -> Range:
    """The columns that a mask of places takes, of dimensions `row` and `column` of it: what is outside it takes none
    of. Of one that is `negated` those that it does not take."""
    rank = ir.RankedTensorType(mask.type).rank
    at = [LinearSum.of(d) for d in range(rank)]
    found = _Conditions(row, column, negated).element(mask, at)
    return found if isinstance(found, Range) else Range()


class _Conditions(_Elements):
    """The same on what is known of numbers: `LinearSum` of integers, `Range` of conditions, None of others."""

    def __init__(self, row: int, column: int, negated: bool):
        self.row, self.column, self.negated = row, column, negated

    def zero(self) -> Any:
        return LinearSum()

    def constant(self, value: ir.Value) -> Any:
        op = rows.producer(value)
        attribute = None if op is None or op.name != "arith.constant" else op.attributes["value"]
        if not isinstance(attribute, ir.IntegerAttr):
            return None
        is_condition = isinstance(value.type, ir.IntegerType) and value.type.width == 1
        return None if is_condition else LinearSum(attribute.value)

    def operation(self, op: ir.Operation, operands: Sequence[Any]) -> Any:
        if op.name in _CASTS:
            return operands[0]
        if op.name == ("arith.ori" if self.negated else "arith.andi"):
            ranges = [x for x in operands if isinstance(x, Range)]
            return ranges[0].joined(ranges[-1]) if ranges else None
        if not all(isinstance(x, LinearSum) for x in operands):
            return None
        if op.name in ("arith.addi", "arith.subi"):
            return operands[0].plus(operands[1], 1 if op.name == "arith.addi" else -1)
        return self._compared(op, *operands) if op.name == "arith.cmpi" else None

    def _compared(self, op: ir.Operation, a: LinearSum, b: LinearSum) -> Range | None:
        predicate = attr_int(op, "predicate")
        predicate = _NOT.get(predicate, predicate) if self.negated else predicate
        if predicate in _MORE:
            a, b = b, a
        elif predicate not in _LESS:
            return None
        rest = a.plus(b, -1)  # at most -lacks
        lacks = _LESS.get(predicate, _MORE.get(predicate, 0))
        if rest.terms == {self.column: 1, self.row: -1}:
            return Range(last=-rest.known - lacks)
        if rest.terms == {self.column: -1, self.row: 1}:
            return Range(first=rest.known + lacks)
        return None
