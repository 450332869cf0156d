"""Nearest upsampling by whole factors: elements repeated, where torch-mlir has a gather by a table of places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

_FACTORS = (1, 2, 4, 8)  # whose inverses are exact: by others torch's places depend on how it rounds


def upsample_nearest(x: Tensor, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None = None) -> Any:
    """Of any number of dimensions behind the channels."""
    sizes = list(x.shape[2:])
    if not all(isinstance(size, int) and size for size in [*sizes, *(output_size or [])]):
        return NotImplemented
    factors = scale_factors or [wanted / size for wanted, size in zip(output_size or [], sizes, strict=True)]
    if not all(factor in _FACTORS for factor in factors):
        return NotImplemented
    apart, repeated, found = list(x.shape[:2]), list(x.shape[:2]), list(x.shape[:2])
    for size, factor in zip(sizes, map(int, factors), strict=True):
        apart += [size, 1]
        repeated += [size, factor]
        found.append(size * factor)
    return x.reshape(apart).expand(repeated).reshape(found)


UPSAMPLING = {
    aten.upsample_nearest1d.vec: upsample_nearest,
    aten.upsample_nearest2d.vec: upsample_nearest,
    aten.upsample_nearest3d.vec: upsample_nearest,
}
