"""Decompositions of operators that write elements by index, or along a diagonal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .shapes import are_known, line_along

aten = torch.ops.aten


def scatter(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Any:
    """torch-mlir dies of dimensions that count from the end. A number's only element is replaced."""
    if not x.dim():
        return source.reshape(()).to(x.dtype, copy=True)
    return aten.scatter.src(x, dim + x.dim(), index, source) if dim < 0 < x.dim() else NotImplemented


def scatter_value(x: Tensor, dim: int, index: Tensor, value: Any) -> Any:
    if not x.dim():
        return torch.full_like(x, value)
    return aten.scatter.value(x, dim + x.dim(), index, value) if dim < 0 < x.dim() else NotImplemented


def gather(x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Any:
    """A number has one element, which is taken whatever its dimension is called."""
    return x.expand(index.shape).clone() if not x.dim() else NotImplemented


def scatter_reduced(x: Tensor, dim: int, index: Tensor, source: Tensor, *, reduce: str) -> Tensor:
    """What `scatter_reduce` replaced, where a product and a sum had other names."""
    return aten.scatter_reduce(x, dim, index, source, {"add": "sum", "multiply": "prod"}[reduce])


def scatter_value_reduced(x: Tensor, dim: int, index: Tensor, value: Any, *, reduce: str) -> Tensor:
    return scatter_reduced(x, dim, index, torch.full_like(index, value, dtype=x.dtype), reduce=reduce)


def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Elements by their number among all of the tensor's."""
    return x.reshape(-1).index_put((index.reshape(-1),), source.reshape(-1), accumulate).view(x.shape)


def diagonal_scatter(x: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """A choice between the tensor and the source, which stands in each column of the diagonal's row, or, below the main
    diagonal, in each row of its column."""
    matrices = x.movedim((dim1, dim2), (-2, -1))
    rows, columns, length = *matrices.shape[-2:], source.shape[-1]
    if not are_known((rows, columns, length)):
        return NotImplemented
    axis, size = (-1, rows) if offset >= 0 else (-2, columns)
    spread = aten.constant_pad_nd(source, (0, size - length)).unsqueeze(axis)
    row, column = torch.arange(rows, device=x.device), torch.arange(columns, device=x.device)
    found = torch.where(column - row[:, None] == offset, spread.to(x.dtype), matrices)
    return found.movedim((-2, -1), (dim1, dim2))


def as_strided_scatter(
    x: Tensor, source: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Any:
    """Elements by their place in memory, which is their number among all where the tensor is contiguous. This is what
    torch makes of `fill_diagonal_`."""
    if not x.is_contiguous() or not all(isinstance(each, int) for each in (*x.shape, *size, *stride)):
        return NotImplemented
    places = torch.full([1] * len(size), storage_offset or 0, dtype=torch.int64, device=x.device)
    for axis, (extent, step) in enumerate(zip(size, stride, strict=True)):
        along = torch.arange(extent, device=x.device) * step
        places = places + along.view(line_along(axis, len(size)))
    return put(x, places, source)


def masked_scatter_backward(grad: Tensor, mask: Tensor, sizes: Sequence[int]) -> Any:
    """The gradient of what a mask took in its order: numbers, or, where all columns of a mask are one, rows."""
    if not are_known(sizes):
        return NotImplemented
    mask = mask.expand(grad.shape)
    by_rows = mask.dim() > 1 and len(sizes) > 1 and mask.stride(-1) == 0 and sizes[-1] == grad.shape[-1]
    width = [sizes[-1]] if by_rows else []
    count = math.prod(sizes[:-1] if by_rows else sizes)
    taken = (mask.select(-1, 0) if by_rows else mask).reshape(-1)
    place = torch.where(taken, taken.long().cumsum(0) - 1, count)  # what is not taken goes behind the others
    found = grad.new_zeros([count + 1, *width]).index_put((place,), grad.reshape(-1, *width))
    return found.narrow(0, 0, count).view(sizes)


SCATTERS = {
    aten.masked_scatter_backward.default: masked_scatter_backward,
    aten.gather.default: gather,
    aten.scatter.src: scatter,
    aten.scatter.value: scatter_value,
    aten.scatter.reduce: scatter_reduced,
    aten.scatter.value_reduce: scatter_value_reduced,
    aten.put.default: put,
    aten.diagonal_scatter.default: diagonal_scatter,
    aten.as_strided_scatter.default: as_strided_scatter,
}
