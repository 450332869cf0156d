"""The type that a computation on 16-bit floats is done in, and numbers of the type of others."""

from __future__ import annotations

import torch
from torch import Tensor

NARROW = (torch.bfloat16, torch.float16)


def number(value: float, like: Tensor) -> Tensor:
    """A tensor of a number: of a plain one torch makes a constant of f64 on a GPU."""
    return torch.scalar_tensor(value, dtype=like.dtype, device=like.device)


def working(x: Tensor) -> Tensor:
    """In the type that norms, exponentials and sums are computed in: at least f32."""
    return x.float() if x.dtype in NARROW else x
