"""Gradients of convolutions, bags of rows and distances, in operators that the rest of the compiler knows.

A convolution's gradient by its filters is a product: of the result's gradient, and of the windows that each place saw,
summed over places; where groups have few channels, an operation of its own, without windows in memory; of filters of
single elements a product of each image, as it lies. That by its input is a transposed convolution (convolutions.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch.nn import functional as F

from .indexing import MAX, MEAN, bags_of, common_size
from .norms import many_rows
from .own_operators import FILTER_GRADIENT, WINDOWS
from .working import working

aten = torch.ops.aten

GRANULE = 16  # bytes of which the lines that tensor copies read are multiples
MOST_CHANNELS = 8  # of a group, for which no product of windows is made


def convolution_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """By the input [N, C, ...], the filters and the bias, of which None stands for what is not wanted."""
    stride, padding, dilation, output_padding = (
        list(each) * ((x.dim() - 2) // len(each)) for each in (stride, padding, dilation, output_padding)
    )
    of_input = of_weight = of_bias = None
    if wanted[0] and transposed:
        of_input = aten.convolution(grad, weight, None, stride, padding, dilation, False, output_padding, groups)
        for dim, size in enumerate(x.shape[2:], 2):  # what lies behind the last window had no part in it
            of_input = aten.slice.Tensor(of_input, dim, 0, size)
    elif wanted[0]:
        forms = zip(x.shape[2:], grad.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
        more = [n - ((m - 1) * s - 2 * p + d * (k - 1) + 1) for n, m, k, s, p, d in forms]
        of_input = aten.convolution(grad, weight, None, stride, padding, dilation, True, more, groups)
    if wanted[1]:
        seen, by = (grad, x) if transposed else (x, grad)
        of_weight = _of_filters(seen, by, weight, stride, padding, dilation, groups)
    if wanted[2]:
        of_bias = working(grad).sum([0, *range(2, grad.dim())]).to(grad.dtype)
    return of_input, of_weight, of_bias


def _of_filters(
    seen: Tensor,
    by: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Products over all places of `by` [N, O, ...] with the windows of `seen` [N, C, ...] there."""
    kernel, channels = weight.shape[2:], weight.shape[1]
    if groups > 1 and max(channels, by.shape[1] // groups) <= MOST_CHANNELS:
        both = (each.movedim(1, -1) for each in (seen, by))
        sums = FILTER_GRADIENT(*both, kernel, stride, dilation, padding, groups)
        return sums.movedim(-1, 0).unflatten(0, (by.shape[1], channels)).to(weight.dtype)
    if seen.shape[2:] == by.shape[2:] and all(size == 1 for size in kernel) and not any(padding):
        left, right = (each.unflatten(1, (groups, -1)).flatten(3).flatten(0, 1) for each in (by, seen))
        if _may_be_batches(left, right):  # a product for each image, of channels where they lie
            parts = working(torch.bmm(left, right.transpose(1, 2)))
            return parts.unflatten(0, (-1, groups)).sum(0).to(weight.dtype).reshape(weight.shape)
    seen = seen.movedim(1, -1)
    if any(padding):
        seen = F.pad(seen, [0, 0, *(p for size in reversed(padding) for p in (size, size))])
    if all(size == 1 for size in kernel):
        for dim, (size, step) in enumerate(zip(by.shape[2:], stride, strict=True), 1):
            seen = aten.slice.Tensor(seen, dim, 0, (size - 1) * step + 1, step)
        rows = seen
    else:
        windows = WINDOWS(seen, kernel, dilation, stride, True)  # [N, places..., taps..., C]
        for dim, size in enumerate(by.shape[2:], 1):  # what lies behind the last window is nobody's
            windows = aten.slice.Tensor(windows, dim, 0, size)
        rows = windows.flatten(by.dim() - 1)
    columns = by.movedim(1, -1)
    taps, channels = rows.shape[-1] // seen.shape[-1], seen.shape[-1]
    if groups == 1:
        found = columns.flatten(0, -2).t() @ rows.flatten(0, -2)
    else:
        rows = rows.flatten(0, -2).unflatten(1, (taps, groups, channels // groups)).permute(2, 0, 1, 3).flatten(2)
        columns = columns.flatten(0, -2).unflatten(1, (groups, -1)).permute(1, 2, 0)
        found = torch.bmm(columns, rows).flatten(0, 1)
    return found.unflatten(1, (*kernel, channels // groups)).movedim(-1, 1).to(weight.dtype)


def _may_be_batches(left: Tensor, right: Tensor) -> bool:
    """Whether products of images [N, channels, places] are read as they lie, and write less than it takes to have their
    channels last."""
    places, channels = left.shape[2], (left.shape[1], right.shape[1])
    if not isinstance(places, int) or places * left.element_size() % GRANULE:
        return False
    return bool(2 * channels[0] * channels[1] <= places * sum(channels))


def embedding_bag_backward(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: Any,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Any:
    """Of a table [num_weights, D] the rows' sums by number. Raises nothing: what scales by frequency is torch's."""
    if scale_grad_by_freq or sparse:
        return NotImplemented
    table = working(grad).new_zeros((num_weights, grad.shape[1]))
    if mode == MAX:
        found = torch.where((bag_size > 0)[:, None], working(grad), 0.0)
        return table.scatter_add(0, maximum_indices, found).to(grad.dtype)
    rows = _row_gradients(grad, indices, offsets, mode, bag_size)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[:, None]
    if padding_idx >= 0:
        rows = torch.where((indices != padding_idx)[:, None], rows, 0.0)
    return table.index_add(0, indices, rows).to(grad.dtype)


def _row_gradients(grad: Tensor, indices: Tensor, offsets: Tensor, mode: int, bag_size: Tensor | None) -> Tensor:
    """For each row that was read, the gradient of its bag, which a mean divides."""
    grad = working(grad)
    if mode == MEAN and bag_size is not None:
        grad = grad / bag_size.clamp(min=1)[:, None]
    if (size := common_size(offsets)) is not None:
        return grad.unsqueeze(1).expand(-1, size, -1).flatten(0, 1)
    return grad.index_select(0, bags_of(offsets, indices.shape[0]))


def of_sample_weights(
    grad: Tensor, weight: Tensor, indices: Tensor, offsets: Tensor, offset2bag: Tensor, mode: int, padding_idx: int = -1
) -> Tensor:
    """Of the factor of each row in a bag: the row's dot with the bag's gradient."""
    rows = _row_gradients(grad, indices, offsets, mode, None)
    found = (rows * working(aten.embedding(weight, indices))).sum(1)
    return (found if padding_idx < 0 else torch.where(indices != padding_idx, found, 0.0)).to(grad.dtype)


def distances_backward(grad: Tensor, x: Tensor, y: Tensor, p: float, distances: Tensor) -> Any:
    """Of distances [..., P, R] between the rows of x [..., P, M] and y [..., R, M], by x; Euclid's are by a product
    where the distances are."""
    if p == 2:
        scaled = torch.where(distances == 0, 0.0, grad / distances)
        if many_rows(x, y):
            return x * scaled.sum(-1, keepdim=True) - scaled @ y
        return (scaled.unsqueeze(-1) * (x.unsqueeze(-2) - y.unsqueeze(-3))).sum(-2)
    apart = x.unsqueeze(-2) - y.unsqueeze(-3)
    if p == 0:
        return torch.zeros_like(x)
    if p == 1:
        steps = apart.sign()
    elif p == math.inf:
        steps = apart.sign() * (apart.abs() == distances.unsqueeze(-1))
    else:
        steps = apart.sign() * apart.abs() ** (p - 1) * distances.unsqueeze(-1) ** (1 - p)
        steps = torch.where(apart == 0 if p > 1 else distances.unsqueeze(-1) == 0, 0.0, steps)
    return (grad.unsqueeze(-1) * steps).sum(-2)


def distances_of_pairs_backward(grad: Tensor, x: Tensor, p: float, distances: Tensor) -> Any:
    """Of the distance of each pair of rows, by x: those of all to all, in which a pair stands twice."""
    rows = x.shape[0]
    if not isinstance(rows, int):
        return NotImplemented
    if rows < 2:
        return torch.zeros_like(x)
    first, second = torch.triu_indices(rows, rows, 1, device=x.device)
    numbers = torch.cat([first * rows + second, second * rows + first])
    whole = [x.new_zeros(rows * rows).index_put((numbers,), torch.cat([one, one])) for one in (grad, distances)]
    return distances_backward(whole[0].view(rows, rows), x, x, p, whole[1].view(rows, rows))


def weight_norm_backward(grad: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Of g v / |v|, where all dimensions of v but one are a vector's, by v and by g."""
    over = [d for d in range(v.dim()) if d != dim % v.dim()]
    dots = (working(grad) * v).sum(over, keepdim=True)
    norms = norms.view(dots.shape)
    of_v = (g / norms) * (grad - v * (dots / (norms * norms)))
    return of_v.to(v.dtype), (dots / norms).to(g.dtype)


GRADIENTS = {
    aten.convolution_backward.default: convolution_backward,
    aten._cdist_backward.default: distances_backward,
    aten._pdist_backward.default: distances_of_pairs_backward,
    aten._weight_norm_interface_backward.default: weight_norm_backward,
    aten._embedding_bag_backward.default: embedding_bag_backward,
    aten._embedding_bag_per_sample_weights_backward.default: of_sample_weights,
} | {
    rule: decomposition_table[rule]
    for rule in (aten.batch_norm_backward.default, aten.rrelu_with_noise_backward.default)
}
