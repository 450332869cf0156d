"""Decompositions of sums and products: 16-bit numbers are added up in f32 and rounded once, as torch does it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .pooling import box_average, is_whole
from .working import NARROW, working

aten = torch.ops.aten
FEW = 4  # tensors whose elements are summed one by one


def mean(x: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    dims = list(range(x.dim())) if not dim else [d % x.dim() for d in dim if x.dim()]
    count = math.prod(x.shape[d] for d in dims)
    kind = dtype or x.dtype
    if not kind.is_floating_point:
        return NotImplemented
    if not isinstance(count, int):
        return aten.mean.dim(x.float(), dims, keepdim).to(kind) if kind in NARROW else NotImplemented
    scale = 1 / count if count else math.nan
    return (working(x.to(kind)).sum(dims, keepdim=keepdim) * scale).to(kind)


def total(x: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    return x.sum(list(range(x.dim())) if dim is None else dim, keepdim=keepdim)


def logsumexp(x: Tensor, dim: Sequence[int], keepdim: bool = False) -> Any:
    """Over a few tensors, the first dimension of a stack, elementwise, so that no stack is made, and what reads the
    result is computed with it; else as torch has it."""
    own = [d % x.dim() for d in dim] if x.dim() > 1 else []
    count = x.shape[0] if own == [0] and x.is_floating_point() else None
    if not isinstance(count, int) or not 1 < count <= FEW:
        return torch._refs.logsumexp(x, dim, keepdim)
    parts = [working(part) for part in x.unbind()]
    largest = functools.reduce(torch.maximum, parts)
    largest = torch.where(largest.abs() == math.inf, 0.0, largest)
    found = sum((part - largest).exp() for part in parts).log() + largest
    return (found[None] if keepdim else found).to(x.dtype)


def in_f32(operator: Any) -> Callable[..., Any]:
    """A rule for an operator that sums or multiplies numbers of 16 bits: it does so in f32, as torch does."""

    def summed(x: Tensor, *args: Any, dtype: Any = None, **options: Any) -> Any:
        if x.dtype not in NARROW or dtype not in (None, x.dtype):
            return NotImplemented
        return operator(x.float(), *args, **options).to(x.dtype)

    return summed


def averaged(operator: Any, dims: int) -> Callable[..., Any]:
    """The same of a pooling over so many dimensions, of one image without a batch too. Of a window that is the whole
    image it is the mean of that."""
    summed = in_f32(operator)

    def pooled(x: Tensor, *args: Any, **options: Any) -> Any:
        if is_whole(x, dims, *args) and (args[5:] or [options.get("divisor_override")])[0] is None:
            return mean(x, list(range(-dims, 0)), keepdim=True)
        if dims == 2 and (found := box_average(x, *args, **options)) is not NotImplemented:
            return found
        return operator(x[None], *args, **options)[0] if x.dim() == dims + 1 else summed(x, *args, **options)

    return pooled


SUMS = {
    aten.logsumexp.default: logsumexp,
    aten.sum.dim_IntList: in_f32(total),
    aten.sum.default: in_f32(total),
    aten.mean.dim: mean,
    aten.mean.default: lambda x, *, dtype=None: mean(x, dtype=dtype),
    aten.avg_pool2d.default: averaged(aten.avg_pool2d.default, 2),
    aten.avg_pool3d.default: averaged(aten.avg_pool3d.default, 3),
    aten.prod.default: in_f32(aten.prod.default),
    aten.prod.dim_int: in_f32(aten.prod.dim_int),
}
