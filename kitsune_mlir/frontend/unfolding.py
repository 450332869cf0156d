"""Windows of images as columns (F.unfold): each element is read by a number that its place gives, so that what reads
windows can read the image. torch's own rule writes a padded image, its windows, and these in their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def unfold(
    x: Tensor, kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> Any:
    if x.dim() == 3:
        found = unfold(x.unsqueeze(0), kernel, dilation, padding, stride)
        return found if found is NotImplemented else found.squeeze(0)
    sizes = x.shape[2:]
    if not all(isinstance(size, int) for size in (*x.shape[1:], *kernel)):
        return NotImplemented
    forms = list(zip(sizes, kernel, stride, dilation, padding, strict=True))
    counts = [(size + 2 * p - d * (k - 1) - 1) // s + 1 for size, k, s, d, p in forms]
    if min(counts) < 1:
        return NotImplemented

    def places(axis: int, kind: torch.dtype) -> Tensor:
        """Where windows' elements are along a dimension: [elements, windows]. Numbers that say which elements are read
        and those that say which are inside have types of their own, so that each is computed where it is used."""
        _, k, s, d, p = forms[axis]
        elements, windows = (torch.arange(n, device=x.device, dtype=kind) for n in (k, counts[axis]))
        shape = [k, 1, counts[axis], 1] if axis == 0 else [1, k, 1, counts[axis]]
        return ((elements * d - p).unsqueeze(1) + windows * s).view(shape)

    read = [places(axis, torch.int64) for axis in range(2)]
    if any(padding):
        read = [place.clamp(0, size - 1) for place, size in zip(read, sizes, strict=True)]
    found = aten._unsafe_index(x, [None, None, *read])
    for axis, size in enumerate(sizes):
        if padding[axis]:
            at = places(axis, torch.int32)
            found = torch.where((at >= 0) & (at < size), found, 0)
    return found.flatten(1, 3).flatten(2)


UNFOLDING = {aten.im2col.default: unfold}
