"""Elementary functions of f32 as plain arithmetic, so that LLVM's loop vectorizer takes them along.

Relative errors are a few units in the last place (2^-23); those of sine and cosine are absolute, and hold for every
argument. Powers, f64 and rarer functions stay
calls of the C library. NaN, infinities and signed zeros come out as IEEE 754 wants; results below 2^-126
are flushed to zero in `exp`.
"""

from __future__ import annotations

import functools
import math as number
from collections.abc import Sequence
from decimal import Decimal, localcontext

from kitsune_mlir.codegen.math_digits import two_over_pi
from kitsune_mlir.mlir import arith, func, ir, math, replace_op, walk
from kitsune_mlir.operations import made_by

_LOG2_E = 1 / number.log(2)
_INFINITY = float("inf")
_LIBRARY = ("erf", "expm1", "log1p", "tanh")


def expand_math(module: ir.Module) -> None:
    """Replaces the f32 functions of the table at the end by arithmetic, everywhere in `module`."""
    _call_library(module)
    for op in walk(module, *_EXPANSIONS):
        if not isinstance(op.results[0].type, ir.F32Type):
            continue
        with module.context, op.location, ir.InsertionPoint(op):
            value = _EXPANSIONS[op.name](*op.operands)
        if value is not None:
            replace_op(op, value)


def _call_library(module: ir.Module) -> None:
    """These functions of f64 are the C library's. Upstream's passes know no call of erf, and write the others by
    exp(x) and log(1 + x), of whose digits nothing is left for small x."""
    for name in _LIBRARY:
        for op in walk(module, f"math.{name}"):
            kind = op.results[0].type
            if not isinstance(kind, ir.F64Type):
                continue
            with module.context, op.location:
                if not any("sym_name" in f.attributes and f.attributes["sym_name"].value == name for f in module.body):
                    top = ir.InsertionPoint.at_block_begin(module.body)
                    func.FuncOp(name, ([kind], [kind]), visibility="private", ip=top)
                call = func.CallOp([kind], name, [op.operands[0]], ip=ir.InsertionPoint(op))
            replace_op(op, call.result)


def _real(value: float, like: ir.Type | None = None) -> ir.Value:
    return arith.constant(like or ir.F32Type.get(), float(value))


def _int(value: int) -> ir.Value:
    return arith.constant(ir.IntegerType.get_signless(32), value)


def _bits(x: ir.Value) -> ir.Value:
    return arith.bitcast(ir.IntegerType.get_signless(32), x)


def _float(x: ir.Value) -> ir.Value:
    return arith.bitcast(ir.F32Type.get(), x)


def _compare(predicate: str, a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.cmpf(getattr(arith.CmpFPredicate, predicate.upper()), a, b)


def _fma(a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    return math.fma(a, b, c)


def _polynomial(x: ir.Value, coefficients: Sequence[float]) -> ir.Value:
    """Horner's scheme; coefficients from the constant up."""
    *rest, total = [_real(c, x.type) for c in coefficients]
    for coefficient in reversed(rest):
        total = _fma(total, x, coefficient)
    return total


def _exp(x: ir.Value) -> ir.Value:
    """exp(x) = 2^n exp(r) with n = round(x / ln 2). n is read off the low bits of n + 1.5 * 2^23."""
    inside = arith.maximumf(arith.minimumf(x, _real(89.0)), _real(-88.0))
    magic = _real(1.5 * 2**23)
    shifted = _fma(inside, _real(_LOG2_E), magic)
    n = arith.subf(shifted, magic)
    r = _fma(n, _real(-0.693359375), inside)  # ln 2 in two parts: the first has few bits, so n times it is exact
    r = _fma(n, _real(0.693359375 - number.log(2)), r)
    series = _polynomial(r, [1 / number.factorial(k) for k in range(8)])
    exponent = arith.subi(_bits(shifted), _bits(magic))
    half = arith.shrsi(exponent, _int(1))  # 2^128 is no f32, so the scaling goes in two steps
    value = arith.mulf(arith.mulf(series, _power_of_two(half)), _power_of_two(arith.subi(exponent, half)))
    return arith.select(_compare("olt", x, _real(-87.33654)), _real(0.0), value)


def _power_of_two(exponent: ir.Value) -> ir.Value:
    return _float(arith.shli(arith.addi(exponent, _int(127)), _int(23)))


def _log(x: ir.Value) -> ir.Value:
    """log(x) = e ln 2 + 2 artanh((m - 1) / (m + 1)) for x = m 2^e with m in [sqrt(1/2), sqrt(2))."""
    tiny = _compare("olt", x, _real(2.0**-126))
    normal = arith.select(tiny, arith.mulf(x, _real(2.0**23)), x)
    bits = _bits(normal)
    root_half = _int(0x3F3504F3)
    exponent = arith.shrsi(arith.subi(bits, root_half), _int(23))
    m = _float(arith.subi(bits, arith.shli(exponent, _int(23))))
    e = arith.subf(arith.sitofp(ir.F32Type.get(), exponent), arith.select(tiny, _real(23.0), _real(0.0)))
    s = arith.divf(arith.subf(m, _real(1.0)), arith.addf(m, _real(1.0)))
    square = arith.mulf(s, s)
    series = arith.mulf(square, _polynomial(square, [2 / 3, 2 / 5, 2 / 7, 2 / 9]))
    value = _fma(s, series, arith.addf(s, s))
    value = _fma(e, _real(number.log(2) - 0.693359375), value)
    value = _fma(e, _real(0.693359375), value)
    value = arith.select(_compare("ueq", x, _real(_INFINITY)), x, value)  # infinity and NaN stay
    value = arith.select(_compare("oeq", x, _real(0.0)), _real(-_INFINITY), value)
    return arith.select(_compare("olt", x, _real(0.0)), _real(float("nan")), value)


def _log1p(x: ir.Value) -> ir.Value:
    """log(u) x / (u - 1) with u the rounded 1 + x, whose rounding error thereby cancels (Kahan)."""
    u = arith.addf(_real(1.0), x)
    d = arith.subf(u, _real(1.0))
    value = arith.mulf(_log(u), arith.divf(x, d))  # the quotient is near 1: no product overflows
    value = arith.select(_compare("oeq", d, _real(0.0)), x, value)
    at_the_ends = arith.ori(_compare("oeq", u, _real(_INFINITY)), _compare("oeq", u, _real(0.0)))
    return arith.select(at_the_ends, _log(u), value)


def _expm1(x: ir.Value) -> ir.Value:
    """(u - 1) x / log(u) with u the rounded exp(x) (Kahan)."""
    u = _exp(x)
    d = arith.subf(u, _real(1.0))
    value = arith.mulf(d, arith.divf(x, _log(u)))
    value = arith.select(_compare("oeq", d, _real(0.0)), x, value)
    at_the_ends = arith.ori(_compare("oeq", u, _real(_INFINITY)), _compare("oeq", d, _real(-1.0)))
    return arith.select(at_the_ends, d, value)


def _sine(x: ir.Value, quarter: int) -> ir.Value:
    """sin(x + quarter pi/2), from the series about the nearest multiple q of pi/2."""
    double = ir.F64Type.get()
    wide, excess = _less_turns(x)
    magic = _real(1.5 * 2**52, double)
    shifted = _fma(wide, _real(2 / number.pi, double), magic)
    q = arith.subf(shifted, magic)
    r = _fma(q, _real(-number.pi / 2, double), wide)
    r = arith.subf(_fma(q, _real(-6.123233995736766e-17, double), r), excess)
    r = arith.truncf(ir.F32Type.get(), r)
    square = arith.mulf(r, r)
    sine = arith.mulf(_polynomial(square, [1, -1 / 6, 1 / 120, -1 / 5040, 1 / 362880]), r)
    cosine = _polynomial(square, [1, -1 / 2, 1 / 24, -1 / 720, 1 / 40320, -1 / 3628800])
    long = ir.IntegerType.get_signless(64)
    turn = arith.trunci(ir.IntegerType.get_signless(32), arith.bitcast(long, shifted))
    turn = arith.addi(turn, _int(quarter))
    odd = arith.cmpi(arith.CmpIPredicate.ne, arith.andi(turn, _int(1)), _int(0))
    sign = arith.shli(arith.andi(turn, _int(2)), _int(30))
    return _float(arith.xori(_bits(arith.select(odd, cosine, sine)), sign))


def _less_turns(x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """x less whole turns, as the difference of two f64, the first below 2^52.

    A huge x is m 2^k with a whole m below 2^50, for one of three k. As 2^k is a constant less whole turns, x is m times
    that constant, which is given in two parts; the product with the first is exact as the difference of two f64.
    """
    double = ir.F64Type.get()
    wide, size = arith.extf(double, x), math.absf(x)
    factor, correction = _real(1.0, double), _real(0.0, double)
    for reach, high, low in _turns():
        beyond = _compare("oge", size, _real(reach))
        factor = arith.select(beyond, _real(high, double), factor)
        correction = arith.select(beyond, _real(low, double), correction)
    product, negative = arith.mulf(wide, factor), arith.negf(wide)
    return product, _fma(negative, correction, _fma(negative, factor, product))


@functools.cache
def _turns() -> list[tuple[float, float, float]]:
    """(reach, high, low): from `reach` on, an f32 is a multiple of 2^k, and high + low = (2^k mod 2 pi) / 2^k."""
    digits = two_over_pi(400)  # 2/pi in fixed point, of 400 bits
    found = []
    with localcontext(prec=120):
        turn = 4 * Decimal(2) ** 400 / Decimal(digits)
        for k in (26, 52, 78):
            power = Decimal(2) ** k
            rest = (power - turn * (power / turn).to_integral_value()) / power
            found.append((2.0 ** (k + 24), float(rest), float(rest - Decimal(float(rest)))))
    return found


def _tanh(x: ir.Value) -> ir.Value:
    """1 - 2 / (exp(2|x|) + 1), and near zero, where that cancels, x (1 + x^2 P(x^2)) (a minimax fit)."""
    size = math.absf(x)
    grown = arith.addf(_exp(arith.addf(size, size)), _real(1.0))
    large = math.copysign(arith.subf(_real(1.0), arith.divf(_real(2.0), grown)), x)
    square = arith.mulf(x, x)
    series = _polynomial(square, [-0.333333293, 0.133327946, -0.0538540698, 0.0210100795, -0.00611318696])
    small = arith.mulf(_fma(square, series, _real(1.0)), x)  # keeps -0
    return arith.select(_compare("olt", size, _real(0.625)), small, large)


def _erf(x: ir.Value) -> ir.Value:
    """x P(x^2) below 1, 1 - exp(-Q(|x|)) above (minimax fits)."""
    size = arith.minimumf(math.absf(x), _real(4.0))
    tail = arith.subf(_real(1.0), _exp(arith.negf(_polynomial(size, _ERF_TAIL))))
    large = math.copysign(tail, x)
    small = arith.mulf(_polynomial(arith.mulf(x, x), _ERF_CENTRE), x)
    return arith.select(_compare("olt", size, _real(1.0)), small, large)


_ERF_CENTRE = (1.12837917, -0.376126271, 0.112836002, -0.0268544447, 0.00518953548, -0.000802084193, 7.88912012e-05)
_ERF_TAIL = (0.000256428602, 1.12742616, 0.637599917, 0.103567, -0.0220520507, 0.00299955437, -0.000191505565)


def _integer_power(x: ir.Value, exponent: ir.Value) -> ir.Value | None:
    """x^n for a constant n by repeated squaring; None when n is not known."""
    if made_by(exponent, "arith.constant") is None:
        return None
    n = exponent.owner.attributes["value"].value
    result, square, left = None, x, abs(n)
    while left:
        if left & 1:
            result = square if result is None else arith.mulf(result, square)
        left >>= 1
        square = arith.mulf(square, square) if left else square
    if result is None:
        return _real(1.0)
    return arith.divf(_real(1.0), result) if n < 0 else result


_EXPANSIONS = {
    "math.exp": _exp,
    "math.expm1": _expm1,
    "math.log": _log,
    "math.log1p": _log1p,
    "math.sin": lambda x: _sine(x, 0),
    "math.cos": lambda x: _sine(x, 1),
    "math.tanh": _tanh,
    "math.erf": _erf,
    "math.rsqrt": lambda x: arith.divf(_real(1.0), math.sqrt(x)),
    "math.fpowi": _integer_power,
}
