"""Products of 8-bit integers, as quantised layers have them, made of products of bf16.

A number of 8 bits is one of bf16, and a product of two of them one of f32. Sums of f32 are exact as long as they stay
below 2^24, which limits how many products are added up as such. Of more, equal parts are multiplied side by side, and
their sums are added as integers. So tensor cores multiply; products of integers were loops of threads, which took fifty
times as long.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

_EXACT = 1 << 24  # up to which f32 has all whole numbers
_LARGEST = {torch.int8: 1 << 7, torch.uint8: (1 << 8) - 1}  # magnitudes


def int_product(x: Tensor, y: Tensor) -> Any:
    """[m, k] and [k, n] of int8 or uint8 -> [m, n] of int32. Not of an open k."""
    length = x.shape[1]
    if not isinstance(length, int) or length == 0:
        return NotImplemented
    most = _EXACT // (_LARGEST[x.dtype] * _LARGEST[y.dtype])
    left, right = x.to(torch.bfloat16), y.to(torch.bfloat16)
    count = next((n for n in range(2, length // 64 + 1) if length % n == 0 and length // n <= most), None)
    if length > most and count is not None:
        apart = left.unflatten(1, (count, -1)).transpose(0, 1), right.unflatten(0, (count, -1))
        return (apart[0].float() @ apart[1].float()).to(torch.int32).sum(0, dtype=torch.int32)
    starts = range(0, length, most)
    parts = [left[:, at : at + most].float() @ right[at : at + most].float() for at in starts]
    total = parts[0].to(torch.int32)
    for part in parts[1:]:
        total = total + part.to(torch.int32)
    return total


INTEGER_PRODUCTS = {aten._int_mm.default: int_product}
