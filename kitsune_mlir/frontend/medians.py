"""Medians, which are read off sorted numbers. A sort has NaN last, so that counting it says where the numbers end."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def median(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    """The lower of two medians and its place; NaN and the place of one where there is one."""
    return _median(x, dim, keepdim, skip_nan=False)


def nanmedian(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    """The same of the elements that are not NaN; NaN where there are none."""
    return _median(x, dim, keepdim, skip_nan=True)


def _median(x: Tensor, dim: int, keepdim: bool, skip_nan: bool) -> Any:
    if not x.dim():
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    size = x.shape[dim]
    values, places = x.sort(dim)
    if x.is_floating_point():
        numbers = (x == x).sum(dim, keepdim=True)
        middle = torch.div((numbers - 1).clamp(min=0), 2, rounding_mode="trunc")
        if not skip_nan:
            middle = torch.where(numbers < size, numbers, middle)
        found, place = values.gather(dim, middle), places.gather(dim, middle)
    else:
        found, place = (part.narrow(dim, (size - 1) // 2, 1) for part in (values, places))
    return (found, place) if keepdim else (found.squeeze(dim), place.squeeze(dim))


MEDIANS = {
    aten.median.dim: median,
    aten.median.default: lambda x: median(x.flatten(), 0)[0],
    aten.nanmedian.dim: nanmedian,
    aten.nanmedian.default: lambda x: nanmedian(x.flatten(), 0)[0],
}
