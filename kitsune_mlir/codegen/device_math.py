"""The math dialect in device code, without libdevice: `expand_math`.

Each operation of the math dialect that has no instruction of its own becomes arith operations
and the approximate instructions of the special function unit, accurate to the data type:

    %y = math.tanh %x : bf16
->  %0 = arith.extf %x : bf16 to f32
    %1 = llvm.inline_asm "tanh.approx.f32 $0, $1;", "=f,f" %0 : (f32) -> f32
    %y = arith.truncf %1 : f32 to bf16

f16 and bf16 are computed in f32. The *fast* forms, good to the 8 bits of bf16, are taken for bf16 operations
and for all those in an operation with the unit attribute `kitsune.fast_math` (a gpu.func, a gpu.module).
absf, floor, fma, sqrt and their like are exact instructions, reached through LLVM's intrinsics.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from kitsune_mlir.codegen import math_circular as circular
from kitsune_mlir.codegen import math_exponential as exponential
from kitsune_mlir.codegen.scalar import Scalar
from kitsune_mlir.mlir import arith, ir, llvm, vector, walk

FAST = "kitsune.fast_math"

_WITH_FAST: dict[str, Callable[..., Scalar]] = {
    "math.exp": exponential.exp,
    "math.log": exponential.log_e,
    "math.log2": exponential.log2,
    "math.log10": exponential.log10,
    "math.tanh": exponential.tanh,
}
_ONE_FORM: dict[str, Callable[..., Scalar]] = {
    "math.absi": abs,
    "math.acos": circular.acos,
    "math.acosh": exponential.acosh,
    "math.asin": circular.asin,
    "math.asinh": exponential.asinh,
    "math.atan": circular.atan,
    "math.atan2": circular.atan2,
    "math.atanh": exponential.atanh,
    "math.cbrt": exponential.cbrt,
    "math.cos": circular.cos,
    "math.cosh": exponential.cosh,
    "math.erf": circular.erf,
    "math.erfc": circular.erfc,
    "math.exp2": exponential.exp2,
    "math.expm1": exponential.expm1,
    "math.isfinite": lambda x: abs(x) < inf,
    "math.isinf": lambda x: abs(x).equals(inf),
    "math.isnan": Scalar.is_nan,
    "math.isnormal": lambda x: (abs(x) >= (2.0**-126 if x.single else 2.0**-1022)) & (abs(x) < inf),
    "math.log1p": exponential.log1p,
    "math.rsqrt": circular.rsqrt,
    "math.sin": circular.sin,
    "math.sinh": exponential.sinh,
    "math.tan": circular.tan,
    "arith.remf": circular.remainder,
}
_SPECIAL = ("math.powf", "math.fpowi", "math.ipowi", "math.sincos", "math.clampf", "arith.divf")
# Become calls of LLVM intrinsics. (The conversion of the gpu dialect would make libdevice calls of them.)
_NATIVE = {
    "math.absf": "llvm.fabs",
    "math.ceil": "llvm.ceil",
    "math.copysign": "llvm.copysign",
    "math.floor": "llvm.floor",
    "math.fma": "llvm.fma",
    "math.round": "llvm.round",
    "math.roundeven": "llvm.roundeven",
    "math.sqrt": "llvm.sqrt",
    "math.trunc": "llvm.trunc",
}

_BITS = {"math.ctlz": "llvm.ctlz", "math.ctpop": "llvm.ctpop", "math.cttz": "llvm.cttz"}


def expand_math(root: ir.Operation) -> None:
    """Rewrites, in place, every math operation (and arith.remf) under `root` on scalars and vectors."""
    for op in walk(root, *_WITH_FAST, *_ONE_FORM, *_SPECIAL, *_NATIVE):
        with op.context, op.location, ir.InsertionPoint(op):
            kind = op.operands[0].type
            if isinstance(kind, ir.VectorType):
                if op.name not in _NATIVE or _is_narrow(kind.element_type):
                    _unroll(op, kind)
            else:
                _expand(op)
    for op in walk(root, *_NATIVE, *_BITS):
        with op.context, op.location, ir.InsertionPoint(op):
            kind, operands = op.results[0].type, list(op.operands)
            if op.name in ("math.ctlz", "math.cttz"):  # of 0: the width
                operands.append(arith.constant(ir.IntegerType.get_signless(1), 0))
            name = f"{(_NATIVE | _BITS)[op.name]}.{_suffix(kind)}"
            called = llvm.call_intrinsic(kind, name, operands, [], [])
            op.results[0].replace_all_uses_with(called)
            op.erase()


def _suffix(kind: ir.Type) -> str:
    """How LLVM's names of overloaded intrinsics spell a type: f32, i64, v4f32."""
    if isinstance(kind, ir.VectorType):
        return f"v{_count(kind.shape)}{_suffix(kind.element_type)}"
    return f"{'i' if isinstance(kind, ir.IntegerType) else 'f'}{kind.width}"


def _is_narrow(kind: ir.Type) -> bool:
    return isinstance(kind, ir.FloatType) and kind.width < 32


def _expand(op: ir.Operation) -> None:
    """Replaces one scalar operation, unless it may stay."""
    kind = op.operands[0].type
    narrow = _is_narrow(kind)
    fast = isinstance(kind, ir.BF16Type) or _marked_fast(op)
    if op.name in _NATIVE and not narrow:
        return
    if op.name == "arith.divf" and not (fast and isinstance(kind, ir.BF16Type | ir.F16Type | ir.F32Type)):
        return
    wide = ir.F32Type.get()
    values = [
        arith.extf(wide, value) if narrow and isinstance(value.type, ir.FloatType) else value for value in op.operands
    ]
    if op.name in _NATIVE:
        results = list(ir.Operation.create(op.name, results=[wide], operands=values).results)
    else:
        results = [result.value for result in _computed(op, [Scalar(value) for value in values], fast)]
    for old, new in zip(op.results, results, strict=True):
        if narrow and isinstance(old.type, ir.FloatType):
            new = arith.truncf(old.type, new)
        old.replace_all_uses_with(new)
    op.erase()


def _computed(op: ir.Operation, arguments: list[Scalar], fast: bool) -> list[Scalar]:
    """The results of an operation on f32 or f64 (or integers)."""
    match op.name:
        case "arith.divf":
            asm = llvm.inline_asm(
                arguments[0].value.type, [a.value for a in arguments], "div.full.f32 $0, $1, $2;", "=f,f,f"
            )
            return [Scalar(asm)]
        case "math.sincos":
            return [circular.sin(arguments[0]), circular.cos(arguments[0])]
        case "math.clampf":
            value, low, high = (argument.value for argument in arguments)
            return [Scalar(arith.minimumf(arith.maximumf(value, low), high))]
        case "math.powf" | "math.fpowi" | "math.ipowi":
            return [_power(op, *arguments, fast=fast)]
    if op.name in _WITH_FAST:
        return [_WITH_FAST[op.name](*arguments, fast=fast)]
    return [_ONE_FORM[op.name](*arguments)]


def _power(op: ir.Operation, base: Scalar, exponent: Scalar, fast: bool) -> Scalar:
    known = _constant(op.operands[1])
    if known is not None and float(known).is_integer() and abs(known) <= 64 and (known >= 0 or base.real):
        return exponential.whole_power(base, int(known))
    if known == 0.5:
        return base.sqrt()
    if known == -0.5:
        return circular.rsqrt(base)
    if exponent.real:
        return exponential.power(base, exponent, fast)
    return exponential.integer_power(base, exponent)


def _constant(value: ir.Value) -> float | int | None:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.operation.name != "arith.constant":
        return None
    return owner.operation.attributes["value"].value


def _marked_fast(op: ir.Operation) -> bool:
    around: ir.Operation | None = op
    while around is not None:
        if FAST in around.attributes:
            return True
        parent = around.parent
        around = None if parent is None else parent.operation
    return False


def _unroll(op: ir.Operation, kind: ir.VectorType) -> None:
    """One scalar operation for each element, which is then expanded."""
    elements = range(kind.shape[0])
    if kind.rank != 1:  # nested arrays of vectors: by the flat vector
        flat = ir.VectorType.get([_count(kind.shape)], kind.element_type)
        elements = range(flat.shape[0])
        operands = [
            vector.shape_cast(ir.VectorType.get(flat.shape, operand.type.element_type), operand)
            for operand in op.operands
        ]
    else:
        operands = list(op.operands)
    scalars = []
    for index in elements:
        parts = [vector.extract(operand, [], [index]) for operand in operands]
        types = [result.type.element_type for result in op.results]
        attributes = {name: op.attributes[name] for name in op.attributes}
        scalars.append(ir.Operation.create(op.name, results=types, operands=parts, attributes=attributes))
    for position, result in enumerate(op.results):
        flat = ir.VectorType.get([len(scalars)], result.type.element_type)
        whole = vector.from_elements(flat, [scalar.results[position] for scalar in scalars])
        result.replace_all_uses_with(whole if flat == result.type else vector.shape_cast(result.type, whole))
    op.erase()
    for scalar in scalars:
        with ir.InsertionPoint(scalar):
            _expand(scalar)


def _count(shape: list[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total
