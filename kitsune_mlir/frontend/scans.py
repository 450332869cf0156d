"""Running sums and products, which torch-mlir has as loops of one thread, running maxima, minima and logarithms of sums
of exponentials, which it has not, or of sums that overflow.

A scan goes in steps of 1, 2, 4, ... places: after the step of k places each element stands for the 2k elements up to
its own, so that all are done after as many steps as the length has binary digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .working import NARROW, working

aten = torch.ops.aten

Parts = tuple[Tensor, ...]


def _scan(parts: Parts, dim: int, join: Callable[[Parts, Parts], Parts]) -> Parts:
    """The running result of `join`, which is given earlier elements and later ones, of tensors of one shape."""
    size, step = parts[0].shape[dim], 1
    while step < size:
        earlier = tuple(part.narrow(dim, 0, size - step) for part in parts)
        later = tuple(part.narrow(dim, step, size - step) for part in parts)
        joined = join(earlier, later)
        parts = tuple(
            torch.cat([part.narrow(dim, 0, step), rest], dim) for part, rest in zip(parts, joined, strict=True)
        )
        step *= 2
    return parts


def running_extremum(is_later: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Any]:
    """A rule for the largest or the smallest element so far, and its place: the last of equal ones. NaN beats numbers.
    `is_later` says where a later element is at least as good as an earlier one."""

    def join(earlier: Parts, later: Parts) -> Parts:
        better = is_later(earlier[0], later[0])
        if later[0].is_floating_point():
            better = better | (later[0] != later[0])
        return tuple(torch.where(better, new, old) for old, new in zip(earlier, later, strict=True))

    def running(x: Tensor, dim: int) -> Any:
        if not x.dim():
            return x.clone(), torch.zeros_like(x, dtype=torch.int64)
        size = x.shape[dim]
        if not isinstance(size, int):
            return NotImplemented
        lined_up = [-1 if d == dim % x.dim() else 1 for d in range(x.dim())]
        places = torch.arange(size, dtype=torch.int32, device=x.device).view(lined_up).expand(x.shape)
        y = x.to(torch.int32) if x.dtype == torch.bool else x
        values, places = _scan((y, places), dim, join)
        return values.to(x.dtype), places.long()

    return running


def logcumsumexp(x: Tensor, dim: int) -> Any:
    """log(exp a + exp b) = max + log1p(exp(min - max)), which does not overflow. How many steps an open size takes is
    not known: of that it is torch-mlir's logarithm of a running sum, in f32."""
    if not x.dim():
        return x.clone()
    if not x.is_floating_point():
        return NotImplemented
    if not isinstance(x.shape[dim], int):
        return aten.logcumsumexp(x.float(), dim).to(x.dtype) if x.dtype in NARROW else NotImplemented
    return _scan((working(x),), dim, _join_exponentials)[0].to(x.dtype)


def _join_exponentials(earlier: Parts, later: Parts) -> Parts:
    high, low = torch.maximum(earlier[0], later[0]), torch.minimum(earlier[0], later[0])
    gap = torch.where(high == low, torch.zeros_like(high), low - high)  # of two infinities: 0
    return (high + gap.exp().log1p(),)


def running(operator: Any, join: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Any]:
    """A rule for running sums or products; as `sums` says, those of 16 bits in f32. An open size is torch-mlir's."""

    def scanned(x: Tensor, dim: int, *, dtype: Any = None) -> Any:
        kind = dtype or (x.dtype if x.is_floating_point() or x.is_complex() else torch.int64)
        if not x.dim():
            return x.to(kind).clone()
        if isinstance(x.shape[dim], int):
            return _scan((working(x.to(kind)),), dim, lambda a, b: (join(a[0], b[0]),))[0].to(kind)
        return operator(x.float(), dim).to(kind) if x.dtype in NARROW and kind == x.dtype else NotImplemented

    return scanned


SCANS = {
    aten.cumsum.default: running(aten.cumsum.default, torch.add),
    aten.cumprod.default: running(aten.cumprod.default, torch.mul),
    aten.cummax.default: running_extremum(torch.le),
    aten.cummin.default: running_extremum(torch.ge),
    aten.logcumsumexp.default: logcumsumexp,
}
