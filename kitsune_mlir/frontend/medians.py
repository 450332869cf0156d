"""Medians, quantiles and modes. The number that has so many before it in the order of its row is found bit by bit: how
many numbers are less than one with the next bit set says whether the bit is (radix selection). That is a count of the
row for each bit, all of which are one kernel that has the row in registers; nothing is sorted. Long rows are sorted,
with NaN last, so that counting it says where the numbers end."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .own_operators import BITS
from .working import working

aten = torch.ops.aten

_MOST = 4096  # numbers of a row that is not sorted
_FEWEST = 17
_WORD = 32  # bits
_KINDS = (torch.float32, torch.float16, torch.bfloat16, torch.int32)
_LEAST, _GREATEST = -(2**31), 2**31 - 1


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
    if _is_selected(x, dim):
        found, place = (part.transpose(dim, -1) for part in _selected_median(x.transpose(dim, -1), skip_nan))
        return (found, place) if keepdim else (found.squeeze(dim), place.squeeze(dim))
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


def mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The least of the numbers that stand most often in a row, and its last place. Each is compared with all."""
    if not x.dim():
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    size = x.shape[dim]
    if not isinstance(size, int) or not 0 < size <= _MOST:
        return NotImplemented
    rows = x.movedim(dim, -1)
    counts = (rows.unsqueeze(-1) == rows.unsqueeze(-2)).sum(-1).clamp(min=1)  # NaN stands alone
    often = counts == counts.amax(-1, keepdim=True)
    if x.is_floating_point():
        numbers = often & (rows == rows)
        least = torch.where(numbers, rows, torch.inf).amin(-1, keepdim=True)
        value = torch.where(numbers.any(-1, keepdim=True), least, torch.nan)
        found = often & ((rows == value) | ((value != value) & (rows != rows)))
    else:
        highest = 1 if x.dtype == torch.bool else torch.iinfo(x.dtype).max
        value = torch.where(often, rows, torch.full_like(rows, highest)).amin(-1, keepdim=True)
        found = often & (rows == value)
    place = torch.where(found, torch.arange(size, device=x.device), -1).amax(-1, keepdim=True)
    value, place = (part.movedim(-1, dim) for part in (value.to(x.dtype), place))
    return (value, place) if keepdim else (value.squeeze(dim), place.squeeze(dim))


def _is_selected(x: Tensor, dim: int) -> bool:
    size = x.shape[dim]
    return x.dtype in _KINDS and isinstance(size, int) and _FEWEST <= size <= _MOST


def _selected_median(x: Tensor, skip_nan: bool) -> tuple[Tensor, Tensor]:
    """The median of each row and its place, the first of equal ones."""
    size, keys = x.shape[-1], _keys(x)
    before: Tensor | int = (size - 1) // 2
    if x.is_floating_point():
        numbers = (x == x).to(torch.int32).sum(-1, keepdim=True, dtype=torch.int32)
        if skip_nan:
            before = torch.div((numbers - 1).clamp(min=0), 2, rounding_mode="trunc").to(torch.int32)
        else:
            before = torch.where(numbers < size, numbers, before)
    is_found = keys == _select(keys, before)
    places = torch.arange(size, dtype=torch.int32, device=x.device)
    place = torch.where(is_found, places, size).amin(-1, keepdim=True)
    return _one(x, is_found), place.long()


def _keys(x: Tensor) -> Tensor:
    """Integers (i32) in the order of the numbers, NaN behind all."""
    if not x.is_floating_point():
        return x
    wide = working(x)
    bits = BITS(wide, torch.int32)
    return torch.where(wide != wide, _GREATEST, torch.where(bits < 0, (-1 - bits) + _LEAST, bits))


def _select(keys: Tensor, before: Tensor | int) -> Tensor:
    """The key that has so many before it in the order of its row."""
    found: Tensor | int = _LEAST
    for bit in reversed(range(_WORD)):
        other = found + (1 << bit)  # 0, for the first
        less = (keys < other).to(torch.int32).sum(-1, keepdim=True, dtype=torch.int32)
        found = torch.where(less <= before, other, found)
    return found


def _one(x: Tensor, is_it: Tensor) -> Tensor:
    """The number of each row of which one is marked, or several that are equal."""
    if not x.is_floating_point():
        return torch.where(is_it, x, _LEAST).amax(-1, keepdim=True)
    wide = working(x)
    return torch.where(is_it, wide, -torch.inf).amax(-1, keepdim=True).to(x.dtype)


def quantile(
    x: Tensor,
    q: float | Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
    skip_nan: bool = False,
) -> Tensor:
    """Quantiles between two neighbours in the order of a row: of one number, or of each of a vector, which are then
    dimension 0. Rows with NaN have no other, or it is skipped."""
    whole = dim is None or not x.dim()
    rows = x.flatten() if whole else x.movedim(dim, -1)
    selects = _is_selected(rows, -1) and x.dtype == torch.float32 and interpolation == "linear"
    if isinstance(q, Tensor) or skip_nan or not selects or _has_gradients(x):
        found = _sorted_quantile(rows, q, interpolation, skip_nan)
    else:
        found = _selected_quantile(rows, q)
    vector = isinstance(q, Tensor) and q.dim() == 1
    found = found.movedim(-1, 0) if vector else found.squeeze(-1)
    if keepdim:
        for d in range(x.dim()) if whole else [dim % x.dim()]:
            found = found.unsqueeze(d + vector)
    return found


def _has_gradients(x: Tensor) -> bool:
    return x.requires_grad or torch._C._functorch.get_dynamic_layer_stack_depth() > 0


def _sorted_quantile(x: Tensor, q: float | Tensor, interpolation: str, skip_nan: bool) -> Tensor:
    """The quantiles of rows of any length, as torch computes them: from rows that are sorted."""
    values, last = x.sort(-1).values, x.shape[-1] - 1
    share = q if isinstance(q, Tensor) else torch.scalar_tensor(q, dtype=x.dtype, device=x.device)
    if skip_nan:
        rank = share * ((x == x).sum(-1, keepdim=True) - 1).clamp(min=0)
    else:
        rank = torch.where((x != x).any(-1, keepdim=True), last, share * last)
    rank = {"lower": rank.floor(), "higher": rank.ceil(), "nearest": rank.round()}.get(interpolation, rank)
    low = values.gather(-1, rank.long())
    if interpolation not in ("linear", "midpoint"):
        return low
    share = torch.full_like(rank, 0.5) if interpolation == "midpoint" else rank - rank.floor()
    return torch.lerp(low, values.gather(-1, rank.ceil().long()), share)


def _selected_quantile(x: Tensor, q: float) -> Tensor:
    rank = np.float32(q) * np.float32(x.shape[-1] - 1)  # as torch has it
    low, share = int(np.floor(rank)), float(rank - np.floor(rank))
    keys = _keys(x)
    key = _select(keys, low)
    found = other = _one(x, keys == key)
    if share:
        least = torch.where(keys > key, keys, _GREATEST).amin(-1, keepdim=True)
        upto = (keys <= key).to(torch.int32).sum(-1, keepdim=True, dtype=torch.int32)
        other = torch.where(upto > low + 1, found, _one(x, keys == least))
    found = torch.lerp(found, other, share)  # of two infinite numbers none
    none = (x != x).to(torch.int32).sum(-1, keepdim=True, dtype=torch.int32)
    return torch.where(none > 0, torch.nan, found)


MEDIANS = {
    aten.mode.default: mode,
    aten.median.dim: median,
    aten.median.default: lambda x: median(x.flatten(), 0)[0],
    aten.nanmedian.dim: nanmedian,
    aten.nanmedian.default: lambda x: nanmedian(x.flatten(), 0)[0],
    aten.quantile.scalar: quantile,
    aten.nanquantile.scalar: functools.partial(quantile, skip_nan=True),
}
