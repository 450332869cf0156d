"""The rules of random programs: each picks values that its operator may apply to, and calls it."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch

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
COMPARISONS = "torch.gt torch.lt torch.ge torch.le torch.eq torch.ne".split()


def any_dims(d: Drawing, x: Value, least: int = 1) -> tuple[int, ...]:
    """Some of a value's dimensions, some of them counted from the last."""
    if x.rank < least:
        raise Unfit
    found = sorted(d.rng.sample(range(x.rank), d.rng.randint(least, min(x.rank, 3))))
    return tuple(dim - x.rank if d.rng.random() < 0.5 else dim for dim in found)


def any_dim(d: Drawing, x: Value, least: int = 1) -> int:
    """A dimension of so many elements at least."""
    fitting = [dim for dim, size in enumerate(x.shape) if size >= least]
    if not fitting:
        raise Unfit
    dim = d.rng.choice(fitting)
    return dim - x.rank if d.rng.random() < 0.5 else dim


def partner(d: Drawing, x: Value, fits: Callable[[Value], bool] = lambda value: value.is_float) -> Value:
    """What x may be added to: of the same sizes, or of fewer or of 1."""

    def meets(y: Value) -> bool:
        pairs = zip(reversed(x.shape), reversed(y.shape))
        return fits(y) and all(a == b or 1 in (a, b) for a, b in pairs) and y.ref != x.ref

    if d.rng.random() < 0.7:
        try:
            return d.pick(meets)
        except Unfit:
            pass
    shape = [size if d.rng.random() < 0.7 else 1 for size in x.shape][d.rng.choice((0, 0, 0, 1, 2)) :]
    return d.given(shape)


def positive(d: Drawing, x: Value) -> Value:
    return d.call("torch.add", d.call(d.rng.choice(("torch.abs", "F.softplus", "torch.square")), x), 0.5)


def certain(d: Drawing, rank: int = 0) -> Value:
    """Numbers of floating point that are the same however others are rounded."""
    return d.floating(rank, fits=lambda value: value.is_certain)


def mask(d: Drawing, x: Value) -> Value:
    """Truth values that broadcast with x: some that are there, or a comparison."""
    if d.rng.random() < 0.3:
        return partner(d, x, lambda value: value.dtype == torch.bool)
    y = partner(d, x, lambda value: value.is_certain and value.dtype != torch.bool)
    return d.call(d.rng.choice(COMPARISONS[:4]), y, d.rng.choice((0, 0.25, 1)))


def index(d: Drawing, shape: tuple[int, ...], below: int) -> Value:
    """Numbers of rows, there or given."""
    if d.rng.random() < 0.4:
        try:
            return d.pick(lambda value: value.shape == shape and value.is_index(below))
        except Unfit:
            pass
    return d.given(shape, below)


# Elementwise


def unary(d: Drawing) -> None:
    d.call(d.rng.choice(UNARY), d.floating())


def unary_of_positive(d: Drawing) -> None:
    d.call(d.rng.choice(OF_POSITIVE), positive(d, d.floating()))


def unary_within_one(d: Drawing) -> None:
    d.call(d.rng.choice(WITHIN_ONE), d.call("torch.mul", d.call("torch.tanh", d.floating()), 0.875))


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


# Reductions and scans


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


# Products


def linear(d: Drawing) -> None:
    x = d.floating(1)
    out = d.rng.choice(d.sizes)
    bias = d.given((out,), weight=True) if d.rng.random() < 0.6 else None
    d.call("F.linear", x, d.given((out, x.shape[-1]), weight=True), bias)


def product(d: Drawing) -> None:
    x = d.floating(1)
    y = _factor(d, x)
    d.call("torch.matmul", x, y)


def _factor(d: Drawing, x: Value) -> Value:
    """What x may be multiplied by: perhaps a value, turned."""
    k, batch = x.shape[-1], x.shape[:-2]
    if d.rng.random() < 0.6:
        y = d.floating(2, fits=lambda v: v.dtype == x.dtype and k in v.shape[-2:] and v.shape[:-2] in (batch, ()))
        return y if y.shape[-2] == k else d.call("torch.transpose", y, -2, -1)
    y = d.given((*batch[: d.rng.choice((0, 5))], k, d.rng.choice(d.sizes)))
    return y if y.dtype == x.dtype else d.call("Tensor.to", y, x.dtype)


def product_added(d: Drawing) -> None:
    x = d.floating(2, 3, lambda value: value.dtype == d.dtype)
    y = _factor(d, x)
    bias = d.given((y.shape[-1],) if d.rng.random() < 0.6 else (x.shape[-2], y.shape[-1]))
    name = "torch.addmm" if x.rank == 2 else "torch.baddbmm"
    d.call(name, bias, x, y, beta=d.rng.choice((1, 0.5)), alpha=d.rng.choice((1, 0.25)))


def einsum(d: Drawing) -> None:
    x = d.floating(2, 4)
    letters = "abcd"[: x.rank]
    other = d.rng.sample(letters, d.rng.randint(1, x.rank)) + d.rng.choice(([], ["z"]))
    y = d.given([d.rng.choice(d.sizes) if letter == "z" else x.shape["abcd".index(letter)] for letter in other])
    found = [letter for letter in dict.fromkeys([*letters, *other]) if d.rng.random() < 0.6]
    d.rng.shuffle(found)
    d.call("torch.einsum", f"{letters},{''.join(other)}->{''.join(found)}", x, y)


def vectors(d: Drawing) -> None:
    x = d.floating(1, 1)
    match d.rng.randrange(3):
        case 0:
            d.call("torch.outer", x, d.floating(1, 1, lambda y: y.dtype == x.dtype))
        case 1:
            d.call("torch.dot", x, d.floating(1, 1, lambda y: y.dtype == x.dtype and y.shape == x.shape))
        case _:
            d.call("torch.kron", x, d.floating(1, 1))


def distances(d: Drawing) -> None:
    x = d.floating(2, 3, lambda value: value.dtype == torch.float32)
    y = d.given((*x.shape[:-2], d.rng.choice(d.sizes), x.shape[-1]))
    d.call("torch.cdist", x, y, p=d.rng.choice((2.0, 2.0, 1.0)))


def similarity(d: Drawing) -> None:
    x = d.floating(1)
    y = partner(d, x)
    d.call(d.rng.choice(("F.cosine_similarity", "F.pairwise_distance")), x, y)


# Views and moved elements


def viewed(d: Drawing) -> None:
    x = d.pick(lambda value: value.rank > 0)
    match d.rng.randrange(8):
        case 0:
            d.call("torch.permute", x, d.rng.sample(range(x.rank), x.rank))
        case 1:
            d.call("torch.transpose", x, any_dim(d, x), any_dim(d, x))
        case 2:
            first = d.rng.randrange(x.rank)
            d.call("torch.flatten", x, first, d.rng.randrange(first, x.rank))
        case 3:
            dim = any_dim(d, x, 4)
            part = d.rng.choice([n for n in range(2, min(x.shape[dim], 17)) if x.shape[dim] % n == 0] or [1])
            if x.rank > 4:
                raise Unfit
            d.call("torch.unflatten", x, dim, d.rng.choice(((part, -1), (-1, part))))
        case 4:
            d.call("torch.movedim", x, any_dim(d, x), any_dim(d, x))
        case 5:
            d.call("torch.reshape", x, d.rng.choice(((-1,), (x.shape[0], -1), (-1, x.shape[-1]), (1, *x.shape))))
        case 6:
            d.call("torch.unsqueeze", x, d.rng.randrange(-1, x.rank))
        case _:
            d.call("torch.squeeze", x)


def sliced(d: Drawing) -> None:
    x = d.pick(lambda value: value.rank > 0)
    d.call("own.index", x, *slices(d, x))


def slices(d: Drawing, x: Value) -> list[Any]:
    """Places of x: slices, perhaps with steps, and numbers."""
    found: list[Any] = []
    for size in x.shape[: d.rng.randint(1, x.rank)]:
        first, last = sorted(d.rng.choices(range(size + 1), k=2))
        if first == last:
            first, last = 0, size
        step = d.rng.choice((1, 1, 2, 3))
        found.append(d.rng.choice((slice(first, last, step), slice(None), slice(None, None, step), first - size)))
    return found


def cut(d: Drawing) -> None:
    x = d.pick(lambda value: value.rank > 0)
    dim = any_dim(d, x, 2)
    size = x.shape[dim]
    match d.rng.randrange(6):
        case 0:
            d.call("torch.chunk", x, d.rng.choice((2, 3, 4)), dim)
        case 1:
            first = d.rng.randrange(1, size)
            d.call("torch.split", x, [first, size - first], dim)
        case 2:
            if size > 8:
                raise Unfit
            d.call("torch.unbind", x, dim)
        case 3:
            d.call("torch.select", x, dim, d.rng.randrange(-size, size))
        case 4:
            first = d.rng.randrange(size)
            d.call("torch.narrow", x, dim, first, d.rng.randint(1, size - first))
        case _:
            length = d.rng.randint(1, min(size, 9))
            d.call("Tensor.unfold", x, dim, length, d.rng.randint(1, length + 1))


def diagonals(d: Drawing) -> None:
    x = d.pick(lambda value: value.rank >= 2)
    dims = d.rng.sample(range(x.rank), 2)
    match d.rng.randrange(3):
        case 0:
            d.call("torch.diagonal", x, d.rng.choice((0, 1, -1)), *dims)
        case 1:
            d.call(d.rng.choice(("torch.tril", "torch.triu")), x, d.rng.choice((0, 1, -2)))
        case _:
            d.call("torch.diag_embed", d.floating(1, 3))


def joined(d: Drawing) -> None:
    x = d.pick(lambda value: value.rank > 0)
    dim = any_dim(d, x)
    at = dim % x.rank

    def fits(y: Value) -> bool:
        return y.rank == x.rank and all(a == b or i == at for i, (a, b) in enumerate(zip(x.shape, y.shape)))

    others = [d.pick(lambda y: fits(y) and y.is_float == x.is_float) for _ in range(d.rng.randint(1, 3))]
    if d.rng.random() < 0.3 and all(y.shape == x.shape for y in others):
        d.call("torch.stack", [x, *others], dim)
    else:
        d.call("torch.cat", [x, *others], dim)


def padded(d: Drawing) -> None:
    x = d.floating(1)
    mode = d.rng.choice(("constant", "constant", "reflect", "replicate", "circular"))
    pairs = d.rng.randint(1, min(x.rank, 3)) if mode == "constant" else x.rank - 2
    if pairs < 1:
        raise Unfit
    amounts = [d.rng.choice((0, 1, 2, 5)) for _ in range(2 * pairs)]
    if mode == "constant":
        d.call("F.pad", x, [n if d.rng.random() < 0.8 else -1 for n in amounts], value=d.rng.choice((0.0, 0.5)))
    else:
        d.call("F.pad", x, amounts, mode)


def moved(d: Drawing) -> None:
    x = d.pick(lambda value: value.rank > 0)
    dim = any_dim(d, x)
    match d.rng.randrange(7):
        case 0:
            d.call("torch.roll", x, d.rng.choice((1, -2, 5)), dim)
        case 1:
            d.call("torch.flip", x, any_dims(d, x))
        case 2:
            d.call("torch.tile", x, [d.rng.choice((1, 2, 3)) for _ in x.shape])
        case 3:
            d.call("torch.repeat_interleave", x, d.rng.choice((2, 3)), dim)
        case 4:
            shape = [d.rng.choice(d.sizes) if size == 1 else -1 for size in x.shape]
            d.call("Tensor.expand", x, [d.rng.choice((2, 3)), *shape] if x.rank < 5 else shape)
        case 5:
            d.call("torch.rot90", x, 1, d.rng.sample(range(x.rank), 2) if x.rank > 1 else (0, 1))
        case _:
            d.call("Tensor.repeat", x, [2, *(1 for _ in x.shape)] if x.rank < 5 else [1, 2, 1, 1, 1])


def made(d: Drawing) -> None:
    """Tensors that are made of nothing."""
    x = d.floating(1)
    match d.rng.randrange(3):
        case 0:
            d.call("torch.add", x, d.call("own.arrange", x.shape[-1], x))
        case 1:
            d.call("torch.mul", x, d.call("own.spaced", -1.0, 1.0, x))
        case _:
            d.call("torch.meshgrid", *(d.floating(1, 1, lambda y: y.dtype == d.dtype) for _ in range(2)), indexing="ij")


# Numbers of rows


def gathered(d: Drawing) -> None:
    x = d.pick(lambda value: value.rank > 0)
    dim = any_dim(d, x)
    size = x.shape[dim]
    length = d.rng.choice(d.sizes)
    places = [slice(None)] * (dim % x.rank)
    match d.rng.randrange(5):
        case 0:
            d.call("torch.index_select", x, dim, index(d, (length,), size))
        case 1:
            shape = list(x.shape)
            shape[dim] = length
            numbers = index(d, tuple(shape), size)
            d.call(*d.rng.choice((("torch.gather", x, dim, numbers), ("torch.take_along_dim", x, numbers, dim))))
        case 2:
            d.call("own.index", x, *places, index(d, d.shape(d.rng.randint(1, 2)), size))
        case 3:
            if x.rank < 2:
                raise Unfit
            pair = [index(d, (length,), n) for n in x.shape[:2]]
            d.call("own.index", x, *pair)
        case _:
            rows = d.rng.choice((*d.sizes, 1000))
            table = d.given((rows, d.rng.choice(d.sizes)), weight=True)
            d.call("F.embedding", index(d, d.shape(d.rng.randint(1, 2)), rows), table)


def scattered(d: Drawing) -> None:
    x = d.floating(1)
    dim = any_dim(d, x)
    rows = d.rng.choice(d.sizes)
    match d.rng.randrange(6):
        case 0:
            d.call("own.scatter_zeros", index(d, (x.shape[dim],), rows), x, rows, dim)
        case 1:
            d.call("torch.index_add", d.given([rows if i == dim % x.rank else n for i, n in enumerate(x.shape)]), dim,
                   index(d, (x.shape[dim],), rows), d.call("Tensor.to", x, d.dtype))
        case 2:
            base = d.call("Tensor.to", d.given([rows if i == dim % x.rank else n for i, n in enumerate(x.shape)]), x.dtype)
            d.call("torch.scatter_add", base, dim, index(d, x.shape, rows), x)
        case 3:
            base = d.call("Tensor.to", d.given([rows if i == dim % x.rank else n for i, n in enumerate(x.shape)]), x.dtype)
            reduce = d.rng.choice(("amax", "amin", "mean", "sum"))
            d.call("torch.scatter_reduce", base, dim, index(d, x.shape, rows), x, reduce)
        case 4:
            base = d.call("Tensor.to", d.given((rows, *x.shape[1:])), x.dtype)
            d.call("torch.index_put", base, (index(d, x.shape[:1], rows),), x, accumulate=True)
        case _:
            d.call("torch.scatter", x, dim, d.call("torch.argsort", d.call("torch.abs", d.given(x.shape, 1 << 40)), dim),
                   d.call("torch.mul", x, 0.5))


def hot(d: Drawing) -> None:
    classes = d.rng.choice((3, 8, 16, 33))
    x = index(d, d.shape(d.rng.randint(1, 2)), classes)
    d.call("own.one_hot", x, classes, d.floating())


def sorted_(d: Drawing) -> None:
    x = certain(d, 1)
    dim = any_dim(d, x, 2)
    count, descending = d.rng.randint(1, min(x.shape[dim], 20)), d.rng.random() < 0.5
    match d.rng.randrange(5):
        case 0:
            d.call("torch.sort", x, stable=True, dim=dim, descending=descending)
        case 1:
            d.call("torch.argsort", x, stable=True, dim=dim)
        case 2:
            d.call("own.ordered", x, dim, descending)
        case 3:
            d.call("own.largest", x, count, dim)
        case _:
            if not x.exact.sort(dim).values.diff(dim=dim).all():
                raise Unfit  # which of equal ones is first is not said
            d.call("torch.topk", x, count, dim, descending)


def bucketed(d: Drawing) -> None:
    x = certain(d)
    edges = d.call("own.ordered", d.given((d.rng.choice((3, 8, 33)),)), 0, False)
    if x.dtype != edges.dtype:
        raise Unfit
    d.call("torch.bucketize", x, edges, right=d.rng.random() < 0.5)


# Images


def convolved(d: Drawing) -> None:
    dims = d.rng.choice((1, 2, 2, 3))
    x = d.floating(dims + 2, dims + 2, lambda value: value.dtype == d.dtype)
    channels = x.shape[1]
    groups = d.rng.choice([n for n in (1, 1, 1, 2, channels) if channels % n == 0])
    out = groups * d.rng.choice([n for n in (1, 4, 8, 16, 33) if n * groups <= 128] or [1])
    kernel = [d.rng.choice([n for n in (1, 2, 3, 5) if n <= size]) for size in x.shape[2:]]
    if prod(x.shape) // channels * out * prod(kernel) * (channels // groups) > 3e8:
        raise Unfit
    stride, padding = d.rng.choice((1, 1, 2)), d.rng.choice((0, 1, 1))
    weight = d.given((out, channels // groups, *kernel), weight=True)
    if d.rng.random() < 0.15 and groups == 1:
        weight = d.given((channels, out, *kernel), weight=True)
        d.call(f"F.conv_transpose{dims}d", x, weight, None, stride, min(padding, min(kernel) - 1))
        return
    d.call(f"F.conv{dims}d", x, weight, d.given((out,), weight=True), stride, padding, d.rng.choice((1, 1, 2)), groups)


def pooled(d: Drawing) -> None:
    dims = d.rng.choice((1, 2, 2, 3))
    x = d.floating(dims + 1, dims + 2)
    match d.rng.randrange(4):
        case 0:
            d.call(f"F.avg_pool{dims}d", x, d.rng.choice((2, 3)), d.rng.choice((1, 2)), d.rng.choice((0, 1)))
        case 1:
            d.call(f"F.max_pool{dims}d", x, d.rng.choice((2, 3)), d.rng.choice((1, 2)), d.rng.choice((0, 1)))
        case 2:
            d.call(f"F.adaptive_avg_pool{dims}d", x, d.rng.choice((1, 2, 3, 5)))
        case _:
            d.call(f"F.adaptive_max_pool{dims}d", x, d.rng.choice((1, 2)))


def resized(d: Drawing) -> None:
    x = d.floating(3, 5)
    modes = {3: ("nearest", "linear"), 4: ("nearest", "bilinear", "bicubic", "area"), 5: ("nearest", "trilinear")}
    d.call("F.interpolate", x, scale_factor=d.rng.choice((2.0, 0.5, 1.5)), mode=d.rng.choice(modes[x.rank]))


def blocks(d: Drawing) -> None:
    x = d.floating(4, 4)
    match d.rng.randrange(4):
        case 0:
            d.call("F.unfold", x, d.rng.choice((2, 3)), padding=d.rng.choice((0, 1)), stride=d.rng.choice((1, 2)))
        case 1:
            columns = d.call("F.unfold", x, 2, stride=2)
            d.call("F.fold", columns, tuple(n // 2 * 2 for n in x.shape[2:]), 2, stride=2)
        case 2:
            d.call("F.pixel_unshuffle", x, 2)
        case _:
            d.call("F.pixel_shuffle", x, 2)


# Whole layers


def lost(d: Drawing) -> None:
    """A loss of two values of the same sizes."""
    x = d.floating(1)
    y = d.floating(1, fits=lambda value: value.shape == x.shape and value.dtype == x.dtype)
    reduction = d.rng.choice(("mean", "sum", "none"))
    match d.rng.randrange(7):
        case 0:
            d.call("F.mse_loss", x, y, reduction=reduction)
        case 1:
            d.call(d.rng.choice(("F.smooth_l1_loss", "F.huber_loss", "F.l1_loss")), x, y, reduction=reduction)
        case 2:
            d.call("F.binary_cross_entropy_with_logits", x, d.call("torch.sigmoid", y), reduction=reduction)
        case 3:
            logs = d.call("torch.log_softmax", x, -1)
            d.call("F.kl_div", logs, d.call("torch.softmax", y, -1), reduction="batchmean")
        case 4:
            x = d.floating(2, 2)
            d.call("F.cross_entropy", x, index(d, x.shape[:1], x.shape[1]), reduction=reduction)
        case 5:
            x = d.floating(2, 2)
            logs = d.call("torch.log_softmax", x, -1)
            d.call("F.nll_loss", logs, index(d, x.shape[:1], x.shape[1]), reduction=reduction)
        case _:
            d.call("F.cosine_embedding_loss", *(d.floating(2, 2, lambda v: v.shape == x.shape) for _ in range(2)),
                   d.call("torch.sub", d.call("torch.mul", index(d, x.shape[:1], 2), 2), 1), reduction=reduction)


def cell(d: Drawing) -> None:
    x = d.floating(2, 2, lambda value: value.dtype == d.dtype)
    rows, width = x.shape
    size = d.rng.choice(d.sizes)
    state = [d.given((rows, size)) for _ in range(2)]
    name, gates = d.rng.choice((("torch.lstm_cell", 4), ("torch.gru_cell", 3), ("torch.rnn_tanh_cell", 1)))
    weights = [d.given((gates * size, n), weight=True) for n in (width, size)]
    biases = [d.given((gates * size,), weight=True) for _ in range(2)]
    small = [d.call("torch.mul", weight, 0.125) for weight in weights]
    d.call(name, x, tuple(state) if gates == 4 else state[0], *small, *biases)


def attended(d: Drawing) -> None:
    x = d.floating(3, 4, lambda value: value.shape[-1] >= 4)
    keys = d.floating(3, 4, lambda v: v.shape[:-2] == x.shape[:-2] and v.shape[-1] == x.shape[-1] and v.dtype == x.dtype)
    d.call("F.scaled_dot_product_attention", x, keys, keys)


def glu(d: Drawing) -> None:
    x = d.floating(1)
    d.call("F.glu", x, any_dim(d, x, 2))


def changed(d: Drawing) -> None:
    """In place."""
    x = d.floating(1)
    places = slices(d, x)
    match d.rng.randrange(5):
        case 0:
            d.call("own.change", x, d.rng.choice(("add_", "mul_", "sub_")), partner(d, x))
        case 1:
            d.call("own.put", x, d.rng.choice((0.5, 0.0)), *places)
        case 2:
            d.call("own.put", x, d.call("torch.mul", d.call("own.index", x, *places), 0.5), *places)
        case 3:
            d.call("own.change_part", x, d.rng.choice(("add_", "mul_")), tuple(places), d.rng.choice((0.5, 2.0)))
        case _:
            d.call("own.change", x, d.rng.choice(("tanh_", "relu_", "sigmoid_", "neg_")))


def complex_(d: Drawing) -> None:
    if d.dtype != torch.float32:
        raise Unfit
    if d.rng.random() < 0.5:
        x = d.floating(1, 5, lambda value: value.shape[-1] == 2 and value.dtype == torch.float32)
        d.call("own.complex_product", x, d.call("torch.tanh", x))
    else:
        d.call("own.spectrum_size", d.floating(1, 5, lambda value: value.dtype == torch.float32))


FAMILIES: dict[tuple[Callable[[Drawing], None], ...], float] = {
    (unary, unary, unary_of_positive, unary_within_one, binary_with_number, power): 3,
    (binary, binary, quotient, three_operands): 4,
    (selected, filled, clamped, in_steps, compared, logical): 2.5,
    (integers, cast): 1.5,
    (reduced, reduced, reduced_whole, places, counted): 3,
    (scanned, scanned, scanned_integers): 1,
    (softmaxed, normed): 2,
    (linear, product, product_added, einsum): 3,
    (vectors, distances, similarity): 0.7,
    (viewed, viewed, sliced, cut, diagonals): 4,
    (joined, padded, moved, made): 3,
    (gathered, gathered, scattered, hot, sorted_, bucketed): 3,
    (convolved, convolved, pooled, resized, blocks): 1.5,
    (lost, cell, attended, glu, complex_): 1.3,
    (changed,): 1,
}
