"""What is shortened in marked code before its functions are expanded: `simplify`. The mark `kitsune.fast_math` asks for
what is good to 16-bit elements; `kitsune.short_math` for f32 within a few units in the last place, but without
branches, for code that is repeated for every element.

    %n = arith.negf %x : f32                %h = arith.mulf %x, %half : f32
    %e = math.exp %n : f32              ->  %t = tanh.approx of %h
    %d = arith.addf %e, %one : f32
    %s = arith.divf %one, %d : f32          %s = math.fma %t, %half, %half : f32
    %y = arith.divf %x, %c : f32        ->  %y = arith.mulf %x, %reciprocal_of_c : f32
    %a = arith.addf %x, %one : f32      ->  %b = math.fma %y, %x, %y : f32
    %b = arith.mulf %y, %a : f32
    x 0.5 (erf(x sqrt(0.5)) + 1)        ->  math_fast.gelu, in whatever order it is multiplied
    %a = arith.mulf %x, %y : f32        ->  the same with `fastmath<contract>`, so that mulf and addf
    %b = arith.addf %a, %z : f32            become one fma

Only f32 scalars are looked at: that is what epilogues are written in. A quotient that is rounded to a whole number
afterwards stays a division, of which 49 / 49 is 1. Marked or not, a comparison in f64 of an f32
with a constant becomes one in f32. A sigmoid goes through tanh, whose absolute error is 2^-12, in fast code where all
that uses it are products (SiLU, gates); elsewhere, where a small one may be taken the logarithm of, it keeps its
exponential and takes the reciprocal by one instruction.
"""

from __future__ import annotations

from math import sqrt

from kitsune_mlir.codegen import math_exponential as exponential
from kitsune_mlir.codegen import math_fast
from kitsune_mlir.codegen.scalar import Scalar, fma, rounded
from kitsune_mlir.mlir import ir, replace_op, walk
from kitsune_mlir.operations import erase_unused, users_of

ROUNDING = {f"math.{name}" for name in ("ceil", "floor", "round", "roundeven", "trunc")}
ROUNDING |= {"arith.fptosi", "arith.fptoui", "arith.remf"}
FAST, SHORT = MARKS = ("kitsune.fast_math", "kitsune.short_math")
_CONTRACTED = ("arith.addf", "arith.mulf", "arith.subf")


def simplify(root: ir.Operation) -> None:
    """Rewrites, in place, what is marked under `root`."""
    for op in _marked_scalars(root, "arith.divf"):
        with op.context, op.location, ir.InsertionPoint(op):
            _divide(op)
    for op in _marked_scalars(root, "math.erf"):  # of products: a GELU may also divide by the root of 2
        _gelu(op)
    for op in _marked_scalars(root, "arith.mulf"):
        with op.context, op.location, ir.InsertionPoint(op):
            _multiply(op)
    for op in walk(root, "arith.cmpf"):
        with op.context, op.location, ir.InsertionPoint(op):
            _compare(op)
    for op in _marked_scalars(root, *_CONTRACTED):
        op.attributes["fastmath"] = ir.Attribute.parse("#arith.fastmath<contract>", op.context)


def _marked_scalars(root: ir.Operation, *names: str) -> list[ir.Operation]:
    return [op for op in walk(root, *names) if isinstance(op.results[0].type, ir.F32Type) and mark_of(op)]


def mark_of(op: ir.Operation) -> str | None:
    """The mark of the operation, or of the nearest around it that has one."""
    around: ir.Operation | None = op
    while around is not None:
        for mark in MARKS:
            if mark in around.attributes:
                return mark
        parent = around.parent
        around = None if parent is None else parent.operation
    return None


def is_rounded(value: ir.Value) -> bool:
    """Whether something computed from the value is rounded to a whole number, which must not be off by one."""
    seen, left = set(), [value]
    while left:
        for use in left.pop().uses:
            user = use.owner.operation
            if user.name in ROUNDING:
                return True
            if user.name.startswith(("arith.", "math.")) and user not in seen:
                seen.add(user)
                left.extend(user.results)
    return False


def constant_number(value: ir.Value) -> float | int | None:
    """The number that a scalar arith.constant gives."""
    maker = _maker(value, "arith.constant")
    return None if maker is None else maker.attributes["value"].value


def _divide(op: ir.Operation) -> None:
    if is_rounded(op.results[0]):
        return
    above, below = op.operands
    divisor = constant_number(below)
    if divisor is not None and 2.0**-126 <= abs(divisor) <= 2.0**126:
        _replace(op, Scalar(above) * (1.0 / divisor))
    elif constant_number(above) == 1.0:
        parts, users = _parts_of_sigmoid(below), [user.name for user in users_of(op.results[0])]
        if parts and mark_of(op) == SHORT:
            _replace(op, exponential.sigmoid(Scalar(parts[-1].operands[0])))
        elif parts and set(users) == {"arith.mulf"}:
            _gate(op, Scalar(parts[-1].operands[0]))
        else:
            _replace(op, math_fast.reciprocal(Scalar(below)))
        for part in parts:
            erase_unused(part)


def _parts_of_sigmoid(below: ir.Value) -> list[ir.Operation]:
    """addf, exp and negf, when `below` is 1 + e^-x and only one operation uses it and e^-x; else nothing."""
    total = _maker(below, "arith.addf", alone=True)
    if total is None:
        return []
    left, right = total.operands
    power = right if constant_number(left) == 1.0 else left if constant_number(right) == 1.0 else None
    raised = None if power is None else _maker(power, "math.exp", alone=True)
    negated = None if raised is None else _maker(raised.operands[0], "arith.negf")
    return [] if negated is None else [total, raised, negated]


def _gate(op: ir.Operation, x: Scalar) -> None:
    """Replaces a sigmoid of x that only products use: those with x itself by `silu`."""
    gate = op.results[0]
    for user in users_of(gate):
        left, right = user.operands
        if (left == gate and right == x.value) or (right == gate and left == x.value):
            with user.location, ir.InsertionPoint(user):
                _replace(user, math_fast.silu(x))
    if list(gate.uses):
        _replace(op, math_fast.sigmoid(x))
    else:
        op.erase()


def _gelu(erf: ir.Operation) -> None:
    """Replaces x 0.5 (erf(x sqrt(0.5)) + 1), when nothing else uses its parts."""
    scaled = _maker(erf.operands[0], "arith.mulf")
    users = users_of(erf.results[0])
    if scaled is None or len(users) != 1 or users[0].name != "arith.addf" or 1.0 not in _constants(users[0]):
        return
    root = [c for c in _constants(scaled) if abs(c - sqrt(0.5)) < 1e-6]
    if not root:
        return
    x = next((operand for operand in scaled.operands if constant_number(operand) is None), None)
    if x is None:
        return
    product, factors = users[0], []
    while len(factors) < 2 and not (len(factors) == 1 and _is_half_of(factors[0], x)):
        users = users_of(product.results[0])
        if len(users) != 1 or users[0].name != "arith.mulf":
            return
        (factor,) = [operand for operand in users[0].operands if operand != product.results[0]] or [None]
        if factor is None:
            return
        product, factors = users[0], [*factors, factor]
    if len(factors) == 2 and not (x in factors and 0.5 in [constant_number(factor) for factor in factors]):
        return
    with product.context, product.location, ir.InsertionPoint(product):
        _replace(product, (math_fast.gelu if mark_of(product) == FAST else exponential.gelu)(Scalar(x)))


def _constants(op: ir.Operation) -> list[float]:
    """Those among an operation's operands."""
    return [number for operand in op.operands if (number := constant_number(operand)) is not None]


def _is_half_of(value: ir.Value, x: ir.Value) -> bool:
    half = _maker(value, "arith.mulf")
    return half is not None and x in list(half.operands) and 0.5 in _constants(half)


def _multiply(op: ir.Operation) -> None:
    """a (b + 1) and, for constants, c (b + k)."""
    for factor, total in (tuple(op.operands), tuple(reversed(op.operands))):
        addition = _maker(total, "arith.addf", alone=True)
        if addition is None:
            continue
        for term, constant in (tuple(addition.operands), tuple(reversed(addition.operands))):
            number, scale = constant_number(constant), constant_number(factor)
            if number is None or (scale is None and number != 1.0):
                continue
            offset = Scalar(factor) if scale is None else number * scale
            if isinstance(offset, float) and rounded(offset) != offset:
                continue  # where b is near -k, the sum is exact and the rounded product c k would not be
            _replace(op, fma(Scalar(term), Scalar(factor), offset))
            addition.erase()
            return


def _compare(op: ir.Operation) -> None:
    """An f32 widened to be compared with an f64 constant that f32 has too, as torch's thresholds are."""
    value, limit = op.operands
    widened, number = _maker(value, "arith.extf"), constant_number(limit)
    if widened is None or number is None or not isinstance(widened.operands[0].type, ir.F32Type):
        return
    if abs(number) < 2.0**127 and rounded(number) == number:
        op.operands[0] = widened.operands[0]
        op.operands[1] = Scalar(widened.operands[0]).const(number).value


def _maker(value: ir.Value, name: str, alone: bool = False) -> ir.Operation | None:
    """The operation of that name which makes the value; `alone`: for one use."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.operation.name != name:
        return None
    return None if alone and len(list(value.uses)) != 1 else owner.operation


def _replace(op: ir.Operation, result: Scalar) -> None:
    replace_op(op, result.value)
