"""Decompositions of operators that reduce rows by index: sums leave in whole rows and are added up in at least f32."""

from __future__ import annotations

import math
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from .indexing import bags_of
from .shapes import are_known, line_along
from .working import NARROW, working

aten = torch.ops.aten


def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    """One scatter of whole rows, which are whole where their dimension is the first. Unlike those of `index_put`,
    negative numbers are out of range."""
    source = source if alpha == 1 else source * alpha
    if x.dim() > 1 and dim % x.dim():
        return index_add(x.movedim(dim, 0), 0, index, source.movedim(dim, 0)).movedim(0, dim)
    return aten._unsafe_index_put(working(x), [index], working(source), accumulate=True).to(x.dtype)


def scatter_add(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Any:
    """A row's number, expanded over its elements, is that of a whole row. A number's only element is added to."""
    if not x.dim():
        return x + source.reshape(())
    if (rows := rows_of_index(x, dim, index, source)) is not None:
        return index_add(x, dim, rows, source)
    if x.dtype in NARROW:
        return aten.scatter_add(x.float(), dim, index, source.float()).to(x.dtype)
    return aten.scatter_add(x, dim + x.dim(), index, source) if dim < 0 < x.dim() else NotImplemented


def rows_of_index(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor | None:
    """For a scatter whose index, [n, ...], is one of n numbers expanded over all elements of a row: these numbers."""
    others = [d for d in range(x.dim()) if d != dim % max(x.dim(), 1)]
    if not x.dim() or not (x.dim() == index.dim() == source.dim()):
        return None
    whole = all(_equal(index.shape[d], t.shape[d]) for d in others for t in (x, source))
    if not whole or not _equal(index.shape[dim], source.shape[dim]):
        return None
    if any(index.stride(d) != 0 and not _equal(index.shape[d], 1) for d in others):
        return None
    for d in reversed(others):
        index = index.select(d, 0)
    return index


def scatter_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    """Of 16-bit numbers in f32, which sums and products are rounded in once, and memory knows the largest and the least
    of; means are sums that are divided, those of integers rounded down. Of dimensions that count from the end
    torch-mlir dies."""
    if dim < 0 < x.dim():
        return aten.scatter_reduce(x, dim + x.dim(), index, source, reduce, include_self=include_self)
    if reduce == "sum" and include_self:
        return aten.scatter_add(x, dim, index, source)
    rows = rows_of_index(x, dim, index, source)
    if x.dim() > 2 and rows is not None:
        return _as_matrix(x, dim, rows, source, reduce, include_self)
    if x.is_floating_point() and rows is not None and reduce in ("sum", "mean"):
        return _of_rows(x, dim, rows, source, reduce, include_self)
    if x.dtype in NARROW:
        wide = aten.scatter_reduce(x.float(), dim, index, source.float(), reduce, include_self=include_self)
        return wide.to(x.dtype)
    if reduce != "mean":
        return NotImplemented
    total = aten.scatter_reduce(x, dim, index, source, "sum", include_self=include_self)
    count = aten.scatter_add(torch.full_like(x, int(include_self)), dim, index, torch.ones_like(source))
    return torch.div(total, count.clamp(min=1), rounding_mode=None if x.is_floating_point() else "floor")


def _of_rows(x: Tensor, dim: int, rows: Tensor, source: Tensor, reduce: str, include_self: bool) -> Tensor:
    """The sum or the mean of whole rows, of which one number says how many there are for each row of `x`."""
    wide, source = working(x), working(source)
    count = index_add(wide.new_zeros(x.shape[dim]), 0, rows, wide.new_ones(rows.shape[0]))
    count = count.view(line_along(dim, x.dim()))
    if include_self:
        return (index_add(wide, dim, rows, source) / (count + 1)).to(x.dtype)
    total = index_add(torch.zeros_like(wide), dim, rows, source)
    found = total / count.clamp(min=1) if reduce == "mean" else total
    return torch.where(count > 0, found, wide).to(x.dtype)


def _as_matrix(x: Tensor, dim: int, rows: Tensor, source: Tensor, reduce: str, include_self: bool) -> Any:
    """Rows of several dimensions, such as the heads or towers of a message, are rows of all their elements: only of two
    dimensions is it seen later that elements of a row go together."""
    if dim:
        made = _as_matrix(x.movedim(dim, 0), 0, rows, source.movedim(dim, 0), reduce, include_self)
        return made if made is NotImplemented else made.movedim(0, dim)
    columns = prod(x.shape[1:]) if are_known(x.shape[1:]) else 0
    if not columns:
        return NotImplemented
    flat, given = x.reshape(x.shape[0], columns), source.reshape(source.shape[0], columns)
    index = rows.view(-1, 1).expand_as(given)
    return aten.scatter_reduce(flat, 0, index, given, reduce, include_self=include_self).view(x.shape)


def index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    shape = line_along(dim, x.dim())
    return aten.scatter_reduce(x, dim, index.view(shape).expand_as(source), source, reduce, include_self=include_self)


_EMPTY = {"sum": 0.0, "mean": math.nan, "max": -math.inf, "min": math.inf}  # what torch says of no rows


def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Any:
    """Rows that follow one another, by the number of their segment."""
    if axis != 0 or reduce not in _EMPTY or initial is not None or (offsets is None) == (lengths is None):
        return NotImplemented
    given = lengths if offsets is None else offsets
    if given.dim() != 1:
        return NotImplemented
    ends = lengths.cumsum(0) if offsets is None else offsets[1:]
    starts = ends - lengths if offsets is None else offsets[:-1]
    count = starts.shape[0]
    segment = bags_of(starts, data.shape[0]).view(-1, *[1] * (data.dim() - 1)).expand_as(data)
    into = data.new_full((count, *data.shape[1:]), 0.0 if reduce == "mean" else _EMPTY[reduce])
    if reduce in ("max", "min"):
        return aten.scatter_reduce(into, 0, segment, data, f"a{reduce}")
    total = aten.scatter_add(into, 0, segment, data)
    sizes = (ends - starts).view(-1, *[1] * (data.dim() - 1)).to(data.dtype)
    return total if reduce == "sum" else total / sizes


def _equal(a: Any, b: Any) -> bool:
    return bool(statically_known_true(a == b))


SUMS_BY_INDEX = {
    aten.index_add.default: index_add,
    aten.scatter_add.default: scatter_add,
    aten.scatter_reduce.two: scatter_reduce,
    aten.index_reduce.default: index_reduce,
    aten.segment_reduce.default: segment_reduce,
}
