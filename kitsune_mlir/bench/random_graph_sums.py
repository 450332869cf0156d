"""Rows of a table by number and sums by number, in the ways in which graph networks have them."""

from __future__ import annotations

import torch
from torch import Tensor

WAYS = ("index_add", "scatter_add", "repeated", "scatter_reduce", "index_put")


def rows(table: Tensor, index: Tensor, by_select: bool, axis: int = 0) -> Tensor:
    if by_select:
        return table.index_select(axis, index)
    return table[:, index] if axis else table[index]


def _beside(index: Tensor, x: Tensor, axis: int) -> Tensor:
    """The numbers with a dimension of one for each other one of x."""
    return index.view([-1 if dimension == axis else 1 for dimension in range(x.dim())])


def total(x: Tensor, index: Tensor, size: int, way: str, how: str = "sum", axis: int = 0) -> Tensor:
    """The sums of rows by index, or what else scatter_reduce knows; rows of which there are none are zeros."""
    shape = list(x.shape)
    shape[axis] = size
    zeros = x.new_zeros(shape)
    if way == "index_put" and how == "sum" and axis == 0:
        return zeros.index_put((index,), x, accumulate=True)
    if way in ("index_add", "index_put"):
        if how == "sum":
            return zeros.index_add(axis, index, x)
        return zeros.index_reduce(axis, index, x, how, include_self=False)
    spread = _beside(index.long(), x, axis)
    if way == "repeated":
        spread = spread.repeat([1 if dimension == axis else count for dimension, count in enumerate(x.shape)])
    spread = spread.expand_as(x)
    if how == "sum" and way != "scatter_reduce":
        return zeros.scatter_add_(axis, spread, x)
    return zeros.scatter_reduce_(axis, spread, x, how, include_self=how == "sum")


def degree(index: Tensor, size: int, like: Tensor, way: str = "scatter_add") -> Tensor:
    """How many edges each node has; by `bincount` where sums are made by index_put."""
    if way == "index_put":
        return torch.bincount(index, minlength=size).to(like.dtype)
    return total(like.new_ones(index.shape[0]), index, size, "scatter_add")


def joined(x: Tensor, index: Tensor, size: int, how: str, way: str, axis: int = 0) -> Tensor:
    """The rows of each number joined as torch_geometric's aggregations of that name do it."""
    if how == "mean":
        if way == "scatter_reduce":
            return total(x, index, size, way, "mean", axis)
        found = total(x, index, size, way, axis=axis)
        return found / _beside(degree(index, size, x).clamp(min=1), found, axis)
    if how == "std":
        mean = joined(x, index, size, "mean", way, axis)
        return (joined(x * x, index, size, "mean", way, axis) - mean * mean).clamp(min=1e-5).sqrt()
    if how == "softmax":
        return total(x * softmax(x, index, size, way, axis), index, size, way, axis=axis)
    return total(x, index, size, way, {"max": "amax", "min": "amin"}.get(how, how), axis)


def softmax(scores: Tensor, index: Tensor, size: int, way: str, axis: int = 0) -> Tensor:
    """Over the rows of each number."""
    most = total(scores, index, size, way, "amax", axis).index_select(axis, index)
    found = (scores - most).exp()
    return found / (total(found, index, size, way, axis=axis).index_select(axis, index) + 1e-16)
