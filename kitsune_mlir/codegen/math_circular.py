"""The circular functions and erf on f32 and f64 `Scalar`s, without libdevice.

sin, cos and tan are accurate for every argument: small ones are reduced by a three-part pi/2, huge ones by
the bits of 2/pi (Payne and Hanek).
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from math import inf, nan, pi

from kitsune_mlir.codegen import math_tables as tables
from kitsune_mlir.codegen.math_digits import two_over_pi
from kitsune_mlir.codegen.math_exponential import exp
from kitsune_mlir.codegen.scalar import Scalar, approximate, branch, fma, loop, polynomial, rounded, select
from kitsune_mlir.mlir import ir

_HALF_PI = Decimal(
    "1.57079632679489661923132169163975144209858469968755291048747229615390820314310449931401741267105853399107404326"
)


def _parts(bits: int, full: int) -> list[float]:
    """pi/2 as a sum of three floats, the large ones first: two of `bits` significant bits, one of `full`."""
    rest, parts = _HALF_PI, []
    with localcontext(prec=110):
        for size in (bits, bits, full):
            parts.append(rounded(float(rest), size))
            rest -= Decimal(parts[-1])
    return parts


# A whole number below the reach times the first part leaves x exactly.
_PARTS_32, _PARTS_64 = _parts(24, 24), _parts(33, 53)
_REACH_32, _REACH_64 = 1.0e5, 1.0e6
# Bits that the reduction of huge arguments works in: all that an exponent can shift out, and a float more.
_WIDTH_32, _WIDTH_64 = 256, 1280
# The least exponent above the reach, less the mantissa's bits, may be this far below 0.
_SLACK = 40


def _reduce_near(x: Scalar) -> list[Scalar]:
    first, second, third = _PARTS_32 if x.single else _PARTS_64
    quotient = (x * (2 / pi)).rint()
    rest = fma(quotient, -third, fma(quotient, -second, fma(quotient, -first, x)))
    return [quotient.to_int(32), rest]


def _reduce_far(x: Scalar) -> list[Scalar]:
    """x = m 2^k with whole m: the quarter turns of x, modulo 4, are the top bits of m (2/pi 2^k) in fixed point."""
    width, mantissa, bias = (_WIDTH_32, 23, 127) if x.single else (_WIDTH_64, 52, 1023)
    bits = abs(x).bits()
    whole = ((bits & ((1 << mantissa) - 1)) | (1 << mantissa)).to_int(width)
    shift = ((bits >> mantissa) - (bias + mantissa - _SLACK)).to_int(width)
    turns = ((whole.const(two_over_pi(width - 2 - _SLACK)) << shift) * whole) >> (width - 64)
    top = turns.to_int(64)  # two bits of quarter turns, 62 of the fraction
    quarter = ((top >> 61) + 1) >> 1  # the nearest quarter turn
    fraction = (top - (quarter << 62)).to_real(x)
    rest = fraction * (float(_HALF_PI) * 2.0**-62)
    negative = x < 0.0
    quarter = quarter.to_int(32)
    return [select(negative, -quarter, quarter), select(negative, -rest, rest)]


def _reduce(x: Scalar) -> tuple[Scalar, Scalar]:
    """(n, r) with x = n pi/2 + r, n modulo 4 and |r| <= pi/4; r is NaN for infinities and NaN."""
    near = abs(x) < (_REACH_32 if x.single else _REACH_64)
    types = [ir.IntegerType.get_signless(32), x.value.type]
    quarter, rest = branch(near, lambda: _reduce_near(x), lambda: _reduce_far(x), types)
    return quarter, select(abs(x) < inf, rest, nan)


def _sine_of_rest(r: Scalar) -> Scalar:
    square = r * r
    return fma(r * square, polynomial(square, tables.SIN_32 if r.single else tables.SIN_64), r)


def _cosine_of_rest(r: Scalar) -> Scalar:
    square = r * r
    table = tables.COS_32 if r.single else tables.COS_64
    return fma(square * square, polynomial(square, table), fma(square, -0.5, 1.0))


def _turned(quarter: Scalar, rest: Scalar) -> Scalar:
    """The sine of `quarter` quarter turns and `rest`."""
    value = select((quarter & 1).equals(0), _sine_of_rest(rest), _cosine_of_rest(rest))
    return select((quarter & 2).equals(0), value, -value)


def sin(x: Scalar) -> Scalar:
    """The sine."""
    return _turned(*_reduce(x))


def cos(x: Scalar) -> Scalar:
    """The cosine."""
    quarter, rest = _reduce(x)
    return _turned(quarter + 1, rest)


def tan(x: Scalar) -> Scalar:
    """The tangent."""
    quarter, rest = _reduce(x)
    sine, cosine = _sine_of_rest(rest), _cosine_of_rest(rest)
    return select((quarter & 1).equals(0), sine / cosine, -cosine / sine)


def _asin_near(x: Scalar) -> Scalar:
    square = x * x
    return fma(x * square, polynomial(square, tables.ASIN_32 if x.single else tables.ASIN_64), x)


def asin(x: Scalar) -> Scalar:
    """The arc sine; NaN beyond -1 and 1."""
    size = abs(x)
    far = fma(_asin_near(((1.0 - size) * 0.5).sqrt()), -2.0, pi / 2)
    return select(size <= 0.5, _asin_near(x), far.copysign(x))


def acos(x: Scalar) -> Scalar:
    """The arc cosine; NaN beyond -1 and 1."""
    size = abs(x)
    far = _asin_near(((1.0 - size) * 0.5).sqrt()) * 2.0
    return select(size <= 0.5, pi / 2 - _asin_near(x), select(x < 0.0, pi - far, far))


def atan(x: Scalar) -> Scalar:
    """The arc tangent, reduced twice: to [0, 1] by 1/x, to [0, tan(pi/8)] by a turn of pi/4."""
    size = abs(x)
    inverted = size > 1.0
    unit = select(inverted, 1.0 / size, size)
    turned = unit > 0.4142135623730951
    small = select(turned, (unit - 1.0) / (unit + 1.0), unit)
    square = small * small
    angle = fma(small * square, polynomial(square, tables.ATAN_32 if x.single else tables.ATAN_64), small)
    angle = select(turned, angle + pi / 4, angle)
    return select(inverted, pi / 2 - angle, angle).copysign(x)


def atan2(y: Scalar, x: Scalar) -> Scalar:
    """The angle of the point (x, y)."""
    both = (y.equals(0.0) & x.equals(0.0)) | (abs(y).equals(inf) & abs(x).equals(inf))
    tie = select(y.equals(0.0), x.const(0.0), pi / 4)
    angle = select(both, tie, atan(abs(y / x)))
    left = x.bits() < 0
    return select(x.is_nan(), x, select(left, pi - angle, angle).copysign(y))


def _erfc_far(size: Scalar) -> Scalar:
    """erfc for size >= 1: exp(-x^2) times a polynomial in (x - 2)/(x + 2)."""
    bounded = size.clamp(0.0, 28.0)
    u = (bounded - 2.0) / (bounded + 2.0)
    scaled = polynomial(u, tables.ERFC_32 if size.single else tables.ERFC_64) / fma(bounded, 2.0, 1.0)
    square = bounded * bounded
    lost = fma(bounded, bounded, -square)
    return exp(-square) * (1.0 - lost) * scaled


def _erf_near(x: Scalar) -> Scalar:
    return x * polynomial(x * x, tables.ERF_32 if x.single else tables.ERF_64)


def erf(x: Scalar) -> Scalar:
    """The error function."""
    size = abs(x)
    return select(size < 1.0, _erf_near(x), (1.0 - _erfc_far(size)).copysign(x))


def erfc(x: Scalar) -> Scalar:
    """1 - erf(x), accurate in the tail."""
    size = abs(x)
    far = _erfc_far(size)
    near = 1.0 - _erf_near(x)
    return select(size < 1.0, near, select(x < 0.0, 2.0 - far, far))


def rsqrt(x: Scalar) -> Scalar:
    """1 / sqrt(x)."""
    return approximate("rsqrt.approx.f32", x) if x.single else 1.0 / x.sqrt()


def remainder(x: Scalar, y: Scalar) -> Scalar:
    """C's fmod, exact: subtracts y 2^k for k downward. Slow only when x/y is huge."""
    size, step = abs(x), abs(y)
    sound = (size < inf) & (step > 0.0)
    left = select(sound, size, 0.0)
    top = loop([step], lambda s: s[0] * 2.0 <= left, lambda s: [s[0] * 2.0])[0]
    rest = loop(
        [left, top],
        lambda s: s[0] >= step,
        lambda s: [select(s[0] >= s[1], s[0] - s[1], s[0]), s[1] * 0.5],
    )[0]
    return select(sound, rest.copysign(x), nan)
