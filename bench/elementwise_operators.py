"""Operators that are computed element by element, and casts: see gpu_operators.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from bench.operator_cases import (
    FLOATS,
    TYPES,
    WHOLE,
    case,
    each,
    ints,
    numbers,
    reals,
)


def unary() -> None:
    usual, positive, unit = (-3.0, 3.0), (0.05, 5.0), (-0.95, 0.95)
    for bounds, names in {
        usual: "abs neg exp exp2 expm1 sin cos tan tanh sinh cosh atan asinh erf sigmoid relu floor ceil round trunc "
        "frac sign square isnan isinf sgn deg2rad nan_to_num logical_not",
        positive: "log log2 log10 log1p sqrt rsqrt reciprocal",
        (1.1, 6.0): "acosh",
        unit: "asin acos atanh",
        (0.1, 0.9): "logit",
    }.items():
        for name in names.split():
            each(f"unary/{name}", getattr(torch, name), FLOATS, bounds, looser=4.0 if name == "tan" else 2.0)
    for name in (
        "gelu silu elu selu celu softplus mish hardsigmoid hardswish hardtanh leaky_relu logsigmoid relu6 softsign "
        "tanhshrink softshrink hardshrink"
    ).split():
        each(f"activation/{name}", getattr(F, name), FLOATS, (-4.0, 4.0), looser=2.0)
    each("activation/gelu-tanh", lambda x: F.gelu(x, approximate="tanh"), FLOATS, (-4.0, 4.0), looser=2.0)
    each("activation/threshold", lambda x: F.threshold(x, 0.25, -1.0), FLOATS, usual)
    each("activation/glu", lambda x: F.glu(x, 1), FLOATS, usual, shape=(5, 38))
    case("activation/prelu", F.prelu, reals(3, 4, 5), reals(4))
    for name in "abs neg sign square bitwise_not relu".split():
        each(f"unary-whole/{name}", getattr(torch, name), WHOLE[: 4 if name == "neg" else 5], (-9, 9))
    each("unary-whole/to-float", lambda x: (x.sqrt(), x.exp(), x.sigmoid()), WHOLE, (0, 9), looser=2.0)
    each("unary-bool/not", lambda x: (x.logical_not(), ~x), [torch.bool], (0, 1))
    special = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 1e-40, 3e38])
    for name in "abs neg exp log sqrt tanh sigmoid relu sign isnan isinf floor erf sin nan_to_num".split():
        case(f"special/{name}", getattr(torch, name), special, exact=True)


def binary() -> None:
    usual, positive = (-3.0, 3.0), (0.5, 4.0)
    functions: dict[str, Callable[..., Any]] = {
        "add": torch.add,
        "sub": torch.sub,
        "mul": torch.mul,
        "maximum": torch.maximum,
        "minimum": torch.minimum,
        "atan2": torch.atan2,
        "fmax": torch.fmax,
        "add-alpha": lambda x, y: torch.add(x, y, alpha=2),
        "rsub": lambda x, y: torch.rsub(x, y),
        "lerp": lambda x, y: torch.lerp(x, y, 0.3),
        "scalars": lambda x, y: (x + 1, 2 - y, x * 3, y / 4, 1.5 * x),
    }
    for name, function in functions.items():
        each(f"binary/{name}", function, FLOATS, usual, usual, looser=2.0)
    for name, function in {
        "div": torch.div,
        "reciprocal": lambda x, y: 1 / y - x,
        "hypot": lambda x, y: torch.sqrt(x * x + y * y),
        "logaddexp": torch.logaddexp,
        "addcmul": lambda x, y: torch.addcmul(x, y, y, value=0.5),
        "addcdiv": lambda x, y: torch.addcdiv(x, x, y, value=0.5),
        "pow": lambda x, y: (x.abs() + 0.1) ** y,
        "pow-scalar": lambda x, y: (x**2, x**3, y**0.5, y**-1.5, 2.0**x),
    }.items():
        each(f"binary/{name}", function, FLOATS, usual, positive, looser=6.0 if "pow" in name else 2.0)
    for name, function in {  # of whole numbers, so that every type cuts at the same place
        "fmod": torch.fmod,
        "remainder": torch.remainder,
        "floor-divide": torch.floor_divide,
        "div-floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
        "div-trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    }.items():
        each(f"binary/{name}", lambda x, y, f=function: f(x.round(), y.round()), FLOATS, (-90, 90), (1.0, 7.0))
        floored = "floor" in name  # which torch-mlir does for 16 bits and more
        each(f"binary-whole/{name}", function, WHOLE[: 3 if floored else 5], (-90, 90), (1, 7))
    for name in "add sub mul maximum minimum bitwise_and bitwise_or bitwise_xor".split():
        each(f"binary-whole/{name}", getattr(torch, name), WHOLE, (-9, 9), (-9, 9))
    each("binary-whole/wraps", lambda x, y: (x * y, x + y), WHOLE[2:], (-40000, 40000), (-40000, 40000))
    each("binary-whole/shifts", lambda x: (x << 3, x >> 2), WHOLE[:1], (-90, 90))
    each("binary-whole/div", torch.div, WHOLE, (-90, 90), (1, 7))
    each("binary-whole/pow", lambda x: x**2, WHOLE, (-5, 5))
    for name in "bitwise_and bitwise_or bitwise_xor logical_and logical_or logical_xor add mul".split():
        each(f"binary-bool/{name}", getattr(torch, name), [torch.bool], (0, 1), (0, 1))
    f, i = reals(7, 37), ints(7, 37, dtype=torch.int32)
    mixed = (f, i, f.bfloat16(), f.half(), f.double(), i.long(), i.to(torch.int8), i > 0)
    case("binary/mixed-types", lambda x, *others: tuple(x + other for other in others), *mixed)
    case("binary/mixed-whole", lambda i, j, k, b: (i + j, j * k, k - i, b + i, b * k), i, i.long(), i.short(), i > 0)
    case("binary/mixed-16", lambda x, y, i: (x + y, x * i, y - i), f.bfloat16(), f.half(), i)
    case("binary/broadcast", lambda x, y, z, s: (x + y, x * z, x - s, y * z), f, reals(37), reals(7, 1), reals())
    case("binary/broadcast-3", lambda x, y: (x + y, x[:, 0] * y[0]), reals(4, 1, 9), reals(5, 9))
    for name in "eq ne lt le gt ge".split():
        compare = getattr(torch, name)
        each(f"compare/{name}", compare, TYPES, (-2, 2), (-2, 2))
        each(f"compare-scalar/{name}", lambda x, f=compare: (f(x, 1), f(x, 0)), TYPES, (-2, 2))
    nan = torch.tensor([math.nan, 1.0, math.inf, -math.inf, 0.0])
    case("compare/nan", lambda x, y: (x == y, x != y, x < y, x >= y, x == x, x != x), nan, nan.flip(0), exact=True)
    case("special/max-min", lambda x, y: (torch.maximum(x, y), torch.minimum(x, y)), nan, nan.flip(0), exact=True)
    case("special/clamp", lambda x: (x.clamp(-0.5, 0.5), F.relu6(x), F.hardtanh(x)), nan, exact=True)
    each("where/types", lambda x, y: torch.where(x > y, x, y), TYPES[:9], (-9, 9), (-9, 9))
    each("where/scalars", lambda x: (torch.where(x > 0, x, 0), torch.where(x > 0, 1, x)), FLOATS + WHOLE[:4], (-9, 9))
    each("where/masked-fill", lambda x: x.masked_fill(x > 0, 3), TYPES[:9], (-9, 9))
    each("clamp/both", lambda x: x.clamp(-1, 2), FLOATS + WHOLE[:4], (-9, 9))
    each("clamp/one", lambda x: (x.clamp_min(1), x.clamp_max(1)), FLOATS + WHOLE, (-9, 9))
    case(
        "clamp/tensors",
        lambda x, a, b: torch.clamp(x, a, b),
        reals(7, 37),
        reals(37, low=-1, high=0),
        reals(37, low=0, high=1),
    )


def casts() -> None:
    for dtype in TYPES:
        name = str(dtype).removeprefix("torch.")
        x = numbers(name, (7, 37), dtype, 0, 120)  # what every type can hold
        case(f"cast/{name}", lambda x: tuple(x.to(kind) for kind in TYPES if kind != x.dtype), x, exact=True)
    signed = reals(7, 37, low=-120, high=120)
    case("cast/negative", lambda x: tuple(x.to(kind) for kind in WHOLE[:4]), signed, exact=True)
    case(
        "cast/whole-narrower",
        lambda i: (i.to(torch.int8), i.to(torch.uint8), i.bool()),
        ints(7, 37, low=-900, high=900),
    )
    case("cast/round-to-even", lambda x: (x.bfloat16(), x.half()), reals(64, 37, low=-1e4, high=1e4), exact=True)
