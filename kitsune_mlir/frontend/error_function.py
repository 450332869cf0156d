"""The complement of the error function in f64, to its last digits, and its inverse.

erfc(x) = e^(-x^2) R(x), with a quotient of polynomials for R up to 4 and another one, of 1 / x^2, beyond (Cody,
Rational Chebyshev approximations for the error function, 1969). e^(-x^2) is the product of two exponentials, one of
which is of a square that is exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_SMALL, _LARGE, _FURTHEST = 0.46875, 4.0, 27.5  # where 1 - erf(x) has all digits; where the other quotient is taken
_OVER = (
    2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594, 6.61191906371416295e1, 2.98635138197400131e2,
    8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3,
)  # fmt: skip
_UNDER = (
    1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
    3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3,
)  # fmt: skip
_FAR_OVER = (
    1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1,
    1.60837851487422766e-2, 6.58749161529837803e-4,
)  # fmt: skip
_FAR_UNDER = (
    1.0, 2.56852019228982242, 1.87295284992346725, 5.27905102951428412e-1, 6.05183413124413191e-2,
    2.33520497626869185e-3,
)  # fmt: skip


def scaled(x: Tensor) -> Tensor:
    """e^(x^2) erfc(x) of f64, for x of 0.46875 and more."""
    near = x.clamp(max=_LARGE)
    far = 1 / (x * x).clamp(min=_LARGE * _LARGE)
    beyond = (1 / math.sqrt(math.pi) - far * _quotient(far, _FAR_OVER, _FAR_UNDER)) / x.clamp(min=_LARGE)
    return torch.where(x > _LARGE, beyond, _quotient(near, _OVER, _UNDER))


def erfc(x: Tensor) -> Tensor:
    """1 - erf(x), with digits where that is small; x and the result are of f64."""
    size = x.abs().clamp(min=_SMALL, max=_FURTHEST)
    whole = (size * 16).floor() / 16
    tail = scaled(size) * (-whole * whole).exp() * (-(size - whole) * (size + whole)).exp()
    tail = torch.where(x.abs() > _FURTHEST, 0.0, tail)
    return torch.where(x.abs() < _SMALL, 1 - x.erf(), torch.where(x < 0, 2 - tail, tail))


def erfinv(x: Tensor, near: Tensor) -> Tensor:
    """The inverse of erf, given numbers that are near it: by steps of Halley, whose differences are those of
    the complement where that is small."""
    size, y = x.abs(), near.abs()
    for _ in range(6):
        beyond = torch.where(size < 0.5, size - y.erf(), erfc(y) - (1 - size))
        step = beyond * (math.sqrt(math.pi) / 2) * (y * y).exp()
        y = y + step / (1 - step * y)
    return torch.where(size == 1, x * math.inf, torch.where(x < 0, -y, y))


def _quotient(x: Tensor, over: Sequence[float], under: Sequence[float]) -> Tensor:
    above, below = torch.full_like(x, over[0]), torch.full_like(x, under[0])
    for high, low in zip(over[1:], under[1:], strict=True):
        above, below = above * x + high, below * x + low
    return above / below
