"""exp, log, pow and the hyperbolic functions on f32 and f64 `Scalar`s, without libdevice.

f32: at most a few units in the last place (pow, `fast`: good to the 8 bits of bf16). f64: about 1e-15, pow 1e-13.
Infinities and NaN come out as IEEE 754 (and torch) has them; the sign of a zero may be lost.
"""

from __future__ import annotations

from decimal import Decimal
from math import e as E
from math import inf, log, nan

from kitsune_mlir.codegen import math_fast
from kitsune_mlir.codegen import math_tables as tables
from kitsune_mlir.codegen.scalar import Scalar, approximate, fma, loop, polynomial, rounded, select

LN2, LOG2E, LOG10E = log(2.0), 1.0 / log(2.0), 1.0 / log(10.0)
_LOG2E_HIGH = rounded(LOG2E)
_LOG2E_LOW = LOG2E - _LOG2E_HIGH
# The high part has 32 bits, so that a whole number times it is exact in f64.
_LN2_HIGH = rounded(LN2, 32)
_LN2_LOW = float(Decimal("0.69314718055994530941723212145817656807550013436026") - Decimal(_LN2_HIGH))


def exp(x: Scalar) -> Scalar:
    """e^x."""
    if not x.single:
        bounded = x.clamp(-750.0, 710.0)
        whole = (bounded * LOG2E).rint()
        rest = fma(whole, -_LN2_LOW, fma(whole, -_LN2_HIGH, bounded))
        return select(x.is_nan(), x, _scale(polynomial(rest, tables.EXP_64), whole))
    # The product x log2(e) is carried in two parts: rounding it alone costs |x| units in the last place.
    bounded = x.clamp(-110.0, 100.0)
    power = bounded * _LOG2E_HIGH
    return _exp2_of_sum(power, fma(bounded, _LOG2E_LOW, fma(bounded, _LOG2E_HIGH, -power)))


def exp2(x: Scalar) -> Scalar:
    """2^x."""
    if x.single:
        return approximate("ex2.approx.f32", x)
    bounded = x.clamp(-1080.0, 1025.0)
    whole = bounded.rint()
    return select(x.is_nan(), x, _scale(polynomial((bounded - whole) * LN2, tables.EXP_64), whole))


def expm1(x: Scalar) -> Scalar:
    """e^x - 1, accurate near 0."""
    table = tables.EXPM1_32 if x.single else tables.EXPM1_64
    return select(abs(x) < 0.5, fma(x * x, polynomial(x, table), x), exp(x) - 1.0)


def _exp2_of_sum(high: Scalar, low: Scalar) -> Scalar:
    """2^(high + low) in f32 for a |low| far below 1."""
    return approximate("ex2.approx.f32", high) * fma(low, LN2, 1.0)


def _scale(x: Scalar, exponent: Scalar) -> Scalar:
    """f64 x * 2^exponent for a whole float exponent; in two steps, so that subnormal results are reached."""
    count = exponent.to_int(64)
    half = count >> 1
    return x * ((half + 1023) << 52).as_real(x) * ((count - half + 1023) << 52).as_real(x)


def _log_parts(x: Scalar) -> tuple[Scalar, Scalar]:
    """(k, log(m)) with x = m 2^k and 2/3 <= m < 4/3, for positive finite x."""
    mantissa, lift, least = (23, 24, 2.0**-126) if x.single else (52, 54, 2.0**-1022)
    tiny = x < least
    lifted = select(tiny, x * 2.0**lift, x)
    two_thirds = x.const(2 / 3).bits()
    power = (lifted.bits() - two_thirds) >> mantissa
    f = (lifted.bits() - (power << mantissa)).as_real(x) - 1.0
    exponent = power.to_real(x) + select(tiny, x.const(-lift), 0.0)
    if x.single:
        return exponent, fma(f * f, polynomial(f, tables.LOG1P_32), f)
    s = f / (f + 2.0)
    square = s * s
    return exponent, fma(square * s, polynomial(square, tables.ATANH_64), s + s)


def _log_domain(x: Scalar, result: Scalar) -> Scalar:
    finite = select(x < inf, result, x)
    return select(x <= 0.0, select(x.equals(0.0), x.const(-inf), nan), finite)


def log_e(x: Scalar) -> Scalar:
    """The natural logarithm."""
    exponent, rest = _log_parts(x)
    if x.single:
        return _log_domain(x, fma(exponent, LN2, rest))
    return _log_domain(x, fma(exponent, _LN2_HIGH, fma(exponent, _LN2_LOW, rest)))


def log2(x: Scalar) -> Scalar:
    """The logarithm to base 2."""
    exponent, rest = _log_parts(x)
    return _log_domain(x, fma(rest, LOG2E, exponent))


def log10(x: Scalar) -> Scalar:
    """The logarithm to base 10."""
    exponent, rest = _log_parts(x)
    return _log_domain(x, fma(exponent, LN2 * LOG10E, rest * LOG10E))


def log1p(x: Scalar) -> Scalar:
    """log(1 + x), accurate near 0: what 1 + x loses to rounding is added back to first order."""
    u = x + 1.0
    lost = x - (u - 1.0)
    return log_e(u) + select(lost.differs(0.0), lost / u, 0.0)


def power(x: Scalar, y: Scalar, fast: bool = False) -> Scalar:
    """x^y for any x and y, by the rules of IEEE 754's pow."""
    size = abs(x)
    if x.single and fast:
        raised = math_fast.exp2(y * math_fast.log2(size))
    elif x.single:
        # log2 in f64: in f32 its rounding alone would cost |y log2(x)| units in the last place.
        double = size.to_double()
        product = y.to_real(double) * log2(double)
        high = product.to_real(x).clamp(-200.0, 200.0)
        low = (product - high.to_real(double)).to_real(x)
        raised = _exp2_of_sum(high, select(abs(low) < 1.0, low, 0.0))
    else:
        logarithm = log2(size)
        product = y * logarithm
        low = fma(y, logarithm, -product)
        raised = exp2(product) * select(abs(low) < 1.0, fma(low, LN2, 1.0), 1.0)
    whole = y.rint().equals(y)
    half = y * 0.5
    odd = whole & half.rint().differs(half)
    signed = select(odd, raised.copysign(x), raised)
    real = select((x < 0.0) & (whole ^ True) & (size < inf), x.const(nan), signed)
    one = y.equals(0.0) | x.equals(1.0) | (size.equals(1.0) & abs(y).equals(inf))
    return select(one, x.const(1.0), real)


def whole_power(x: Scalar, count: int) -> Scalar:
    """x^count for a known count, by squaring; of floats or (count >= 0) integers."""
    if count < 0:
        return 1.0 / whole_power(x, -count)
    result, base = None, x
    while count:
        if count & 1:
            result = base if result is None else result * base
        count >>= 1
        if count:
            base = base * base
    return x.const(1) if result is None else result


def integer_power(x: Scalar, count: Scalar) -> Scalar:
    """x^count for an integer only known at run time; a negative power of an integer is cut to a whole number."""
    negative = count < 0
    one = x.const(1)

    def step(state: list[Scalar]) -> list[Scalar]:
        result, base, left = state
        return [select((left & 1).differs(0), result * base, result), base * base, left >> 1]

    result = loop([one, x, abs(count)], lambda state: state[2] > 0, step)[0]
    if x.real:
        return select(negative, 1.0 / result, result)
    unit = result.equals(1) | result.equals(-1)
    return select(negative & (unit ^ True), result.const(0), result)


def tanh(x: Scalar) -> Scalar:
    """The hyperbolic tangent."""
    size, square = abs(x), x * x
    near = fma(x * square, polynomial(square, tables.TANH_32 if x.single else tables.TANH_64), x)
    grown = exp(size + size) + 1.0
    inverse = approximate("rcp.approx.ftz.f32", grown) if x.single else 1.0 / grown
    far = fma(inverse, -2.0, 1.0).copysign(x)
    return select(size < 0.55, near, select(x.is_nan(), x, far))


def gelu(x: Scalar) -> Scalar:
    """x N(x), N being the normal distribution function; absolute error below 3e-7, or 2^-23 |x|."""
    return math_fast.gelu_by_tail(x, 6.0, tables.LOWER_TAIL_32)


def sigmoid(x: Scalar) -> Scalar:
    """1 / (1 + e^-x) in f32; relative error 2^-23 (1 + |x|)."""
    return approximate("rcp.approx.ftz.f32", approximate("ex2.approx.f32", x * -LOG2E) + 1.0)


def _half_exp(x: Scalar) -> Scalar:
    """e^x / 2, which overflows later than e^x does."""
    return exp(x - 1.0) * (E / 2)


def sinh(x: Scalar) -> Scalar:
    """The hyperbolic sine."""
    size = abs(x)
    less = expm1(size)
    near = (less + less / (less + 1.0)) * 0.5
    return select(size < 9.0, near, _half_exp(size) - 0.5 / exp(size)).copysign(x)


def cosh(x: Scalar) -> Scalar:
    """The hyperbolic cosine."""
    size = abs(x)
    return _half_exp(size) + 0.5 / exp(size)


def asinh(x: Scalar) -> Scalar:
    """The inverse hyperbolic sine."""
    size = abs(x)
    square = size * size
    near = log1p(size + square / (1.0 + (square + 1.0).sqrt()))
    return select(size < _large(x), near, log_e(size) + LN2).copysign(x)


def acosh(x: Scalar) -> Scalar:
    """The inverse hyperbolic cosine; NaN below 1."""
    above = x - 1.0
    near = log1p(above + fma(above, above, above + above).sqrt())
    return select(x < 1.0, x.const(nan), select(x < _large(x), near, log_e(x) + LN2))


def atanh(x: Scalar) -> Scalar:
    """The inverse hyperbolic tangent; NaN beyond -1 and 1."""
    size = abs(x)
    return (log1p((size + size) / (1.0 - size)) * 0.5).copysign(x)


def _large(x: Scalar) -> float:
    """From here on x^2 + 1 is x^2 in x's precision, and its square does not overflow yet."""
    return 2.0**13 if x.single else 2.0**28


def cbrt(x: Scalar) -> Scalar:
    """The cube root: exp(log/3) and one step of Newton's method."""
    size = abs(x)
    guess = exp(log_e(size) / 3.0)
    better = guess - (guess - size / (guess * guess)) / 3.0
    return select((size > 0.0) & (size < inf), better.copysign(x), x)
