"""Losses that torch's own decompositions have wrong."""

from __future__ import annotations

import torch
from torch import Tensor

aten = torch.ops.aten


def _multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """Each class that a row names, up to the first -1, against each that it does not name. What is behind the -1,
    torch's decomposition counts, too."""
    named = (target < 0).cumsum(-1) == 0
    classes = torch.arange(x.shape[-1], device=x.device)
    chosen = target.clamp(min=0)
    is_named = ((chosen.unsqueeze(-1) == classes) & named.unsqueeze(-1)).any(-2)
    apart = (1 - x.gather(-1, chosen).unsqueeze(-1) + x.unsqueeze(-2)).clamp(min=0)
    loss = torch.where(named.unsqueeze(-1) & ~is_named.unsqueeze(-2), apart, 0.0).sum((-1, -2)) / x.shape[-1]
    reduced = {0: loss, 1: loss.mean(), 2: loss.sum()}[reduction]
    return reduced, is_named.to(x.dtype)


LOSSES = {aten.multilabel_margin_loss_forward.default: _multilabel_margin_loss}
