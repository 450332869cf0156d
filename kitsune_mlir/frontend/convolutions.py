"""Convolutions that are something else. Where a filter covers a whole image once, as where a squeeze-excite block
weighs channels, it is a linear layer of the image's elements; a transposed one of an image of one place is a linear
layer whose results are the new image's elements. Where filters lie side by side, as those of a vision transformer's
patches do, and are wider than a chunk of what tensor cores sum, it is a linear layer of each filter's elements. A
transposed one is a convolution of as many times as many filters, each of every stride-th element, without the zeros.

Of volumes of few channels filters of one slice see images: a row of such an image is one element of all its channels
(passes/convolutions.py), where a volume's elements would be mostly zeros.

Those of one channel a group: transposed ones torch-mlir has not. They are convolutions of the elements with zeros
between them, by kernels turned round. Those of volumes it has with several filters a channel, but not with one. Those
of lines are convolutions of images of one row: torch-mlir makes images of one column of them, whose neighbours are not
beside each other in the last dimension. Lines and images whose sizes are open until the call are rows of a linear
layer, each of the elements that the filter sees there: kernels of convolutions know their places. So are many images
of very few places, which leave most of the rows of such a kernel's tiles empty, and so it is where the
number of groups is open, as where each image of a batch has filters of its own: a batch of products."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kitsune_mlir.planning.kernel_cost import MOST_WINDOW
from kitsune_mlir.planning.product_engines import CHUNK

from .given_orders import of_example
from .own_operators import WINDOWS
from .shapes import are_known

aten = torch.ops.aten

_MANY_FILTERS, _MUCH_SEEN = 16, 32  # filters of an image of open sizes, and the elements that one sees
_FEW_PLACES, _MANY_PLACES = 16, 4096  # of an image, and of all


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
    each = (stride, padding, dilation, output_padding)  # of which one number stands for all dimensions
    stride, padding, dilation, output_padding = (list(own) * (x.dim() - 2) if len(own) == 1 else own for own in each)
    if groups == 1 and not transposed and _is_of_wide_patches(x, weight, stride, padding, dilation):
        return _of_patches(x, weight, bias)
    if groups == 1 and not transposed and (across := _across(x, weight, padding)) is not None:
        sizes = [[size for i, size in enumerate(each) if i != across] for each in (stride, padding, dilation)]
        taken = x.movedim(2 + across, 1)[:, :: stride[across]]
        y = aten.convolution(taken.flatten(0, 1), weight.squeeze(2 + across), bias, *sizes, False, [0, 0], 1)
        return y.unflatten(0, taken.shape[:2]).movedim(1, 2 + across)
    is_layer = groups == 1 and not transposed
    if is_layer and (_is_open_layer(x, weight) or _has_few_places(x, weight, stride, padding, dilation)):
        return _of_open_image(x, weight, bias, stride, padding, dilation)
    if not isinstance(groups, int):
        if transposed:
            x, weight = _as_direct(x, weight, stride, padding, dilation, output_padding, groups)
            stride, padding = [1] * len(stride), [0] * len(stride)
        return _of_open_groups(x, weight, bias, stride, padding, dilation, groups)
    if groups == 1:
        found = _linear(x, weight, bias, [*padding, *output_padding], dilation, transposed)
        if found is not NotImplemented:
            return found
    if transposed and _are_phases(x, weight, dilation, groups):
        return _of_phases(x, weight, bias, stride, padding, output_padding, groups)
    if weight.shape[:2] != (groups, 1):
        return NotImplemented
    if not transposed:
        if len(stride) == 3:
            return _twice(x, weight, bias, stride, padding, dilation)
        if len(stride) > 1:
            return NotImplemented
        x, weight = x.unsqueeze(-2), weight.unsqueeze(-2)
        sizes = [1, *stride], [0, *padding], [1, *dilation]
        return aten.convolution(x, weight, bias, *sizes, False, [0, 0], groups).squeeze(-2)
    x, kernel = _as_direct(x, weight, stride, padding, dilation, output_padding, groups)
    ones, none = [1] * len(stride), [0] * len(stride)
    return aten.convolution(x, kernel, bias, ones, none, dilation, False, none, groups)


def _are_phases(x: Tensor, weight: Tensor, dilation: Sequence[int], groups: int) -> bool:
    """Whether a transposed convolution is done so. One of a channel at a time whose filter is a window of one kernel is
    not: that reads its zeros from nowhere."""
    known = are_known(weight.shape)
    single = groups > 1 and weight.shape[:2] == (groups, 1)
    return known and set(dilation) == {1} and (not single or prod(weight.shape[2:]) > MOST_WINDOW)


def _of_phases(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """A transposed convolution as one that is not, of stride 1: elements of a result that are a stride apart see
    neighbours of the image by one filter, each stride-th element of the whole one. So there are as many times as many
    channels, which are then put between one another: those behind the first few a place further on."""
    rank, around, late, counts, sizes = len(stride), list[tuple[int, int]](), list[int](), [], []
    kernel = weight.unflatten(0, (groups, -1))
    for i, (n, k, s, p) in enumerate(zip(x.shape[2:], weight.shape[2:], stride, padding, strict=True)):
        more, taps = k - s - 2 * p + output_padding[i], -(-k // s)  # the result has n * s + more elements
        counts.append(n - -more // s)
        first, after = p // s, (p - s * (-more // s) - 1) // s  # places, of which each sees so many neighbours before
        around.append((taps - 1 - first, after + 1))
        late.append(p - s * first)
        sizes.append(n * s + more if more % s else None)
        kernel = F.pad(kernel, [0, 0] * (rank - 1 - i) + [0, -k % s]).unflatten(3 + 2 * i, (-1, s))
        kernel = kernel.roll(-late[i], 4 + 2 * i)
    taps, phases = ([first + 2 * i for i in range(rank)] for first in (3, 4))
    kernel = kernel.permute(0, 2, *phases, 1, *taps).flatten(0, 1 + rank).flip([2 + i for i in range(rank)])
    if bias is not None:
        bias = bias.repeat_interleave(prod(stride))
    if any(before != after or before < 0 for before, after in around):
        x = F.pad(x, [n for sides in reversed(around) for n in sides])
        around = [(0, 0)] * rank
    ones = [1] * rank
    y = aten.convolution(x, kernel, bias, ones, [before for before, _ in around], ones, False, [0] * rank, groups)
    y = _later(y.unflatten(1, (-1, *stride)), 0, late, counts)
    y = y.permute(0, 1, *(n for i in range(rank) for n in (2 + rank + i, 2 + i)))
    for i, size in enumerate(sizes):
        y = y.flatten(2 + i, 3 + i)
        y = y if size is None else y.narrow(2 + i, 0, size)
    return y


def _later(y: Tensor, i: int, late: Sequence[int], counts: Sequence[int]) -> Tensor:
    """Of places, [batch, channels, phases ..., places ...], so many; the last `late` phases have those one further on,
    from dimension `i` of space on. Each part of `y` is taken once, so that what reads this reads them."""
    if i == len(late):
        return y
    parts = [y.narrow(2 + len(late) + i, first, counts[i]) for first in range(2 if late[i] else 1)]
    parts = [_later(part, i + 1, late, counts) for part in parts]
    if not late[i]:
        return parts[0]
    phases = y.shape[2 + i]
    numbers = torch.arange(phases, device=y.device).view(phases, *[1] * (2 * len(late) - 1 - i))
    return torch.where(numbers < phases - late[i], *parts)


def _as_direct(
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
    groups: Any,
) -> tuple[Tensor, Tensor]:
    """The image, with zeros between its elements and around it, and the filters of the convolution, not transposed, of
    strides of 1 and without padding, that a transposed one is."""
    for i in range(len(stride)):
        before = dilation[i] * (weight.shape[2 + i] - 1) - padding[i]
        x = _spread(x, 2 + i, stride[i], before, before + output_padding[i])
    kernel = weight.flip([2 + i for i in range(len(stride))])
    if weight.shape[1] != 1 or not isinstance(groups, int):
        kernel = kernel.unflatten(0, (groups, weight.shape[0] // groups)).transpose(1, 2).flatten(0, 1)
    return x, kernel


def _of_open_groups(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: Any,
) -> Any:
    """For each group a product of its filters and of what they see."""
    filter_, rank = weight.shape[2:], len(stride)
    if not are_known((*filter_, *x.shape[2:], weight.shape[1])):
        return NotImplemented
    x = F.pad(x, [size for each in reversed(padding) for size in (each, each)]) if any(padding) else x
    sizes = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], filter_, stride, dilation, strict=True)]
    seen = []
    for tap in itertools.product(*map(range, filter_)):
        part = x
        for i in range(rank):
            first = tap[i] * dilation[i]
            part = part[(slice(None),) * (2 + i) + (slice(first, first + stride[i] * (sizes[i] - 1) + 1, stride[i]),)]
        seen.append(part.flatten(2))
    windows = torch.stack(seen, 2).unflatten(1, (groups, weight.shape[1])).flatten(2, 3)
    filters = weight.flatten(1).unflatten(0, (groups, weight.shape[0] // groups))
    y = (filters @ windows).flatten(1, 2).unflatten(2, sizes)
    return y if bias is None else y + bias.view(-1, *[1] * rank)


def _twice(x: Tensor, weight: Tensor, bias: Tensor | None, *sizes: Sequence[int]) -> Tensor:
    """A convolution of a volume's channels with each filter twice, of whose two results the first is taken."""
    weight, bias = (None if part is None else part.repeat_interleave(2, 0) for part in (weight, bias))
    y = aten.convolution(x, weight, bias, *sizes, False, [0, 0, 0], x.shape[1])
    return y.unflatten(1, (-1, 2)).select(2, 0)


def _across(x: Tensor, weight: Tensor, padding: Sequence[int]) -> int | None:
    """The dimension of a volume's space across which filters are one slice, and see images, whose rows have fewer
    numbers than tensor cores multiply together; None where there is none."""
    if x.dim() != 5:
        return None
    slices = [i for i in range(3) if weight.shape[2 + i] == 1 and padding[i] == 0]
    wide = {i: weight.shape[3 if i == 2 else 4] for i in slices}
    return next((i for i in slices if 1 < wide[i] and weight.shape[1] * wide[i] < CHUNK), None)


def _linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, padding: Sequence[int], dilation: Sequence[int], transposed: bool
) -> Any:
    """The convolution as a linear layer, where it is one."""
    image, filter_, ones = list(x.shape[2:]), list(weight.shape[2:]), [1] * len(dilation)
    if any(padding) or list(dilation) != ones or not are_known((*image, *filter_)):
        return NotImplemented
    if not transposed and image == filter_:
        return F.linear(x.flatten(1), weight.flatten(1), bias).unflatten(-1, (weight.shape[0], *ones))
    if transposed and image == ones:
        y = (x.flatten(1) @ weight.flatten(1)).unflatten(-1, (weight.shape[1], *filter_))
        return y if bias is None else y + bias.view(-1, *ones)
    return NotImplemented


def _is_of_wide_patches(
    x: Tensor, weight: Tensor, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> bool:
    """Whether its filters cover the image side by side and see so few channels that the kernels of convolutions would
    fill up each element's, and so many elements in a line that these do not fit a chunk either."""
    image, filter_, channels = list(x.shape[2:]), list(weight.shape[2:]), weight.shape[1]
    if not are_known((*image, *filter_, channels)):
        return False
    apart = list(stride) == filter_ and not any(padding) and list(dilation) == [1] * len(filter_)
    whole = not any(size % own for size, own in zip(image, filter_, strict=True))
    return apart and whole and channels < CHUNK < channels * filter_[-1]


def _of_patches(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A linear layer of the elements that each filter sees."""
    filter_ = weight.shape[2:]
    for i, size in enumerate(filter_):
        x = x.unflatten(2 + 2 * i, (-1, size))
    numbers, inside = ([first + 2 * i for i in range(len(filter_))] for first in (2, 3))
    patches = x.permute(0, *numbers, 1, *inside).flatten(1 + len(filter_))
    return F.linear(patches, weight.flatten(1), bias).movedim(-1, 1)


def _is_open_layer(x: Tensor, weight: Tensor) -> bool:
    """Whether a convolution of a line or an image of open sizes is done as a linear layer. Filters that are few, or see
    little, are summed by threads sooner than what they see is written (H100, predicted)."""
    if are_known(x.shape[2:]):
        return False
    if x.dim() == 3 or not are_known(weight.shape):
        return x.dim() == 3
    return weight.shape[0] >= _MANY_FILTERS and prod(weight.shape[1:]) >= _MUCH_SEEN


def _has_few_places(
    x: Tensor, weight: Tensor, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> bool:
    """Whether many images of few channels have no more places than a quarter of a tile has rows, as words of characters
    have: a tile of a convolution has one image's, and most of its columns may be zeros besides."""
    images, space, filter_ = of_example(x.shape[0]), x.shape[2:], weight.shape[2:]
    if images is None or not are_known((*space, *weight.shape)):
        return False
    sizes = zip(space, filter_, stride, padding, dilation, strict=True)
    places = prod((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes)
    large = weight.shape[0] >= _MANY_FILTERS and prod(weight.shape[1:]) >= _MUCH_SEEN
    return large and weight.shape[1] < CHUNK and places <= _FEW_PLACES and images * places >= _MANY_PLACES


def _of_open_image(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    """A linear layer of the elements that the filter sees at each of its places."""
    rank, image, filter_ = len(stride), x.movedim(1, -1), weight.shape[2:]
    if any(padding):
        image = F.pad(image, [0, 0, *(size for each in reversed(padding) for size in (each, each))])
    if prod(filter_) > 1:
        image = WINDOWS(image, filter_, dilation, stride, True).flatten(1 + rank)
    elif set(stride) != {1}:
        image = image[(slice(None), *(slice(None, None, s) for s in stride))]
    return F.linear(image, weight.movedim(1, -1).flatten(1), bias).movedim(-1, 1)


def _spread(x: Tensor, dim: int, stride: int, before: int, after: int) -> Tensor:
    """`x` with stride - 1 zeros between the elements of a dimension, and so many more before and after them."""
    if stride > 1:
        x = F.pad(x.unsqueeze(dim + 1), [0, 0] * (x.dim() - 1 - dim) + [0, stride - 1]).flatten(dim, dim + 1)
        after -= stride - 1
    return F.pad(x, [0, 0] * (x.dim() - 1 - dim) + [before, after])


CONVOLUTIONS = {aten.convolution.default: convolution}
