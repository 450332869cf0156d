"""Functions of mathematics that torch-mlir has not: hypot, erfc, erfinv and their kin, those of Bessel and of gamma."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import error_function
from .working import number, working

aten = torch.ops.aten

# By type: beyond which size, or below its inverse, squares may overflow or vanish, and a power of two to scale by.
_LARGE = {torch.float32: (2.0**60, 2.0**100), torch.float64: (2.0**400, 2.0**600)}

# erfc(x) = t exp(P(t) - x^2) for t = 1 / (1 + x / 2), x >= 0, with a relative error of 1.2e-7 at most (Press et al.,
# Numerical Recipes, 6.2). The coefficients of P from the lowest on.
_ERFC = (
    -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806,
    0.27886807, -1.13520398, 1.48851587, -0.82215223, 0.17087277,
)  # fmt: skip
# erfinv(x) = x P(w) for w = -log(1 - x^2), by two polynomials of w - 2.5 and of sqrt(w) - 3, with a relative error of
# 3e-7 at most (Giles, Approximating the erfinv function, 2010). The coefficients from the highest on.
_ERFINV_NEAR = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 2.1858087e-04,
    -1.25372503e-03, -4.17768164e-03, 2.46640727e-01, 1.50140941,
)  # fmt: skip
_ERFINV_FAR = (
    -2.00214257e-04, 1.00950558e-04, 1.34934322e-03, -3.67342844e-03, 5.73950773e-03,
    -7.6224613e-03, 9.43887047e-03, 1.00167406, 2.83297682,
)  # fmt: skip
# I0(x) and I1(x) / x by powers of (x / 3.75)^2, for x of 3.75 and more exp(-x) sqrt(x) I(x) by powers of 3.75 / x, with
# relative errors of 2.2e-7 at most (Abramowitz and Stegun 9.8.1 to 9.8.4). The coefficients from the lowest on.
_BESSEL_SPLIT = 3.75
_I0 = (1.0, 3.5156229, 3.0899424, 1.2067492, 0.2659732, 0.0360768, 0.0045813)
_I1 = (0.5, 0.87890594, 0.51498869, 0.15084934, 0.02658733, 0.00301532, 0.00032411)
_I0_FAR = (
    0.39894228, 0.01328592, 0.00225319, -0.00157565, 0.00916281,
    -0.02057706, 0.02635537, -0.01647633, 0.00392377,
)  # fmt: skip
_I1_FAR = (
    0.39894228, -0.03988024, -0.00362018, 0.00163801, -0.01031555,
    0.02282967, -0.02895312, 0.01787654, -0.00420059,
)  # fmt: skip
_SPLITTER = 4097.0  # x times this parts the 24 bits of a number into two halves, whose products are exact (Dekker)

# The series in 1 / x^2 behind Stirling's formula, Abramowitz and Stegun 6.1.41 and 6.3.18: good to the last digit of
# f64 from _FAR on.
_FAR = 8
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
_TRIGAMMA = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)


def hypot(x: Tensor, y: Tensor) -> Any:
    """The root of a sum of squares; of an infinity and NaN, the infinity."""
    kind = torch.result_type(x, y)
    if not kind.is_floating_point:
        return NotImplemented
    x, y = working(x.to(kind)).abs(), working(y.to(kind)).abs()
    if kind == torch.float16:
        root = (x * x + y * y).sqrt()
    else:
        scale = _scale(torch.maximum(x, y))
        root = ((x * scale) ** 2 + (y * scale) ** 2).sqrt() / scale
    return torch.where((x == math.inf) | (y == math.inf), number(math.inf, x), root).to(kind)


def _scale(size: Tensor) -> Tensor:
    """A power of two that brings very large and very small numbers near 1."""
    large, power = _LARGE[size.dtype]
    scale = torch.where(size > large, number(1 / power, size), number(1.0, size))
    return torch.where(size < 1 / large, number(power, size), scale)


def erfc(x: Tensor) -> Any:
    """1 - erf(x), with digits where that is small."""
    if x.dtype == torch.float64:
        return error_function.erfc(x)
    y = _real(x)
    z = y.clamp(0.5, 20.0)  # erfc(20) is 0
    t = 1 / (1 + 0.5 * z)
    multiple = z * _SPLITTER
    high = multiple - (multiple - z)
    tail = t * _polynomial(_ERFC, t).exp() * (-high * high).exp() * ((high - z) * (high + z)).exp()
    return torch.where(y < 0.5, 1 - y.erf(), tail).to(_kind(x))


def erfcx(x: Tensor) -> Any:
    """exp(x^2) erfc(x), which does not vanish."""
    y = x if x.dtype == torch.float64 else _real(x)
    size = y.abs()
    t = 1 / (1 + 0.5 * size)
    far = t * _polynomial(_ERFC, t).exp()
    if x.dtype == torch.float64:
        far = error_function.scaled(size.clamp(min=0.46875))
    grown = (y * y).exp()
    found = torch.where(size < 0.5, grown * (1 - y.erf()), torch.where(y < 0, 2 * grown - far, far))
    return found.to(_kind(x))


def modified_bessel(order: int, scaled: bool) -> Callable[[Tensor], Any]:
    """A modified Bessel function of the first kind, of order 0 or 1; `scaled` by exp(-|x|)."""

    def of(x: Tensor) -> Any:
        if x.dtype == torch.float64:
            return NotImplemented
        y = _real(x)
        size = y.abs()
        part = (size * (1 / _BESSEL_SPLIT)).square()
        near = _polynomial(_I1, part) * size if order else _polynomial(_I0, part)
        far_size = size.clamp(min=_BESSEL_SPLIT)
        far = _polynomial(_I1_FAR if order else _I0_FAR, _BESSEL_SPLIT / far_size) * far_size.rsqrt()
        if scaled:
            near = near * (-size).exp()
        else:
            half = (0.5 * far_size).exp()  # whose square may be infinite where the result is not
            far = far * half * half
        found = torch.where(size < _BESSEL_SPLIT, near, far)
        return (torch.where(y < 0, -found, found) if order else found).to(_kind(x))

    return of


def lgamma(x: Tensor) -> Tensor:
    """The logarithm of the gamma function's size, in f64: by steps to the far side of Stirling's series, and by
    reflection from the negative side."""
    y, mirrored, z, near, far = _far_side(x)
    steps = functools.reduce(torch.mul, [z.clamp(max=_FAR) + k for k in range(_FAR)])
    inverse = 1 / far
    found = (far - 0.5) * far.log() - far + 0.5 * math.log(2 * math.pi)
    found = found + inverse * _polynomial(_STIRLING, inverse * inverse)
    found = torch.where(near, found - steps.log(), found)
    reflected = (math.pi / (_turn(y) * math.pi).sin().abs()).log() - found
    found = torch.where(mirrored, reflected, found)
    found = torch.where((y == 1) | (y == 2), number(0.0, y), found)
    return torch.where(y.abs() == math.inf, number(math.inf, y), found).to(_kind(x))


def digamma(x: Tensor) -> Tensor:
    """The derivative of the logarithm of the gamma function, in f64 as that. NaN at negative integers."""
    y, mirrored, z, near, far = _far_side(x)
    steps = functools.reduce(torch.add, [1 / (z + k) for k in range(_FAR)])
    inverse = 1 / far
    square = inverse * inverse
    found = far.log() - 0.5 * inverse - square * _polynomial(_DIGAMMA, square)
    found = torch.where(near, found - steps, found)
    angle = _turn(y) * math.pi
    reflected = found - math.pi * angle.cos() / angle.sin()
    reflected = torch.where((angle == 0) & (y != 0), number(math.nan, y), reflected)
    return torch.where(mirrored, reflected, found).to(_kind(x))


def polygamma(n: int, x: Tensor) -> Any:
    """Derivatives of `digamma`, of which the first has a rule: gradients of distributions' entropies are made of it."""
    if n not in (0, 1):
        return NotImplemented
    if n == 0:
        return digamma(x)
    y, mirrored, z, near, far = _far_side(x)
    inverse = 1 / far
    square = inverse * inverse
    found = inverse + 0.5 * square + inverse * square * _polynomial(_TRIGAMMA, square)
    steps = functools.reduce(torch.add, [1 / ((z + k) * (z + k)) for k in range(_FAR)])
    found = torch.where(near, found + steps, found)
    turned = math.pi / (_turn(y) * math.pi).sin()
    return torch.where(mirrored, turned * turned - found, found).to(_kind(x))


def _far_side(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """A number in f64; whether it is mirrored at 1/2, and that one; whether that is near, and where its series is good:
    _FAR steps further if it is."""
    y = _real(x).double()
    mirrored = y < 0.5
    z = torch.where(mirrored, 1 - y, y)
    near = z < _FAR
    return y, mirrored, z, near, torch.where(near, z + _FAR, z)


def _turn(x: Tensor) -> Tensor:
    """What is left of a number beside the nearest integer; zeros keep their sign."""
    return torch.where(x.abs() < 0.5, x, x - x.round())


def _polynomial(coefficients: Sequence[float], x: Tensor) -> Tensor:
    *lower, highest = coefficients
    value = x * highest + lower.pop()
    for coefficient in reversed(lower):
        value = value * x + coefficient
    return value


def _kind(x: Tensor) -> torch.dtype:
    return x.dtype if x.is_floating_point() else torch.get_default_dtype()


def _real(x: Tensor) -> Tensor:
    return working(x.to(_kind(x)))


def erfinv(x: Tensor) -> Any:
    if x.dtype == torch.float64:
        return error_function.erfinv(x, _inverse_of_erf(x, (1 - x) * (1 + x)))
    y = _real(x)
    return _inverse_of_erf(y, (1 - y) * (1 + y)).to(_kind(x))


def ndtri(x: Tensor) -> Any:
    """Where a normal distribution has a part of `x` below: by x and 1 - x, for 1 - (2x - 1)^2 has fewer digits."""
    if x.dtype == torch.float64:
        return NotImplemented
    y = _real(x)
    return (_inverse_of_erf(2 * y - 1, 4 * y * (1 - y)) * math.sqrt(2)).to(_kind(x))


def _inverse_of_erf(y: Tensor, rest: Tensor) -> Tensor:
    """erfinv(y), given 1 - y^2."""
    w = -rest.log()
    near, far = (
        functools.reduce(lambda total, own, at=at: total * at + own, those[1:], number(those[0], y))
        for those, at in ((_ERFINV_NEAR, w - 2.5), (_ERFINV_FAR, w.sqrt() - 3))
    )
    return torch.where(y.abs() == 1, y * math.inf, torch.where(w < 5, near, far) * y)


SPECIAL_FUNCTIONS = {
    aten.erfinv.default: erfinv,
    aten.hypot.default: hypot,
    aten.erfc.default: erfc,
    aten.special_erfcx.default: erfcx,
    aten.special_ndtri.default: ndtri,
    aten.i0.default: modified_bessel(0, scaled=False),
    aten.special_i0e.default: modified_bessel(0, scaled=True),
    aten.special_i1.default: modified_bessel(1, scaled=False),
    aten.special_i1e.default: modified_bessel(1, scaled=True),
    aten.lgamma.default: lgamma,
    aten.digamma.default: digamma,
    aten.polygamma.default: polygamma,
}
