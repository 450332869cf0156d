"""Fits the polynomials of the elementary functions and prints them as kitsune_mlir/codegen/math_tables.py.

Chebyshev interpolation at 90 digits (within a factor of about two of minimax), printed as coefficients of
1, x, x^2, ...; for the fast forms, which weigh errors, a linear program. Needs mpmath, which torch brings along
through sympy, and SciPy.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from mpmath import asin, atan, cos, erf, erfc, exp, expm1, log, mp, mpf, pi, sin, sqrt, tanh
from scipy import special
from scipy.optimize import linprog

mp.dps = 90


def fit(function: Callable[[mpf], mpf], low: float, high: float, degree: int) -> list[float]:
    """Monomial coefficients of the polynomial through `function` at the Chebyshev nodes of [low, high]."""
    low, high, count = mpf(low), mpf(high), degree + 1
    nodes = [(low + high) / 2 + (high - low) / 2 * cos(pi * (2 * k + 1) / (2 * count)) for k in range(count)]
    # Newton's divided differences, expanded to monomials.
    values = [function(node) for node in nodes]
    for order in range(1, count):
        for k in range(count - 1, order - 1, -1):
            values[k] = (values[k] - values[k - 1]) / (nodes[k] - nodes[k - order])
    coefficients = [mpf(0)]
    for node, value in zip(reversed(nodes), reversed(values), strict=True):
        shifted = [mpf(0), *coefficients]
        coefficients = [s - node * c for s, c in zip(shifted, [*coefficients, mpf(0)], strict=True)]
        coefficients[0] += value
    return [float(c) for c in coefficients[:count]]


def fit_erfc(high: float, degree: int) -> list[float]:
    """p of that degree for which 2^(x p(x)) comes closest to erfc(x) on [0, high], in the absolute error."""
    scale = 1e6  # of the error, about 1e-6: the solver's tolerances are absolute
    x = (1 - np.cos(np.linspace(0, np.pi, 1500)[1:])) / 2 * high
    weight = special.erfc(x) * x * np.log(2.0) * scale  # the derivative of 2^(x p) by p
    powers = np.vander(x / high, degree + 1, increasing=True) * weight[:, None]
    wanted = weight * np.log2(special.erfc(x)) / x
    most = -np.ones((len(x), 1))
    rows, limits = np.block([[powers, most], [-powers, most]]), np.concatenate([wanted, -wanted])
    cost = [0.0] * (degree + 1) + [1.0]
    found = linprog(cost, A_ub=rows, b_ub=limits, bounds=[(None, None)] * len(cost), method="highs")
    return [float(c) for c in found.x[:-1] / high ** np.arange(degree + 1)]


def fit_lower_tail(high: float, degree: int, absolute: bool = False) -> list[float]:
    """p of that degree for which 2^p(a) comes closest to N(-a), N the normal distribution function, for a on [0, high]:
    in the relative error or, if `absolute`, in the error of a N(-a)."""
    a = (1 - np.cos(np.linspace(0, np.pi, 3000 if absolute else 2000))) / 2 * high
    powers, wanted = np.vander(a / high, degree + 1, increasing=True), special.log_ndtr(-a) / np.log(2.0)
    if absolute:  # about 1e-7: the solver's tolerances are absolute
        weight = special.ndtr(-a) * np.log(2.0) * np.maximum(a, 0.25) * 1e7
        powers, wanted = powers * weight[:, None], wanted * weight
    most = -np.ones((len(a), 1))
    rows, limits = np.block([[powers, most], [-powers, most]]), np.concatenate([wanted, -wanted])
    cost = [0.0] * (degree + 1) + [1.0]
    found = linprog(cost, A_ub=rows, b_ub=limits, bounds=[(None, None)] * len(cost), method="highs")
    return [float(c) for c in found.x[:-1] / high ** np.arange(degree + 1)]


def even(function: Callable[[mpf], mpf]) -> Callable[[mpf], mpf]:
    """`function` as a function of its argument's square; the node 0 never occurs."""
    return lambda square: function(sqrt(square))


def scaled_erfc(u: mpf) -> mpf:
    """exp(x^2) erfc(x) at x = 2 (1 + u) / (1 - u), which maps u in [-1, 1) to x in [0, inf)."""
    x = 2 * (1 + u) / (1 - u)
    return exp(x * x) * erfc(x) * (1 + 2 * x)


# name: (function, low, high, degree for f32 or None, degree for f64 or None)
TABLES = {
    "EXP": (lambda r: exp(r), -0.35, 0.3501, None, 13),
    "EXPM1": (lambda x: (expm1(x) - x) / x**2, -0.5001, 0.5, 6, 13),
    "LOG1P": (lambda f: (log(1 + f) - f) / f**2, -0.3334, 0.3335, 9, None),
    "ATANH": (even(lambda s: (log((1 + s) / (1 - s)) - 2 * s) / s**3), 1e-30, 0.041, None, 8),
    "SIN": (even(lambda r: (sin(r) - r) / r**3), 1e-30, 0.62, 3, 6),
    "COS": (even(lambda r: (cos(r) - 1 + r**2 / 2) / r**4), 1e-30, 0.62, 2, 6),
    "TANH": (even(lambda x: (tanh(x) - x) / x**3), 1e-30, 0.31, 5, 13),
    "ASIN": (even(lambda x: (asin(x) - x) / x**3), 1e-30, 0.2501, 5, 12),
    "ATAN": (even(lambda x: (atan(x) - x) / x**3), 1e-30, 0.1717, 4, 10),
    "ERF": (even(lambda x: erf(x) / x), 1e-30, 1.01, 6, 13),
    "ERFC": (scaled_erfc, (0.95 - 2) / (0.95 + 2), (28 - 2) / 30, 9, 22),
}
HEADER = '''"""Polynomials of the elementary functions, printed by bench/fit_device_math.py."""

'''


def main() -> None:
    """Prints the module."""
    print(HEADER, end="")
    for name, (function, low, high, *degrees) in TABLES.items():
        for suffix, degree in zip(("32", "64"), degrees, strict=True):
            if degree is not None:
                numbers = "".join(f"    {c!r},\n" for c in fit(function, low, high, degree))
                print(f"{name}_{suffix} = (\n{numbers})")
    numbers = "".join(f"    {c!r},\n" for c in fit_erfc(4.0, 4))
    print(f"ERFC_FAST = (\n{numbers})")
    numbers = "".join(f"    {c!r},\n" for c in fit_lower_tail(6.0, 5))
    print(f"LOWER_TAIL_FAST = (\n{numbers})")
    numbers = "".join(f"    {c!r},\n" for c in fit_lower_tail(6.0, 8, absolute=True))
    print(f"LOWER_TAIL_32 = (\n{numbers})")


if __name__ == "__main__":
    main()
