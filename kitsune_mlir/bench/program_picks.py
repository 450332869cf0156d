"""How the rules of random programs pick values: dimensions, partners, masks, numbers of rows."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .random_programs import Drawing, Unfit, Value

COMPARISONS = "torch.gt torch.lt torch.ge torch.le torch.eq torch.ne".split()


def any_dims(d: Drawing, x: Value) -> tuple[int, ...]:
    """Some of a value's dimensions, some of them counted from the last."""
    if not x.rank:
        raise Unfit
    found = sorted(d.rng.sample(range(x.rank), d.rng.randint(1, min(x.rank, 3))))
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
