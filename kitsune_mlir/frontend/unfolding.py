"""Windows of images as columns (F.unfold), and columns added up where their windows lie (F.fold), as gradients of
windows of a signal are (`Tensor.unfold`).

Windows' elements are read by maps (sampled_elements.windows), so that what reads windows can read the image; torch's
own rule writes the windows, and these in their order. What is added up goes in steps,
too: the element of a window that lies m strides behind its first is moved by m windows. torch adds element by element.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decompositions

from .own_operators import WINDOWS
from .shapes import are_known

aten = torch.ops.aten

_MOST_TERMS = 64  # that are added up; torch adds more by index


def unfold(
    x: Tensor, kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> Any:
    if x.dim() == 3:
        return unfold(x.unsqueeze(0), kernel, dilation, padding, stride).squeeze(0)
    if not are_known((x.shape[1], *kernel)):
        return decompositions.im2col(x, kernel, dilation, padding, stride)
    forms = zip(x.shape[2:], kernel, dilation, padding, strict=True)
    longest = [size + 2 * p - d * (k - 1) for size, k, d, p in forms]
    if any(isinstance(size, int) and size < 1 for size in longest):
        return decompositions.im2col(x, kernel, dilation, padding, stride)
    if any(padding):
        x = aten.constant_pad_nd(x, [padding[1], padding[1], padding[0], padding[0]])
    return WINDOWS(x, kernel, dilation, stride, False).flatten(1, 3).flatten(2)


def fold(
    x: Tensor,
    size: Sequence[int],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Any:
    if x.dim() == 2:
        return fold(x.unsqueeze(0), size, kernel, dilation, padding, stride).squeeze(0)
    forms = list(zip(size, kernel, stride, dilation, padding, strict=True))
    if not all(isinstance(number, int) for number in (x.shape[1], *size, *kernel)):
        return decompositions.col2im(x, size, kernel, dilation, padding, stride)
    if any(s > 1 and d > 1 for _, _, s, d, _ in forms) or prod(_terms(k, s) for _, k, s, _, _ in forms) > _MOST_TERMS:
        return decompositions.col2im(x, size, kernel, dilation, padding, stride)
    counts = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, d, p in forms]
    found = (
        x.unflatten(2, counts).unflatten(1, (-1, *kernel)).permute(0, 1, 2, 4, 3, 5)
    )  # [n, c, k, windows, k, windows]
    for axis in (1, 0):
        found = _added(found, 2 + 2 * axis, *forms[axis])
    return found


def add_windows(x: Tensor, sizes: Sequence[int], dim: int, size: int, step: int) -> Any:
    """A tensor of these sizes, in which the windows along a dimension are added up. `x` has as many windows there, and
    the elements of one in a dimension behind all others."""
    known = sizes and all(isinstance(number, int) for number in (sizes[dim], x.shape[dim % len(sizes)], size))
    if not known or size < 1 or _terms(size, step) > _MOST_TERMS:
        return decompositions.unfold_backward(x, sizes, dim, size, step)
    dim %= len(sizes)
    return _added(x.movedim(-1, dim), dim, sizes[dim], size, step, 1, 0)


def _terms(kernel: int, stride: int) -> int:
    return ceil(kernel / stride)


def _added(x: Tensor, axis: int, size: int, kernel: int, stride: int, dilation: int, padding: int) -> Tensor:
    """The elements of windows, dimension `axis` of them and the next of windows, added up along one of `size`."""
    terms, rank = _terms(kernel, stride), x.dim()
    around = [[0, 0] for _ in range(rank)]
    around[axis][1] = terms * stride - kernel  # so that each term has an element in each stride
    x = aten.constant_pad_nd(x, sum(reversed(around), [])).unflatten(axis, (terms, stride))
    far = dilation if stride == 1 else 1  # windows from one term to the next
    total = None
    for term in range(terms):
        around = [[0, 0] for _ in range(rank)]
        around[axis + 1] = [term * far, (terms - 1 - term) * far]
        moved = aten.constant_pad_nd(x.select(axis, term), sum(reversed(around), []))
        total = moved if total is None else total + moved
    assert total is not None
    found = total.transpose(axis, axis + 1).flatten(axis, axis + 1)
    behind = padding + size - found.shape[axis]  # elements that no window has
    if behind > 0:
        around = [[0, 0] for _ in range(found.dim())]
        around[axis][1] = behind
        found = aten.constant_pad_nd(found, sum(reversed(around), []))
    return found.narrow(axis, padding, size)


UNFOLDING = {
    aten.im2col.default: unfold,
    aten.col2im.default: fold,
    aten.unfold_backward.default: add_windows,
}
