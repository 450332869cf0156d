"""What random programs call that torch has no function of one name for, and which functions only move numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def index(x: Tensor, *places: Any) -> Tensor:
    return x[places]


def put(x: Tensor, value: Any, *places: Any) -> Tensor:
    """x with a part that has been written."""
    x = x.clone()
    x[places] = value
    return x


def change(x: Tensor, method: str, *args: Any) -> Tensor:
    """x as a method has changed it in place, such as "add_"."""
    x = x.clone()
    getattr(x, method)(*args)
    return x


def change_part(x: Tensor, method: str, places: tuple[Any, ...], *args: Any) -> Tensor:
    """x, a view of which a method has changed in place."""
    x = x.clone()
    getattr(x[places], method)(*args)
    return x


def arrange(length: int, like: Tensor) -> Tensor:
    """The numbers of places, from 0 to 1, in the type of another tensor."""
    return torch.arange(length, device=like.device).to(like.dtype) / length


def spaced(first: float, last: float, like: Tensor) -> Tensor:
    """As many numbers as another tensor's last dimension has, at equal distances."""
    return torch.linspace(first, last, like.shape[-1], dtype=like.dtype, device=like.device)


def complex_product(x: Tensor, y: Tensor) -> Tensor:
    """The products of complex numbers, which are pairs in the last dimension."""
    return torch.view_as_real(torch.view_as_complex(x.contiguous()) * torch.view_as_complex(y.contiguous()))


def spectrum_size(x: Tensor) -> Tensor:
    """How large complex numbers are, a real and an imaginary part each."""
    return torch.complex(x, x.flip(-1)).abs()


def one_hot(x: Tensor, classes: int, like: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(x, classes).to(like.dtype)


def scatter_zeros(index: Tensor, values: Tensor, rows: int, dim: int) -> Tensor:
    """Sums by index onto zeros."""
    shape = list(values.shape)
    shape[dim] = rows
    return values.new_zeros(shape).index_add(dim, index, values)


def ordered(x: Tensor, dim: int, descending: bool) -> Tensor:
    return x.sort(dim, descending).values


def largest(x: Tensor, count: int, dim: int) -> Tensor:
    return x.topk(count, dim).values


FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        index,
        put,
        change,
        change_part,
        arrange,
        spaced,
        complex_product,
        spectrum_size,
        one_hot,
        scatter_zeros,
        ordered,
        largest,
    )
}

# Their results are numbers that were there before, with no rounding.
MOVES = frozenset(
    """F.embedding F.max_pool1d F.max_pool2d F.max_pool3d F.pad Tensor.expand Tensor.repeat Tensor.unfold own.index
    own.largest own.one_hot own.ordered own.put torch.abs torch.amax torch.amin torch.argsort torch.cat torch.ceil
    torch.chunk torch.clamp torch.cummax torch.cummin torch.diag_embed torch.diagonal torch.flatten torch.flip
    torch.floor torch.floor_divide torch.fmod torch.gather torch.index_select torch.masked_fill torch.max
    torch.maximum torch.meshgrid torch.min torch.minimum torch.movedim torch.narrow torch.neg torch.permute
    torch.relu torch.remainder torch.repeat_interleave torch.reshape torch.roll torch.rot90 torch.round
    torch.scatter torch.select torch.sign torch.sort torch.split torch.squeeze torch.stack torch.take_along_dim
    torch.tile torch.topk torch.transpose torch.tril torch.triu torch.trunc torch.unbind torch.unflatten
    torch.unsqueeze torch.where""".split()
)
