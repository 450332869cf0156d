"""The math dialect in device code, without libdevice: `expand_math`.

Each operation of the math dialect that has no instruction of its own becomes arith operations
and the approximate instructions of the special function unit, accurate to the data type:

    %y = math.tanh %x : bf16
->  %0 = arith.extf %x : bf16 to f32
    %1 = llvm.inline_asm "tanh.approx.f32 $0, $1;", "=f,f" %0 : (f32) -> f32
    %y = arith.truncf %1 : f32 to bf16

f16 and bf16 are computed in f32. The *fast* forms (codegen/math_fast.py), good to the 8 bits of bf16, are taken
for bf16 operations and for all those in an operation with the unit attribute `kitsune.fast_math` (a gpu.func, a
gpu.module), where `simplify` comes first. With the attribute `kitsune.short_math` f32 keeps its accuracy, but quotients
and roots are not rounded correctly, which takes branches. absf, floor, fma, sqrt and their like are exact
instructions, reached through LLVM's intrinsics.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, prod

from kitsune_mlir.codegen import math_circular as circular
from kitsune_mlir.codegen import math_exponential as exponential
from kitsune_mlir.codegen import math_fast as fast_form
from kitsune_mlir.codegen.math_simplify import FAST, SHORT, constant_number, is_rounded, mark_of, simplify
from kitsune_mlir.codegen.scalar import Scalar, approximate
from kitsune_mlir.mlir import arith, ir, llvm, replace_op, vector, walk

_FAST: dict[str, Callable[..., Scalar]] = {
    "arith.divf": fast_form.divide,
    "math.cos": fast_form.cos,
    "math.erf": fast_form.erf,
    "math.erfc": fast_form.erfc,
    "math.exp": fast_form.exp,
    "math.exp2": fast_form.exp2,
    "math.expm1": fast_form.expm1,
    "math.log": fast_form.log_e,
    "math.log10": fast_form.log10,
    "math.log1p": fast_form.log1p,
    "math.log2": fast_form.log2,
    "math.sin": fast_form.sin,
    "math.sqrt": fast_form.sqrt,
    "math.tan": fast_form.tan,
    "math.tanh": fast_form.tanh,
}
_EXACT: dict[str, Callable[..., Scalar]] = {
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
    "math.exp": exponential.exp,
    "math.exp2": exponential.exp2,
    "math.expm1": exponential.expm1,
    "math.isfinite": lambda x: abs(x) < inf,
    "math.isinf": lambda x: abs(x).equals(inf),
    "math.isnan": Scalar.is_nan,
    "math.isnormal": lambda x: (abs(x) >= (2.0**-126 if x.single else 2.0**-1022)) & (abs(x) < inf),
    "math.log": exponential.log_e,
    "math.log10": exponential.log10,
    "math.log1p": exponential.log1p,
    "math.log2": exponential.log2,
    "math.rsqrt": circular.rsqrt,
    "math.sin": circular.sin,
    "math.sinh": exponential.sinh,
    "math.tan": circular.tan,
    "math.tanh": exponential.tanh,
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

# In marked code, without the branches of what rounds correctly (PTX ISA 9.7.3): within 2 units in the last place.
_SHORT = {"arith.divf": "div.full.f32", "math.sqrt": "sqrt.approx.f32"}

_BITS = {"math.ctlz": "llvm.ctlz", "math.ctpop": "llvm.ctpop", "math.cttz": "llvm.cttz"}


def expand_math(root: ir.Operation) -> None:
    """Rewrites, in place, every math operation (and arith.remf) under `root` on scalars and vectors."""
    simplify(root)
    functions = walk(root, "arith.divf", *_EXACT, *_SPECIAL, *_NATIVE)
    exact = {op for op in functions if op.name == "arith.divf" and is_rounded(op.results[0])}
    for op in functions:
        with op.context, op.location, ir.InsertionPoint(op):
            kind = op.operands[0].type
            fast = _is_fast(op, kind.element_type if isinstance(kind, ir.VectorType) else kind)
            if _stays(op, kind, fast):
                continue
            if isinstance(kind, ir.VectorType):
                _unroll(op, kind, fast)
            else:
                _expand(op, fast)
    for op in walk(root, *_SHORT, *_NATIVE, *_BITS):
        kind = op.results[0].type
        if op.name in _SHORT and isinstance(kind, ir.F32Type) and mark_of(op) == SHORT and op not in exact:
            with op.context, op.location, ir.InsertionPoint(op):
                short = approximate(_SHORT[op.name], *(Scalar(operand) for operand in op.operands))
            replace_op(op, short.value)
            continue
        if op.name == "arith.divf":
            continue
        with op.context, op.location, ir.InsertionPoint(op):
            operands = list(op.operands)
            if op.name in ("math.ctlz", "math.cttz"):  # of 0: the width
                operands.append(arith.constant(ir.IntegerType.get_signless(1), 0))
            name = f"{(_NATIVE | _BITS)[op.name]}.{_suffix(kind)}"
            called = llvm.call_intrinsic(kind, name, operands, [], [])
            replace_op(op, called)


def _suffix(kind: ir.Type) -> str:
    """How LLVM's names of overloaded intrinsics spell a type: f32, i64, v4f32."""
    if isinstance(kind, ir.VectorType):
        return f"v{prod(kind.shape)}{_suffix(kind.element_type)}"
    return f"{'i' if isinstance(kind, ir.IntegerType) else 'f'}{kind.width}"


def _is_narrow(kind: ir.Type) -> bool:
    return isinstance(kind, ir.FloatType) and kind.width < 32


def _is_fast(op: ir.Operation, kind: ir.Type) -> bool:
    if isinstance(kind, ir.BF16Type):
        return True
    return isinstance(kind, ir.F16Type | ir.F32Type) and mark_of(op) == FAST


def _stays(op: ir.Operation, kind: ir.Type, fast: bool) -> bool:
    """Whether LLVM has what the operation needs."""
    if fast and op.name in _FAST:
        return False
    element = kind.element_type if isinstance(kind, ir.VectorType) else kind
    return op.name == "arith.divf" or (op.name in _NATIVE and not _is_narrow(element))


def _expand(op: ir.Operation, fast: bool) -> None:
    """Replaces one scalar operation."""
    narrow = _is_narrow(op.operands[0].type)
    wide = ir.F32Type.get()
    values = [
        arith.extf(wide, value) if narrow and isinstance(value.type, ir.FloatType) else value for value in op.operands
    ]
    if op.name in _NATIVE and not (fast and op.name in _FAST):
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
        case "math.sincos":
            forms = (fast_form.sin, fast_form.cos) if fast else (circular.sin, circular.cos)
            return [form(arguments[0]) for form in forms]
        case "math.clampf":
            value, low, high = (argument.value for argument in arguments)
            return [Scalar(arith.minimumf(arith.maximumf(value, low), high))]
        case "math.powf" | "math.fpowi" | "math.ipowi":
            return [_power(op, *arguments, fast=fast)]
    form = _FAST[op.name] if fast and op.name in _FAST else _EXACT[op.name]
    return [form(*arguments)]


def _power(op: ir.Operation, base: Scalar, exponent: Scalar, fast: bool) -> Scalar:
    known = constant_number(op.operands[1])
    if known is not None and float(known).is_integer() and abs(known) <= 64 and (known >= 0 or base.real):
        return exponential.whole_power(base, int(known))
    if known == 0.5:
        return fast_form.sqrt(base) if fast else base.sqrt()
    if known == -0.5:
        return circular.rsqrt(base)
    if exponent.real:
        return exponential.power(base, exponent, fast)
    return exponential.integer_power(base, exponent)


def _unroll(op: ir.Operation, kind: ir.VectorType, fast: bool) -> None:
    """One scalar operation for each element, which is then expanded."""
    elements = range(kind.shape[0])
    if kind.rank != 1:  # nested arrays of vectors: by the flat vector
        flat = ir.VectorType.get([prod(kind.shape)], kind.element_type)
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
            _expand(scalar, fast)
