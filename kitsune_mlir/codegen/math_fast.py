"""The *fast* forms of the elementary functions: f32, branch-free, and short, for code repeated for every element.

Good to the 8 bits of bf16 and nearly always to the 11 of f16: a relative error below 2^-11 or, where terms
cancel, an absolute one of 1e-6. Each takes one or two instructions of the special function unit, which
executes 16 a clock on a multiprocessor. Subnormal numbers may count as zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import log, pi

import numpy as np

from kitsune_mlir.codegen import math_tables as tables
from kitsune_mlir.codegen.math_digits import two_over_pi
from kitsune_mlir.codegen.scalar import Scalar, approximate, fma, polynomial, select
from kitsune_mlir.mlir import ir, llvm

LN2 = log(2.0)
_FAR = 16.0  # N(-16) is no f32
TURNS = "kitsune_turns"  # the table of `_turn`, a global of the module around the kernels
_GLOBAL = 1  # its address space on a GPU


def exp(x: Scalar) -> Scalar:
    """e^x."""
    return exp2(x * (1.0 / LN2))


def exp2(x: Scalar) -> Scalar:
    """2^x."""
    return approximate("ex2.approx.ftz.f32", x)


def expm1(x: Scalar) -> Scalar:
    """e^x - 1, accurate near 0."""
    near = x * polynomial(x, (1.0, 1 / 2, 1 / 6, 1 / 24))
    return select(abs(x) < 0.125, near, exp(x) - 1.0)


def log2(x: Scalar) -> Scalar:
    """The logarithm to base 2."""
    return approximate("lg2.approx.f32", x)


def log_e(x: Scalar) -> Scalar:
    """The natural logarithm."""
    return log2(x) * LN2


def log10(x: Scalar) -> Scalar:
    """The logarithm to base 10."""
    return log2(x) * (LN2 / log(10.0))


def log1p(x: Scalar) -> Scalar:
    """log(1 + x), accurate near 0."""
    near = x * polynomial(x, (1.0, -1 / 2, 1 / 3))
    return select(abs(x) < 2.0**-5, near, log_e(x + 1.0))


def tanh(x: Scalar) -> Scalar:
    """The hyperbolic tangent."""
    return approximate("tanh.approx.f32", x)


def sqrt(x: Scalar) -> Scalar:
    """The square root."""
    return approximate("sqrt.approx.f32", x)


def reciprocal(x: Scalar) -> Scalar:
    """1 / x, for |x| below 2^126."""
    return approximate("rcp.approx.ftz.f32", x)


def divide(x: Scalar, y: Scalar) -> Scalar:
    """x / y, for |y| below 2^126."""
    return approximate("div.approx.ftz.f32", x, y)


def _erfc_of_size(x: Scalar) -> Scalar:
    """erfc(|x|) as 2^(|x| p(|x|)), which falls to 0 without a bound on x."""
    size = abs(x)
    return exp2(size * polynomial(size, tables.ERFC_FAST))


def erf(x: Scalar) -> Scalar:
    """The error function; absolute error below 1e-6."""
    return (1.0 - _erfc_of_size(x)).copysign(x)


def erfc(x: Scalar) -> Scalar:
    """1 - erf(x); absolute error below 1e-6."""
    far = _erfc_of_size(x)
    return select(x < 0.0, 2.0 - far, far)


def _least(x: Scalar, bound: float) -> Scalar:
    """The lesser of the two; the bound for NaN."""
    return Scalar(llvm.MinNumOp(x.value, x.const(bound).value).result)


def gelu(x: Scalar) -> Scalar:
    """x N(x), N being the normal distribution function; relative error below 2^-11 from -6 on, 1e-8 below."""
    return gelu_by_tail(x, _FAR, tables.LOWER_TAIL_FAST)


def gelu_by_tail(x: Scalar, far: float, tail: Sequence[float]) -> Scalar:
    """x N(x) as max(x, 0) - |x| N(-|x|), where nothing cancels. N(-a) is 2^p(a), `tail` the coefficients of p, for a up
    to `far`. The positive part is taken so that infinities and NaN come out as of the product, |x| being bounded."""
    size, negative = _least(abs(x), far), _least(x, 0.0)
    return fma(-size, exp2(polynomial(size, tail)), x - negative)


@cache
def _turn_table() -> np.ndarray:
    """[256] uint64, by the biased exponent e of an f32: 2^(e - 150) / (2 pi) modulo 1, in units of 2^-64."""
    digits = 320  # 2^127 times the last of them is far below the unit
    return np.array([((two_over_pi(digits) << e) >> (digits + 150 + 2 - 64)) % 2**64 for e in range(256)], np.uint64)


def _table_address() -> ir.Value:
    """The address of the table in the module around the insertion point, which gets it when it has none yet."""
    module = ir.InsertionPoint.current.block.owner.operation
    while module.name not in ("gpu.module", "builtin.module"):
        module = module.parent.operation
    space = _GLOBAL if module.name == "gpu.module" else 0
    body = module.regions[0].blocks[0]
    if TURNS not in ir.SymbolTable(module):
        with ir.InsertionPoint.at_block_begin(body):
            llvm.GlobalOp(
                ir.Type.parse("!llvm.array<256 x i64>"),
                TURNS,
                ir.Attribute.parse("#llvm.linkage<internal>"),
                constant=True,
                value=ir.DenseElementsAttr.get(_turn_table().view(np.int64)),
                addr_space=space,
                alignment=8,
            )
    return llvm.AddressOfOp(ir.Type.parse(f"!llvm.ptr<{space}>"), TURNS).result


def _turn(x: Scalar) -> Scalar:
    """|x| less whole turns, from -pi to pi; NaN for infinities and NaN.

    With |x| = m 2^(e - 150), the product of m and the table's word of e counts turns in 2^-64, modulo 1.
    """
    bits = x.bits()
    i64, i8 = ir.IntegerType.get_signless(64), ir.IntegerType.get_signless(8)
    exponent = ((bits >> 23) & 0xFF).to_int(64)
    base = _table_address()
    place = llvm.GEPOp(base.type, base, [(exponent << 3).value], [-(2**31)], i8, 0).result
    word = Scalar(llvm.LoadOp(i64, place, alignment=8, invariant=True).result)
    mantissa = ((bits & 0x7FFFFF) | 0x800000).to_int(64)
    fraction = ((mantissa * word) >> 32).to_int(32)
    return fma(x, 0.0, fraction.to_real(x) * (2 * pi * 2.0**-32))


def sin(x: Scalar) -> Scalar:
    """The sine; absolute error below 1e-6, and relatively accurate near 0."""
    far = approximate("sin.approx.ftz.f32", _turn(x))
    turned = (far.bits() ^ (x.bits() & -(2**31))).as_real(x)
    return select(abs(x) < 0.0625, fma(x * x * x, -1 / 6, x), turned)


def cos(x: Scalar) -> Scalar:
    """The cosine; absolute error below 1e-6."""
    return approximate("cos.approx.ftz.f32", _turn(x))


def tan(x: Scalar) -> Scalar:
    """The tangent, as accurate as sine and cosine are."""
    return divide(sin(x), cos(x))


def sigmoid(x: Scalar) -> Scalar:
    """1 / (1 + e^-x), with the absolute error of tanh.approx, 2^-12."""
    return fma(tanh(x * 0.5), 0.5, 0.5)


def silu(x: Scalar) -> Scalar:
    """x / (1 + e^-x), with an absolute error of 2^-12 |x|.

    In three instructions. As for `gelu`, right to bf16 far below zero, it would take ten and more: the logarithm of
    the lower tail bends where the function is not small yet, and needs a polynomial of degree 6."""
    half = x * 0.5
    return fma(half, tanh(half), half)
