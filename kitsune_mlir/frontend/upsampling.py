"""Nearest neighbours of images whole times as large: each element repeated, where it lies, and no table of places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

aten = torch.ops.aten


def repeated(rank: int) -> Callable[..., Any]:
    """A rule for images of `rank` dimensions behind batch and channels."""

    def rule(x: Tensor, output_size: Sequence[Any] | None, factors: Sequence[float] | None) -> Any:
        sizes = x.shape[-rank:]
        if output_size is not None:
            if not all(isinstance(size, int) for size in (*sizes, *output_size)) or 0 in sizes:
                return NotImplemented
            factors = [out / size for out, size in zip(output_size, sizes, strict=True)]
        if factors is None or not all(map(_is_exact, factors, sizes)):
            return NotImplemented
        shape, last = list(x.shape), x.dim() - rank
        for dim in range(rank):
            x = x.unsqueeze(last + 2 * dim + 1)
        wide = [n for size, factor in zip(sizes, factors, strict=True) for n in (size, int(factor))]
        whole = [size * int(factor) for size, factor in zip(sizes, factors, strict=True)]
        return x.expand([*shape[:last], *wide]).reshape([*shape[:last], *whole])

    return rule


def _is_exact(factor: float, size: Any) -> bool:
    """Whether torch, which divides by the factor in f32, repeats each element as often. Of an open size that is known
    for powers of two."""
    whole = int(factor)
    if whole != factor or whole < 1:
        return False
    if not isinstance(size, int):
        return whole & (whole - 1) == 0
    places = np.arange(size * whole)
    return bool((np.floor(places.astype(np.float32) * np.float32(1 / whole)) == places // whole).all())


UPSAMPLING = {getattr(aten, f"upsample_nearest{rank}d").vec: repeated(rank) for rank in (1, 2, 3)}
