"""The type that a computation on 16-bit floats is done in."""

from __future__ import annotations

import torch
from torch import Tensor

NARROW = (torch.bfloat16, torch.float16)


def working(x: Tensor) -> Tensor:
    """In the type that norms, exponentials and sums are computed in: at least f32."""
    return x.float() if x.dtype in NARROW else x
