"""The scalar code in linalg.generic bodies: arithmetic in f32, cheap forms of powers, quotients and maxima."""

from __future__ import annotations

import math
from collections.abc import Callable

from kitsune_mlir.codegen.pipeline.evaluate import ROUNDS
from kitsune_mlir.mlir import attr_int, ir
from kitsune_mlir.operations import operations_of

_POWERS = {-1.0, -0.5, 0.5, 1.0, 2.0, 3.0, 4.0}
# arith's numbers of the comparisons ogt, oge, olt, ole and their unordered forms.
_ORDERED = {2: "arith.maximumf", 3: "arith.maximumf", 4: "arith.minimumf", 5: "arith.minimumf"}
_UNORDERED = {9: "arith.maximumf", 10: "arith.maximumf", 11: "arith.minimumf", 12: "arith.minimumf"}


def _is_narrow(type_: ir.Type) -> bool:
    return isinstance(type_, ir.BF16Type | ir.F16Type)


def _create(name: str, types: list[ir.Type], operands: list[ir.Value], at: ir.Operation, attributes=None) -> ir.Value:
    return ir.Operation.create(
        name, results=types, operands=operands, attributes=attributes or {}, loc=at.location, ip=ir.InsertionPoint(at)
    ).result


def _constant(type_: ir.Type, value: float, at: ir.Operation) -> ir.Value:
    return _create("arith.constant", [type_], [], at, {"value": ir.FloatAttr.get(type_, value, loc=at.location)})


def constant_of(value: ir.Value) -> float | None:
    """The number that a scalar constant is; None for every other value."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        return None
    attribute = owner.attributes["value"]
    return float(attribute.value) if isinstance(attribute, ir.FloatAttr | ir.IntegerAttr) else None


def widen(generic: ir.Operation) -> None:
    """Computes 16-bit floating-point arithmetic in f32, rounding once where a value leaves the body.

    Neither CPUs nor GPUs have bf16 forms of most operations, and torch rounds after each operator only
    because each is a kernel of its own. Numbers that are compared with each other are rounded first: one may be
    the largest, say, of those that another operator had rounded, and equal to it. So are those that the model rounds
    itself (asked_roundings.py).
    """
    block = generic.regions[0].blocks[0]
    f32 = ir.F32Type.get(generic.context)
    wide: dict[int, ir.Value] = {}

    def widened(value: ir.Value, at: ir.Operation) -> ir.Value:
        if not _is_narrow(value.type):
            return value
        if hash(value) not in wide:
            number = constant_of(value)
            if number is not None:
                return _constant(f32, number, at)
            wide[hash(value)] = _create("arith.extf", [f32], [value], at)
        return wide[hash(value)]

    def rounded(value: ir.Value, at: ir.Operation) -> ir.Value:
        return _create("arith.extf", [f32], [value], at) if _is_narrow(value.type) else value

    for op in operations_of(block):
        narrow = [value for value in (*op.operands, *op.results) if _is_narrow(value.type)]
        arithmetic = op.name.startswith(("arith.", "math.")) and op.name not in ("arith.bitcast", "arith.constant")
        if not narrow or not arithmetic:
            continue
        is_rounded = _compares(op) or (op.name == "arith.extf" and _is_asked(op.operands[0]))
        operands = [rounded(value, op) if is_rounded else widened(value, op) for value in op.operands]
        target = f32 if _is_narrow(op.result.type) else op.result.type
        if op.name in ("arith.extf", "arith.truncf") and operands[0].type == target:
            result = operands[0]
        else:
            attributes = {name: op.attributes[name] for name in op.attributes}
            result = _create(op.name, [target], operands, op, attributes)
        if not _is_narrow(op.result.type):
            for use in list(op.result.uses):
                if op.name != "arith.extf" or not _compares(use.owner.operation):
                    use.owner.operation.operands[use.operand_number] = result
            if not list(op.result.uses):
                op.erase()
            continue
        # Whatever is not arithmetic takes the rounded value; later arithmetic finds the wide one.
        less = _create("arith.truncf", [op.result.type], [result], op)
        wide[hash(less)] = result
        if ROUNDS in op.attributes:
            less.owner.attributes[ROUNDS] = ir.UnitAttr.get(op.context)
        op.result.replace_all_uses_with(less)
        op.erase()


def _is_asked(value: ir.Value) -> bool:
    """Whether a number is marked as one that the model rounds."""
    maker = value.owner
    return not isinstance(maker, ir.Block) and ROUNDS in maker.attributes


def _compares(op: ir.Operation) -> bool:
    """Whether it compares two numbers, neither of which is a constant."""
    if op.name != "arith.cmpf" or op.operands[0] == op.operands[1]:
        return False
    return all(constant_of(value) is None for value in op.operands)


def simplify(generic: ir.Operation) -> None:
    """Rewrites single operations of the body into cheaper ones of the same value."""
    for op in operations_of(generic.regions[0].blocks[0]):
        rule = _RULES.get(op.name)
        result = rule(op) if rule else None
        if result is not None:
            op.result.replace_all_uses_with(result)
            op.erase()


def _power(op: ir.Operation) -> ir.Value | None:
    base, exponent = op.operands
    number, type_ = constant_of(exponent), op.result.type
    if constant_of(base) == 2.0 and op.name == "math.powf":
        return _create("math.exp2", [type_], [exponent], op)
    if number not in _POWERS:
        return None
    if number == 1.0:
        return base
    if abs(number) == 0.5:
        return _create("math.sqrt" if number > 0 else "math.rsqrt", [type_], [base], op)
    if number == -1.0:
        return _create("arith.divf", [type_], [_constant(type_, 1.0, op), base], op)
    square = _create("arith.mulf", [type_], [base, base], op)
    if number == 2.0:
        return square
    return _create("arith.mulf", [type_], [square, base if number == 3.0 else square], op)


def _quotient(op: ir.Operation) -> ir.Value | None:
    """A product, by a divisor whose reciprocal is exact: any other is a unit in the last place off, and what rounds
    the quotient down afterwards takes 49 * (1 / 49) to 0."""
    number = constant_of(op.operands[1])
    if not number or not math.isfinite(number) or not 2.0**-100 < abs(number) < 2.0**100:
        return None
    if abs(math.frexp(number)[0]) != 0.5:
        return None
    reciprocal = _constant(op.result.type, 1.0 / number, op)
    return _create("arith.mulf", [op.result.type], [op.operands[0], reciprocal], op)


def _rounded_constant(op: ir.Operation) -> ir.Value | None:
    number = constant_of(op.operands[0])
    return None if number is None else _constant(op.result.type, number, op)


def _extremum(op: ir.Operation) -> ir.Value | None:
    """`select(a > b, a, b)` with a constant for one of them, where a NaN in the other comes through."""
    condition, left, right = op.operands
    compare = condition.owner
    if isinstance(compare, ir.Block) or compare.name != "arith.cmpf":
        return None
    if compare.operands[0] != left or compare.operands[1] != right:
        return None
    predicate = attr_int(compare, "predicate")
    if constant_of(left) is not None:
        name = _ORDERED.get(predicate)
    else:
        name = _UNORDERED.get(predicate) if constant_of(right) is not None else None
    return None if name is None else _create(name, [op.result.type], [left, right], op)


_RULES: dict[str, Callable[[ir.Operation], ir.Value | None]] = {
    "math.fpowi": _power,
    "math.powf": _power,
    "arith.divf": _quotient,
    "arith.truncf": _rounded_constant,
    "arith.select": _extremum,
}
