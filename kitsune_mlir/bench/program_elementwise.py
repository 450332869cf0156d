"""Rules of random programs: elementwise operators, reductions, scans and norms."""

from __future__ import annotations

from math import prod
from typing import Any

import torch

from .program_picks import COMPARISONS, any_dim, any_dims, certain, mask, partner, positive
from .random_programs import Drawing, Unfit, Value

UNARY = """torch.tanh torch.sigmoid torch.relu F.gelu F.silu torch.sin torch.cos torch.erf F.softplus F.elu
F.leaky_relu F.mish F.hardtanh F.hardswish F.hardsigmoid F.selu F.celu F.logsigmoid F.softsign torch.abs torch.neg
torch.square torch.atan torch.asinh torch.sinh torch.exp torch.expm1 torch.sinc torch.erfc F.relu6 F.tanhshrink
F.softshrink F.hardshrink torch.deg2rad torch.nan_to_num torch.positive special.i0 special.expit""".split()
OF_POSITIVE = """torch.sqrt torch.rsqrt torch.log torch.log1p torch.log2 torch.log10 torch.reciprocal torch.lgamma
torch.digamma special.entr torch.acosh special.log_ndtr""".split()
WITHIN_ONE = "torch.asin torch.acos torch.atanh torch.erfinv special.ndtr special.i0e torch.arcsin".split()
BINARY = """torch.add torch.sub torch.mul torch.maximum torch.minimum torch.hypot torch.logaddexp torch.add torch.mul
torch.rsub torch.sub torch.fmax torch.fmin torch.logaddexp2 F.smooth_l1_loss""".split()


def unary(d: Drawing) -> None:
    name = d.rng.choice(UNARY)
    d.call(name, _operand(d, name))


def _operand(d: Drawing, function: str) -> Value:
    """A value for a function: torch has the special ones for f32 alone."""
    return d.floating(fits=lambda value: value.dtype == torch.float32 or not function.startswith("special."))


def unary_of_positive(d: Drawing) -> None:
    name = d.rng.choice(OF_POSITIVE)
    d.call(name, positive(d, _operand(d, name)))


def unary_within_one(d: Drawing) -> None:
    name = d.rng.choice(WITHIN_ONE)
    d.call(name, d.call("torch.mul", d.call("torch.tanh", _operand(d, name)), 0.875))


def binary(d: Drawing) -> None:
    x = d.floating()
    pair = [x, partner(d, x)]
    d.rng.shuffle(pair)
    d.call(d.rng.choice(BINARY), *pair)


def binary_with_number(d: Drawing) -> None:
    x, number = d.floating(), d.rng.choice((2, 0.5, -1.25, 3, 1e-3))
    d.call(d.rng.choice(("torch.add", "torch.mul", "torch.sub", "torch.rsub", "torch.div")), x, number)


def quotient(d: Drawing) -> None:
    x = d.floating()
    d.call("torch.div", x, positive(d, partner(d, x)))


def power(d: Drawing) -> None:
    x = d.floating()
    match d.rng.randrange(4):
        case 0:
            d.call("torch.pow", x, d.rng.choice((2, 3, 4)))
        case 1:
            d.call("torch.pow", positive(d, x), d.rng.choice((0.5, -0.5, 1.5, -1, -2, 1 / 3, 2.5)))
        case 2:
            d.call("torch.pow", positive(d, x), partner(d, x))
        case _:
            d.call("torch.pow", d.rng.choice((2, 0.5, 1.25)), x)


def three_operands(d: Drawing) -> None:
    x = d.floating()
    y, z = partner(d, x), partner(d, x)
    match d.rng.randrange(4):
        case 0:
            d.call("torch.lerp", x, y, d.rng.choice((0.25, 0.75)))
        case 1:
            d.call("torch.addcmul", x, y, z, value=d.rng.choice((1, 0.5)))
        case 2:
            d.call("torch.addcdiv", x, y, positive(d, z), value=0.5)
        case _:
            d.call("torch.clamp", x, d.call("torch.sub", y, 2), d.call("torch.add", y, 1))


def selected(d: Drawing) -> None:
    x = d.floating()
    d.call("torch.where", mask(d, x), x, d.rng.choice((0.5, partner(d, x))))


def filled(d: Drawing) -> None:
    x = d.floating()
    d.call("torch.masked_fill", x, mask(d, x), d.rng.choice((0.0, -2.0)))


def clamped(d: Drawing) -> None:
    d.call("torch.clamp", d.floating(), *d.rng.choice(((-1, 1), (0,), (None, 0.5), (-0.25, 2))))


def in_steps(d: Drawing) -> None:
    """At its discontinuities: of numbers that are certain."""
    x = certain(d)
    match d.rng.randrange(5):
        case 0:
            d.call(d.rng.choice(("torch.floor", "torch.ceil", "torch.round", "torch.trunc", "torch.sign")), x)
        case 1:
            d.call(d.rng.choice(("torch.fmod", "torch.remainder")), x, d.rng.choice((0.5, 2, -1)))
        case 2:
            d.call("torch.copysign", d.floating(fits=lambda value: value.shape == x.shape), x)
        case 3:
            d.call("torch.atan2", x, positive(d, partner(d, x)))
        case _:
            d.call("torch.floor_divide", x, d.rng.choice((0.5, 2)))


def compared(d: Drawing) -> None:
    x = d.pick(lambda value: value.is_certain and value.dtype != torch.bool)
    y = d.rng.choice((0, 1, partner(d, x, lambda value: value.is_certain and value.dtype != torch.bool)))
    d.call(d.rng.choice(COMPARISONS), x, y)


def logical(d: Drawing) -> None:
    x = d.pick(lambda value: value.dtype == torch.bool)
    if d.rng.random() < 0.3:
        d.call(d.rng.choice(("torch.logical_not", "torch.bitwise_not")), x)
        return
    names = ("torch.logical_and", "torch.logical_or", "torch.logical_xor", "torch.bitwise_and", "torch.bitwise_xor")
    d.call(d.rng.choice(names), x, partner(d, x, lambda value: value.dtype == torch.bool))


def whole(value: Value) -> bool:
    return value.dtype in (torch.int64, torch.int32) and value.rank <= 5


def integers(d: Drawing) -> None:
    """Integer arithmetic, kept below a small number."""
    x = d.pick(whole) if d.rng.random() < 0.7 else d.given(d.shape(d.rng.randint(1, 3)), d.rng.choice((5, 16, 100)))
    y = d.rng.choice((3, partner(d, x, whole)))
    name = d.rng.choice("add mul sub bitwise_and bitwise_or bitwise_xor maximum minimum".split())
    if isinstance(y, int) and name in ("maximum", "minimum"):
        raise Unfit
    below = d.rng.choice((2, 7, 16, 33))
    match d.rng.randrange(5):
        case 0:
            d.call("torch.floor_divide", x, d.rng.choice((2, 3)))
        case 1:
            d.call(d.rng.choice(("torch.bitwise_left_shift", "torch.bitwise_right_shift")), x, d.rng.choice((1, 3)))
        case 2:
            d.call("torch.bitwise_and", x, 15)
        case _:
            d.call("torch.remainder", d.call(f"torch.{name}", x, y), below)


def cast(d: Drawing) -> None:
    x = d.pick()
    kinds = [torch.float32, torch.float32, d.dtype, torch.bfloat16 if d.dtype != torch.float16 else torch.float16]
    if not x.is_float:
        kinds += [torch.int32, torch.int64]
    elif x.is_certain:
        kinds += [torch.int64, torch.int32, torch.bool]
    d.call("Tensor.to", x, d.rng.choice(kinds))


def reduced(d: Drawing) -> None:
    x = d.floating(1)
    dims, keepdim = any_dims(d, x), d.rng.random() < 0.5
    dim: Any = dims[0] if len(dims) == 1 and d.rng.random() < 0.5 else dims
    match d.rng.choice("sum mean extremum logsumexp spread norm nansum prod var_mean aminmax".split()):
        case "sum":
            d.call("torch.sum", x, dim, keepdim)
        case "mean":
            d.call("torch.mean", x, dim, keepdim)
        case "extremum":
            d.call(d.rng.choice(("torch.amax", "torch.amin")), x, dim, keepdim)
        case "logsumexp":
            d.call("torch.logsumexp", x, dim, keepdim)
        case "spread":
            _varied(x, dims)
            name = d.rng.choice(("torch.var", "torch.std"))
            d.call(name, x, dim, correction=d.rng.choice((0, 1)), keepdim=keepdim)
        case "norm":
            d.call("linalg.vector_norm", x, d.rng.choice((2, 2, 1, 3, float("inf"))), dim, keepdim)
        case "nansum":
            d.call("torch.nansum", x, dim, keepdim)
        case "prod":
            near_one = d.call("torch.add", d.call("torch.mul", d.call("torch.tanh", x), 1 / x.shape[dims[0]]), 1)
            d.call("torch.prod", near_one, dims[0], keepdim)
        case "var_mean":
            _varied(x, dims)
            d.call("torch.var_mean", x, dim, correction=1, keepdim=keepdim)
        case _:
            d.call("torch.aminmax", x, dim=dims[0], keepdim=keepdim)


def _varied(x: Value, dims: tuple[int, ...]) -> None:
    if prod(x.shape[dim] for dim in dims) < 2:
        raise Unfit


def reduced_whole(d: Drawing) -> None:
    x = d.floating(1)
    d.call(d.rng.choice("torch.sum torch.mean torch.amax torch.max torch.std torch.norm torch.min".split()), x)


def places(d: Drawing) -> None:
    x = certain(d, 1)
    dim, keepdim = any_dim(d, x, 2), d.rng.random() < 0.5
    match d.rng.randrange(3):
        case 0:
            d.call(d.rng.choice(("torch.argmax", "torch.argmin")), x, dim, keepdim)
        case 1:
            d.call(d.rng.choice(("torch.max", "torch.min")), x, dim, keepdim)
        case _:
            d.call(d.rng.choice(("torch.argmax", "torch.argmin")), x)


def counted(d: Drawing) -> None:
    x = d.pick(lambda value: not value.is_float and value.rank > 0)
    name = d.rng.choice(("any", "all", "sum", "count_nonzero", "amax") if x.dtype == torch.bool else ("sum", "amin"))
    args = () if d.rng.random() < 0.3 else (any_dim(d, x),)
    d.call(f"torch.{name}", x, *args)


def scanned(d: Drawing) -> None:
    x = d.floating(1)
    dim = any_dim(d, x, 2)
    match d.rng.randrange(6):
        case 0 | 1:
            d.call("torch.cumsum", x, dim)
        case 2:
            small = d.call("torch.mul", d.call("torch.tanh", x), 1 / x.shape[dim])
            d.call("torch.cumprod", d.call("torch.add", small, 1), dim)
        case 3:
            d.call("torch.logcumsumexp", x, dim)
        case 4:
            d.call("torch.diff", x, dim=dim)
        case _:
            x = certain(d, 1)
            d.call(d.rng.choice(("torch.cummax", "torch.cummin")), x, any_dim(d, x))


def scanned_integers(d: Drawing) -> None:
    x = d.pick(lambda value: not value.is_float and value.rank > 0)
    d.call("torch.cumsum", x, any_dim(d, x))


def softmaxed(d: Drawing) -> None:
    x = d.floating(1)
    d.call(d.rng.choice(("torch.softmax", "torch.log_softmax", "F.softmin")), x, any_dim(d, x))


def normed(d: Drawing) -> None:
    x = d.floating(2)
    width, channels = x.shape[-1:], x.shape[1]
    match d.rng.randrange(7):
        case 0:
            d.call("F.layer_norm", x, width, d.given(width), d.given(width))
        case 1:
            d.call("F.layer_norm", x, x.shape[-2:])
        case 2:
            d.call("F.rms_norm", x, width, d.given(width))
        case 3:
            groups = d.rng.choice([n for n in (1, 2, 3, 4, 8, channels) if channels % n == 0])
            d.call("F.group_norm", x, groups, d.given((channels,)), d.given((channels,)))
        case 4:
            mean, weight, bias = (d.given((channels,), weight=True) for _ in range(3))
            d.call("F.batch_norm", x, mean, positive(d, d.given((channels,), weight=True)), weight, bias)
        case 5:
            d.call("F.normalize", x, dim=any_dim(d, x))
        case _:
            d.call("F.instance_norm", x)
