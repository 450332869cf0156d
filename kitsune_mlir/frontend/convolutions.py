"""Convolutions of one channel a group. Transposed ones torch-mlir has not: they are convolutions of the elements with
zeros between them, by kernels turned round. Those of lines are convolutions of images of one row: torch-mlir makes
images of one column of them, whose neighbours are not beside each other in the last dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

aten = torch.ops.aten


def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    if groups == 1 or weight.shape[:2] != (groups, 1):
        return NotImplemented
    if not transposed:
        if len(stride) > 1:
            return NotImplemented
        x, weight = x.unsqueeze(-2), weight.unsqueeze(-2)
        sizes = [1, *stride], [0, *padding], [1, *dilation]
        return aten.convolution(x, weight, bias, *sizes, False, [0, 0], groups).squeeze(-2)
    dims = range(len(stride))
    for i in dims:
        before = dilation[i] * (weight.shape[2 + i] - 1) - padding[i]
        x = _spread(x, 2 + i, stride[i], before, before + output_padding[i])
    kernel = weight.flip([2 + i for i in dims])
    ones, none = [1] * len(dims), [0] * len(dims)
    return aten.convolution(x, kernel, bias, ones, none, dilation, False, none, groups)


def _spread(x: Tensor, dim: int, stride: int, before: int, after: int) -> Tensor:
    """`x` with stride - 1 zeros between the elements of a dimension, and so many more before and after them."""
    if stride > 1:
        x = F.pad(x.unsqueeze(dim + 1), [0, 0] * (x.dim() - 1 - dim) + [0, stride - 1]).flatten(dim, dim + 1)
        after -= stride - 1
    return F.pad(x, [0, 0] * (x.dim() - 1 - dim) + [before, after])


CONVOLUTIONS = {aten.convolution.default: convolution}
