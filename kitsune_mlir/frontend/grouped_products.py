"""Decomposition of products of groups of rows, each with a matrix of its own, as the experts of a mixture have them.

How many rows a group has is known to nobody before the call, but how many blocks of rows all groups together fill at
most is: each group ends with one block that is not full. So rows are put into blocks that have rows of one group each,
which are a batch of products, each with the matrix of its group:

    offs = [3, 3, 8], blocks of 4      =>      rows 0 1 2 .     with matrix 0
                                               rows 3 4 5 6     with matrix 2
                                               rows 7 . . .     with matrix 2
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .working import working

aten = torch.ops.aten

_BLOCK, _MANY = 64, 128  # rows of a block: those of the smallest tile of tensor cores, and where groups are large
_LARGE = 256  # rows that groups have on average: about half a block of each is empty


def grouped_product(
    x: Tensor, matrices: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: Any = None
) -> Any:
    """[S, K] x [groups, K, N]: rows from offs[g - 1] on, up to offs[g], are multiplied with matrix g. Rows behind the
    last group, of which torch says nothing, are multiplied with the last matrix."""
    sizes = [x.shape[1], *matrices.shape]
    if offs is None or bias is not None or (x.dim(), matrices.dim()) != (2, 3):
        return NotImplemented
    if out_dtype not in (None, x.dtype) or x.shape[0] == 0 or not all(isinstance(size, int) and size for size in sizes):
        return NotImplemented
    rows, groups = x.shape[0], matrices.shape[0]
    block, count = _BLOCK, groups + rows // _BLOCK
    if isinstance(rows, int):
        begun = min(rows, groups)  # groups that have rows
        block = _MANY if rows >= _LARGE * groups else _BLOCK
        count = begun + (rows - begun) // block
    number = torch.arange(groups, device=x.device)
    offs = torch.where(number == groups - 1, rows, offs.long())
    starts = torch.where(number < number.unsqueeze(1), offs, torch.zeros_like(offs)).amax(1)  # the end of those before
    blocks = (offs - starts + (block - 1)) // block
    ends = _running_sums(blocks)
    first = ends - blocks  # block of each group

    group = _group_of(torch.arange(count, device=x.device), ends).clamp(max=groups - 1)
    inside = (torch.arange(count, device=x.device) - first[group]) * block
    places = (starts[group] + inside).unsqueeze(1) + torch.arange(block, device=x.device)
    found = torch.bmm(x[places.clamp(max=rows - 1)], _taken(matrices, group))

    own = torch.arange(rows, device=x.device)
    group = _group_of(own, offs).clamp(max=groups - 1)
    return found.flatten(0, 1)[first[group] * block + own - starts[group]]


def product_of_library(x: Tensor, matrices: Tensor, offs: Tensor) -> Any:
    """The operator by which transformers has such products of other types than bf16; rows behind the last group are
    zeros."""
    y = grouped_product(x, matrices, offs)
    if y is NotImplemented:
        return y
    own = torch.arange(x.shape[0], device=x.device)
    return torch.where((own < offs[-1]).unsqueeze(1), y, torch.zeros_like(y))


def of_libraries() -> dict[Any, Any]:
    """Rules for operators of libraries, where these have been imported."""
    known = hasattr(torch.ops.transformers, "grouped_mm_fallback")
    return {torch.ops.transformers.grouped_mm_fallback.default: product_of_library} if known else {}


def _running_sums(x: Tensor) -> Tensor:
    """The sum of the numbers up to each of them, of which there are few."""
    places = torch.arange(x.shape[0], device=x.device)
    return torch.where(places <= places.unsqueeze(1), x, torch.zeros_like(x)).sum(1)


def _group_of(places: Tensor, ends: Tensor) -> Tensor:
    """How many groups have ended before each place."""
    return (ends <= places.unsqueeze(1)).to(torch.int64).sum(1)


def _taken(matrices: Tensor, numbers: Tensor) -> Tensor:
    """Matrices by number, read as they lie."""
    if matrices.stride(-1) != 1 and matrices.stride(-2) == 1:
        return matrices.transpose(1, 2)[numbers].transpose(1, 2)
    return matrices[numbers]


def histogram(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """How many numbers each of `bins` equal parts from `min` to `max` has, `max` being in the last one."""
    flat = working(x).reshape(-1)
    if min == max:
        if not isinstance(flat.shape[0], int) or not flat.shape[0]:
            return NotImplemented
        low, high = flat.amin(), flat.amax()
        alike = low == high  # as torch has it, one to each side
        low, high = torch.where(alike, low - 1, low), torch.where(alike, high + 1, high)
    else:
        low, high = (torch.full([], end, dtype=flat.dtype, device=x.device) for end in (min, max))
    part = ((flat - low) * bins / (high - low)).long().clamp(max=bins - 1)
    part = torch.where((flat >= low) & (flat <= high), part, torch.full_like(part, -1))
    here = part.unsqueeze(1) == torch.arange(bins, device=x.device)
    return here.to(torch.int32).sum(0).to(x.dtype)


GROUPED_PRODUCTS = {aten._grouped_mm.default: grouped_product, aten.histc.default: histogram}
