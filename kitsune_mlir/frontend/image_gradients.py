"""Gradients of pools, of what is put around images, and of larger images made of them.

A maximum's goes where it was found: an element asks the few windows that see it whether it was theirs, and nothing is
added by number. Averages, borders and copies of elements are linear along each dimension by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .blocks import Asked, around, in_blocks, joined, numbers, windows_at
from .pooling import TAPS
from .working import working

aten = torch.ops.aten

MOST_ASKED = 64  # windows that an element asks, of more of which gradients are added by number


def max_pool_backward(
    grad: Tensor,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Tensor,
) -> Any:
    """Of windows [..., H, W] the gradients at the elements where `indices`, counted within an image, found them.
    Elements are in blocks of a stride each, all of which ask the same windows. Where it is known which element of its
    window each was, that is compared: it takes few bytes."""
    forms = [list(size) * (2 // len(size)) for size in (kernel, stride or kernel, padding, dilation)]
    asked = [Asked.of(x.shape[d], grad.shape[d], *(own[d] for own in forms)) for d in (-2, -1)]
    if asked[0].windows * asked[1].windows > MOST_ASKED:
        return _by_number(grad, x, indices)
    taps = TAPS.get(indices)
    # Where no windows are, nothing is added, wherever that was found.
    given, found_at = around(grad, asked), around(indices if taps is None else taps.to(torch.float16), asked)
    own = [torch.arange(one.blocks * one.stride, dtype=torch.int32, device=x.device) for one in asked]
    places = in_blocks(own[0][:, None] * x.shape[-1] + own[1], asked)
    found: Any = None
    for number in numbers(asked):
        part, at = (windows_at(each, number, asked) for each in (given, found_at))
        own_tap = places if taps is None else _tap(x, number, asked, [(one[0], *one[2:]) for one in zip(*forms)])
        part = torch.where(at.to(torch.int32) == own_tap, working(part), 0.0)
        found = part if found is None else found + part
    return joined(found, asked).to(x.dtype)


def _tap(x: Tensor, number: Sequence[int], asked: Sequence[Asked], forms: Sequence[tuple[int, int, int]]) -> Tensor:
    """Of windows of that number, which of their elements each of a block's is, as in_blocks has these; -1 of none."""
    found: Any = 0
    inside: Any = None
    for d, (i, one, (kernel, padding, dilation)) in enumerate(zip(number, asked, forms, strict=True), 1):
        at = torch.arange(one.stride, dtype=torch.int32, device=x.device) + (padding - (one.first + i) * one.stride)
        tap = torch.div(at, dilation, rounding_mode="floor")
        fits = (at >= 0) & (tap < kernel) & (at == tap * dilation)
        shape = [1, one.stride] if one.stride > 1 else [1]
        beside = [1 for other in asked[d:] for _ in range(1 + (other.stride > 1))]
        tap, fits = (each.view(*shape, *beside) for each in (tap, fits))
        found, inside = found * kernel + tap, fits if inside is None else inside & fits
    return torch.where(inside, found, -1)


def _last(places: Tensor, padding: int, stride: int) -> Tensor:
    """The last window that begins at or before each place."""
    return torch.div(places + padding, stride, rounding_mode="floor")


def _is_window(number: Tensor, count: Any) -> Tensor:
    return (number >= 0) & (number < count)


def _by_number(grad: Tensor, x: Tensor, indices: Tensor, dims: int = 2) -> Tensor:
    """Added up where they belong, whatever windows of so many dimensions they are of."""
    none = torch.zeros(x.shape, dtype=working(x).dtype, device=x.device).flatten(-dims)
    added = none.scatter_add(-1, indices.flatten(-dims), working(grad).flatten(-dims))
    return added.view(x.shape).to(x.dtype)


def max_pool3d_backward(
    grad: Tensor, x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, indices: Tensor
) -> Tensor:
    return _by_number(grad, x, indices, 3)


def adaptive_max_pool_backward(dims: int) -> Callable[..., Tensor]:
    return lambda grad, x, indices: _by_number(grad, x, indices, dims)


def average_backward(dims: int) -> Callable[..., Tensor]:
    """A rule for averages over windows of the last dimensions, as many as that."""

    def rule(
        grad: Tensor,
        x: Tensor,
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
        count_include_pad: bool,
        divisor: int | None = None,
    ) -> Tensor:
        forms = [list(each) * (dims // len(each)) for each in (kernel, stride or kernel, padding)]
        found = working(grad)
        for axis, (k, s, p) in enumerate(zip(*forms, strict=True), x.dim() - dims):
            found = _averaged(found, axis, x.shape[axis], (k, s, p), divisor is None, count_include_pad)
        return (found if divisor is None else found / divisor).to(x.dtype)

    return rule


def _averaged(
    grad: Tensor, axis: int, size: Any, form: tuple[int, int, int], divided: bool, with_borders: bool
) -> Tensor:
    """The gradients of averages, or of sums, along one dimension, which has so many elements."""
    (k, s, p), beside = form, [1] * (grad.dim() - axis - 1)
    if divided:
        first = torch.arange(grad.shape[axis], device=grad.device) * s - p
        last = first + k
        if with_borders:
            counts = last.clamp(max=size + p) - first
        else:
            counts = last.clamp(max=size) - first.clamp(min=0)
        grad = grad / counts.view(-1, *beside)
    places = torch.arange(size, device=grad.device)
    last = _last(places, p, s)
    found: Any = None
    for i in range(-(-k // s)):
        at = last - i
        inside = _is_window(at, grad.shape[axis]) & (places < at * s - p + k)
        part = grad.index_select(axis, at.clamp(0, grad.shape[axis] - 1))
        part = torch.where(inside.view(-1, *beside), part, 0.0)
        found = part if found is None else found + part
    return found


def adaptive_average_backward(dims: int) -> Callable[..., Tensor]:
    """A rule for averages over windows of so many dimensions that lie side by side, or nearly so."""

    def rule(grad: Tensor, x: Tensor) -> Tensor:
        found = working(grad)
        for axis in range(x.dim() - dims, x.dim()):
            count, size = found.shape[axis], x.shape[axis]
            if isinstance(count, int) and isinstance(size, int) and size % count == 0:
                found = _repeated(found, axis, size // count) / (size // count)
                continue
            ends = torch.arange(1, count + 1, device=x.device) * -size
            first = torch.div(torch.arange(count, device=x.device) * size, count, rounding_mode="floor")
            last = -torch.div(ends, count, rounding_mode="floor")
            places = torch.arange(size, device=x.device)
            seen = (places >= first[:, None]) & (places < last[:, None])
            weights = torch.where(seen, 1.0 / (last - first)[:, None], 0.0).to(found.dtype)
            found = (found.movedim(axis, -1) @ weights).movedim(-1, axis)
        return found.to(x.dtype)

    return rule


def _repeated(x: Tensor, axis: int, times: int) -> Tensor:
    shape = list(x.shape)
    shape.insert(axis + 1, times)
    return x.unsqueeze(axis + 1).expand(shape).flatten(axis, axis + 1)


def nearest_backward(dims: int) -> Callable[..., Tensor]:
    """A rule for images made larger by the nearest element, of so many dimensions."""

    def rule(grad: Tensor, output_size: Sequence[Any], input_size: Sequence[Any], *scales: float | None) -> Any:
        found = working(grad)
        for axis, size, scale in zip(range(2, 2 + dims), input_size[2:], scales or (None,) * dims, strict=True):
            count = found.shape[axis]
            if isinstance(count, int) and isinstance(size, int) and count % size == 0 and scale in (None, count / size):
                found = found.unflatten(axis, (size, count // size)).sum(axis + 1)
                continue
            ratio = 1 / scale if scale else size / count
            nearest = (torch.arange(count, device=grad.device) * ratio).floor().to(torch.int64).clamp(max=size - 1)
            taken = torch.arange(size, device=grad.device) == nearest[:, None]
            found = (found.movedim(axis, -1) @ taken.to(found.dtype)).movedim(-1, axis)
        return found.to(grad.dtype)

    return rule


def replication_backward(grad: Tensor, x: Tensor, padding: Sequence[int]) -> Any:
    """Of images whose first and last elements are repeated around them, or which are cut where a number is below 0."""
    sizes = zip(reversed(x.shape), padding[::2], padding[1::2], strict=False)
    if any(isinstance(size, int) and size + min(before, 0) + min(after, 0) < 1 for size, before, after in sizes):
        return NotImplemented
    found = grad
    for axis, (before, after) in enumerate(zip(padding[::2], padding[1::2], strict=True)):
        dim = x.dim() - 1 - axis
        size = x.shape[dim] + min(before, 0) + min(after, 0)
        before, after, cut = max(before, 0), max(after, 0), [max(-before, 0), max(-after, 0)]
        wide = working(found)
        if before:
            first = wide.narrow(dim, 0, before + 1).sum(dim, keepdim=True)
            wide = torch.cat([first, wide.narrow(dim, before + 1, size - 1 + after)], dim)
        if after:
            last = wide.narrow(dim, size - 1, after + 1).sum(dim, keepdim=True)
            wide = torch.cat([wide.narrow(dim, 0, size - 1), last], dim)
        found = F.pad(wide, [0, 0] * axis + cut) if any(cut) else wide
    return found.to(grad.dtype)


IMAGE_GRADIENTS = {
    aten.max_pool2d_with_indices_backward.default: max_pool_backward,
    aten.max_pool3d_with_indices_backward.default: max_pool3d_backward,
    aten.adaptive_max_pool2d_backward.default: adaptive_max_pool_backward(2),
    aten.adaptive_max_pool3d_backward.default: adaptive_max_pool_backward(3),
    aten.avg_pool2d_backward.default: average_backward(2),
    aten.avg_pool3d_backward.default: average_backward(3),
    aten._adaptive_avg_pool2d_backward.default: adaptive_average_backward(2),
    aten._adaptive_avg_pool3d_backward.default: adaptive_average_backward(3),
    aten.upsample_nearest1d_backward.default: nearest_backward(1),
    aten.upsample_nearest2d_backward.default: nearest_backward(2),
    aten.upsample_nearest3d_backward.default: nearest_backward(3),
    aten.replication_pad1d_backward.default: replication_backward,
    aten.replication_pad2d_backward.default: replication_backward,
    aten.replication_pad3d_backward.default: replication_backward,
}
