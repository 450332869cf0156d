"""Rules of random programs: products, images, whole layers, losses."""

from __future__ import annotations

from math import prod

import torch

from .program_picks import any_dim, index, partner
from .random_programs import Drawing, Unfit, Value


def linear(d: Drawing) -> None:
    x = d.floating(1, fits=lambda value: value.dtype == d.dtype)
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
            d.call(
                "F.cosine_embedding_loss",
                *(d.floating(2, 2, lambda v: v.shape == x.shape) for _ in range(2)),
                d.call("torch.sub", d.call("torch.mul", index(d, x.shape[:1], 2), 2), 1),
                reduction=reduction,
            )


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
    keys = d.floating(
        3, 4, lambda v: v.shape[:-2] == x.shape[:-2] and v.shape[-1] == x.shape[-1] and v.dtype == x.dtype
    )
    d.call("F.scaled_dot_product_attention", x, keys, keys)


def glu(d: Drawing) -> None:
    x = d.floating(1)
    d.call("F.glu", x, any_dim(d, x, 2))


def complex_(d: Drawing) -> None:
    if d.dtype != torch.float32:
        raise Unfit
    if d.rng.random() < 0.5:
        x = d.floating(1, 5, lambda value: value.shape[-1] == 2 and value.dtype == torch.float32)
        d.call("own.complex_product", x, d.call("torch.tanh", x))
    else:
        d.call("own.spectrum_size", d.floating(1, 5, lambda value: value.dtype == torch.float32))
