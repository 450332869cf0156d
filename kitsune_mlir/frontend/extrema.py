"""The largest and the smallest elements, and their places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

FEW_PLACES = 24  # of columns, which one kernel goes down, a thread a column, as fast as two kernels that share columns


def place(x: Tensor, extremum: Callable[..., Tensor], dim: int | None, keepdim: bool) -> Any:
    """Of the largest or the smallest element, of a dimension or of all: the least place of those where that number or a
    NaN is, two reductions in place of one that carries a place beside a number."""
    if dim is None:
        at = place(x.reshape(-1), extremum, 0, False)
        return at.reshape([1] * x.dim()) if keepdim and at is not NotImplemented else at
    if not x.dim():
        return NotImplemented
    if x.dtype == torch.bool:
        x = x.to(torch.int32)
    dim = dim % x.dim()
    size = x.shape[dim]
    if isinstance(size, int) and (size < 2 or dim < x.dim() - 1 and size <= FEW_PLACES):
        return NotImplemented
    places = torch.arange(size, dtype=torch.int32, device=x.device).view(-1, *[1] * (x.dim() - 1 - dim))
    none = torch.scalar_tensor(torch.iinfo(torch.int32).max, dtype=torch.int32, device=x.device)
    found = x == extremum(x, dim, keepdim=True)
    if x.is_floating_point():
        found = found | (x != x)
    return torch.where(found, places, none).amin(dim, keepdim=keepdim).long()


def place_of(extremum: Callable[..., Tensor]) -> Callable[..., Any]:
    """A rule for `argmax` or `argmin`."""
    return lambda x, dim=None, keepdim=False: place(x, extremum, dim, keepdim)


def with_place(extremum: Callable[..., Tensor]) -> Callable[..., Any]:
    """A rule for the largest or the smallest element of a dimension beside its place."""

    def both(x: Tensor, dim: int, keepdim: bool = False) -> Any:
        at = place(x, extremum, dim, keepdim)
        if at is NotImplemented:
            return at
        if x.dtype == torch.bool:
            return (x.any if extremum is torch.amax else x.all)(dim, keepdim=keepdim), at
        return extremum(x, dim, keepdim=keepdim), at

    return both


def of_all(extremum: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    """A rule for the largest or the smallest element of several dimensions that are all there are: one reduction, where
    those of some are one after the other."""

    def over(x: Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> Any:
        if x.dim() < 2 or len({d % x.dim() for d in dim} or range(x.dim())) < x.dim():
            return NotImplemented
        return extremum(x).reshape([1] * x.dim() if keepdim else [])

    return over


EXTREMA = {
    aten.amax.default: of_all(torch.max),
    aten.amin.default: of_all(torch.min),
    aten.argmax.default: place_of(torch.amax),
    aten.argmin.default: place_of(torch.amin),
    aten.max.dim: with_place(torch.amax),
    aten.min.dim: with_place(torch.amin),
}
