"""Maxima of one image without a batch, and adaptive pooling as maxima or sums over windows that lie side by side.

torch-mlir's own decomposition of a maximum takes windows of one size, which is wrong wherever the output's size does
not divide the input's; torch's of an average adds up the elements of both dimensions of a window in one go, one output
after the other. Here each dimension is pooled alone: output i of m is of the elements floor(i n / m) to
ceil((i + 1) n / m) of n. Windows of different sizes are gathered, the shorter ones repeating their last element, which
adds nothing to a sum.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor, _meta_registrations
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.nn import functional as F
from torch.utils.weak import WeakTensorKeyDictionary

from .working import working

# By where maxima were found, which element of its window each was. Who asks this in the same trace reads few bytes.
TAPS = WeakTensorKeyDictionary()
_torch_average = torch._decomp.decomposition_table[torch.ops.aten._adaptive_avg_pool2d.default]

_torch_count = _meta_registrations.pooling_output_shape_pad_lr


@contextlib.contextmanager
def open_sizes() -> Iterator[None]:
    """Within the `with`, windows of open images are counted without a look at what is left, for which torch takes the
    example's: 2.11 of any, newer ones of those of `ceil_mode`. For one thread at a time, as all tracing."""
    _meta_registrations.pooling_output_shape_pad_lr = _count
    try:
        yield
    finally:
        _meta_registrations.pooling_output_shape_pad_lr = _torch_count


def _count(size: Any, kernel: int, before: int, behind: int, stride: int, dilation: int, ceil_mode: bool) -> Any:
    """How many windows a dimension of so many elements has; with `ceil_mode` the last one ends anywhere, but begins
    at an element or before the first."""
    room = before + behind - dilation * (kernel - 1) - 1
    return (size + (min(room + stride - 1, before - 1) if ceil_mode else room)) // stride + 1


def adaptive_max_pool(x: Tensor, output_size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Pools the last dimensions, as many as there are output sizes. The second result says where each maximum was
    found, counted among the elements of the pooled dimensions: the first of several equal ones."""
    places = torch.zeros((), dtype=torch.int64, device=x.device).expand(x.shape)
    stride: Any = 1  # between neighbours in the dimension that is pooled, among all that are
    for axis, size in zip(range(x.dim() - 1, -1, -1), reversed(output_size), strict=False):
        length = x.shape[axis]
        values, position = _windows(x, axis, size).max(axis + 1)
        first = _quotient(torch.arange(size, device=x.device) * length, size)
        inner = _windows(places, axis, size).gather(axis + 1, position.unsqueeze(axis + 1)).squeeze(axis + 1)
        places = inner + (position + first.view(-1, *[1] * (x.dim() - 1 - axis))) * stride
        x, stride = values, stride * length
    return x, places


def max_pool(operator: Any, dims: int) -> Callable[..., Any]:
    """A rule for pooling over so many dimensions of one image without a batch, which torch-mlir has not, and over whole
    images."""

    def pooled(x: Tensor, *args: Any) -> Any:
        if is_whole(x, dims, *args):
            return x.amax(list(range(-dims, 0)), keepdim=True)
        return operator(x[None], *args)[0] if x.dim() == dims + 1 else NotImplemented

    return pooled


def max_pool_with_indices(dims: int) -> Callable[..., tuple[Tensor, Tensor]]:
    """A rule for maxima of windows of the last dimensions, as many as that, and for where each was found, counted among
    their elements: the first of several equal ones. An element is compared with those of its window before it, so that
    nothing is computed twice and found to differ; which of them it was is a number of 8 bits."""

    def rule(
        x: Tensor,
        kernel: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,),
        ceil_mode: bool = False,
    ) -> tuple[Tensor, Tensor]:
        given = (list(each) * (dims // len(each)) for each in (kernel, stride or kernel, padding, dilation))
        forms, sizes = list(zip(*given, strict=True)), x.shape[-dims:]
        counts = [_count(n, k, p, p, s, d, ceil_mode) for n, (k, s, p, d) in zip(sizes, forms, strict=True)]
        around: list[Any] = []
        for size, count, (k, s, p, d) in reversed(list(zip(sizes, counts, forms, strict=True))):
            around += [p, (count - 1) * s + d * (k - 1) + 1 - p - size]
        lowest = float("-inf") if x.is_floating_point() else torch.iinfo(x.dtype).min
        padded = x if all(isinstance(n, int) and n == 0 for n in around) else F.pad(x, around, value=lowest)
        taps = list(itertools.product(*(range(k) for k, *_ in forms)))
        largest: Any = None
        for i, places in enumerate(taps):
            tap = padded
            for dim, at, count, (_, s, _, d) in zip(range(-dims, 0), places, counts, forms, strict=True):
                tap = torch.ops.aten.slice.Tensor(tap, x.dim() + dim, at * d, at * d + (count - 1) * s + 1, s)
            if largest is None:
                largest, number = tap, _first_inside(x, counts, forms).expand(tap.shape)
                continue
            above = (tap > largest) | (tap != tap)
            largest, number = torch.where(above, tap, largest), torch.where(above, i, number)
        number = number.to(torch.int8 if len(taps) < 128 else torch.int32)
        rest = number.to(torch.int64)
        index: Any = torch.zeros((), dtype=torch.int64, device=x.device)
        for axis, (size, count, (_, s, p, d)) in enumerate(zip(sizes, counts, forms, strict=True)):
            inner = prod(k for k, *_ in forms[axis + 1 :])
            at = torch.div(rest, inner, rounding_mode="floor")
            rest = rest - at * inner
            first = (torch.arange(count, device=x.device) * s - p).view(-1, *[1] * (dims - 1 - axis))
            index = index * size + (first + at * d)
        TAPS[index] = number
        return largest, index

    return rule


def _first_inside(x: Tensor, counts: Sequence[Any], forms: Sequence[tuple[int, int, int, int]]) -> Tensor:
    """For each window the number of its first element in the image, which is the largest where all are the lowest."""
    found = torch.zeros((), dtype=torch.int32, device=x.device)
    for axis, (count, (_, s, p, d)) in enumerate(zip(counts, forms, strict=True)):
        inner = prod(k for k, *_ in forms[axis + 1 :])
        if p:
            outside = p - torch.arange(count, dtype=torch.int32, device=x.device) * s
            first = _quotient(outside.clamp(min=0) + (d - 1), d)
            found = found + (first * inner).view(-1, *[1] * (len(forms) - 1 - axis))
    return found


def box_average(
    x: Tensor,
    window: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> Any:
    """Averages over large windows that overlap: sums along the last dimension, of which sums along the one before it
    are made, so that an element is read by as many as a window is long, and not by as many as it has elements."""
    (high, wide), (down, _) = window, stride or window
    if x.dim() != 4 or ceil_mode or not x.is_floating_point() or high * wide < 2 * (wide * down + high):
        return NotImplemented
    y = working(x)
    for axis in (1, 0):
        one, step, around = [1, 1], [1, 1], [0, 0]
        one[axis], step[axis], around[axis] = window[axis], (stride or window)[axis], padding[axis]
        y = torch.ops.aten.avg_pool2d.default(y, one, step, around, False, True, 1)
    if divisor is None and not count_include_pad and any(padding):
        for axis in (0, 1):
            y = y / _counts(x, y, axis, window, stride or window, padding)
        return y.to(x.dtype)
    return (y * (1 / (divisor or high * wide))).to(x.dtype)


def _counts(
    x: Tensor, y: Tensor, axis: int, window: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> Tensor:
    """How many elements of a dimension of an image windows have, without what is around it."""
    size, dim = x.shape[2 + axis], 2 + axis
    first = torch.arange(y.shape[dim], device=x.device) * stride[axis] - padding[axis]
    count = (first + window[axis]).clamp(max=size) - first.clamp(min=0)
    return count.to(y.dtype).view(-1, *[1] * (1 - axis))


def is_whole(x: Tensor, dims: int, window: Sequence[int], stride: Any = None, padding: Any = 0, *_: Any) -> bool:
    """Whether a pool's one window, over so many dimensions, is the image and nothing around it."""
    around = padding if isinstance(padding, Sequence) else [padding]
    return not any(around) and list(window) * (dims // len(window)) == list(x.shape[-dims:])


def adaptive_average_pool(x: Tensor, output_size: Sequence[int]) -> Any:
    """Averages over windows of the last dimensions, as many as there are output sizes; those of equal windows that lie
    side by side over two dimensions are torch's, which would take an open size for the example's. The first of the
    dimensions is pooled first: its windows are whole lines of memory."""
    pooled = list(zip(range(x.dim() - len(output_size), x.dim()), output_size, strict=True))
    if any(isinstance(size, torch.SymInt) for _, size in pooled):
        pooled = [(axis, size) for axis, size in pooled if not _is_kept(size, x.shape[axis])]
    if not x.is_floating_point() or not all(size > 0 for _, size in pooled):
        return _torch_average(x, output_size) if len(pooled) == 2 else NotImplemented
    if len(pooled) == 2 and all(isinstance(x.shape[axis], int) and not x.shape[axis] % size for axis, size in pooled):
        return _torch_average(x, output_size)
    y = x
    for axis, size in pooled:
        if isinstance(x.shape[axis], int) and x.shape[axis] == size:
            continue  # as the one that torch puts in front of a line's
        length, beside = x.shape[axis], [1] * (x.dim() - 1 - axis)
        # Numbers of 64 bits say which elements are read, others what is done with them: so what is computed of places
        # alone has one reader, whose kernel computes it.
        output = torch.arange(size, device=x.device, dtype=torch.int32)
        counts = _quotient((output + 1) * length + (size - 1), size) - _quotient(output * length, size)
        windows = working(_windows(y, axis, size, length - 1))  # elements are read as they are
        if not _divides(size, length):
            inside = torch.arange(windows.shape[axis + 1], device=x.device, dtype=torch.int32) < counts[:, None]
            windows = torch.where(inside.view(*inside.shape, *beside), windows, 0.0)
        y = windows.sum(axis + 1) / counts.view(-1, *beside)
    return y.to(x.dtype)


def _is_kept(size: Any, length: Any) -> bool:
    """Whether an open dimension is as long after pooling as before, as one of which None is asked."""
    return isinstance(size, torch.SymInt) and statically_known_true(size == length)


def _divides(size: int, length: Any) -> bool:
    """Whether windows are equal, which those of an open length need not be."""
    return size == 1 or (isinstance(length, int) and length % size == 0)


def _windows(x: Tensor, axis: int, size: int, last: Any = None) -> Tensor:
    """`x` with two dimensions in place of `axis`: the windows, and the elements of a window. Behind a shorter one its
    last element stands, or, where `last` is a number, those that follow it up to that one."""
    length = x.shape[axis]
    if _divides(size, length):
        return x.unflatten(axis, (size, length // size))
    if isinstance(length, int):
        longest = max(-(-(i + 1) * length // size) - i * length // size for i in range(size))
    else:
        longest = (length + size - 1) // size + 1
    output = torch.arange(size, device=x.device)[:, None]
    elements = _quotient(output * length, size) + torch.arange(longest, device=x.device)
    if last is None:
        elements = torch.minimum(elements, _quotient((output + 1) * length + (size - 1), size) - 1)
    else:
        elements = elements.clamp(max=last)
    picked = x.index_select(axis, elements.reshape(-1))
    return picked.view(*x.shape[:axis], size, longest, *x.shape[axis + 1 :])


def _quotient(x: Tensor, y: int) -> Tensor:
    """The quotient of numbers that are not negative, for which rounding down is one division."""
    return torch.div(x, y, rounding_mode="trunc")
