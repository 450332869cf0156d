"""The zoo's models with attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .zoo_models import Residual, SwiGlu, mlp


class Attention(nn.Module):
    """Heads of 64 columns; those of keys and values may be fewer. The context is x itself where none is given."""

    def __init__(self, width: int, key_heads: int | None = None, causal: bool = False):
        super().__init__()
        self.heads, self.key_heads, self.causal = width // 64, key_heads or width // 64, causal
        self.query, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.key, self.value = (nn.Linear(width, 64 * self.key_heads) for _ in range(2))

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        context = x if context is None else context
        query = self.query(x).unflatten(-1, (self.heads, 64)).transpose(1, 2)
        key, value = (of(context).unflatten(-1, (self.key_heads, 64)).transpose(1, 2) for of in (self.key, self.value))
        grouped = self.heads != self.key_heads
        found = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal, enable_gqa=grouped)
        return self.out(found.transpose(1, 2).flatten(2))


class Written(nn.Module):
    """One head of attention, written out: softmax(q k^T / sqrt(d)) v."""

    def __init__(self, width: int):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.query(x) @ self.key(x).transpose(-2, -1) / x.shape[-1] ** 0.5
        return torch.softmax(scores, -1) @ self.value(x)


class CrossAttention(nn.Module):
    """Queries read a context: pre-norm, residual."""

    def __init__(self, width: int):
        super().__init__()
        self.norm, self.context_norm, self.attention = nn.LayerNorm(width), nn.LayerNorm(width), Attention(width)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        return x + self.attention(self.norm(x), self.context_norm(context))


def block(width: int, **attention: Any) -> nn.Module:
    """A transformer's, normalised before each half."""
    network = mlp(width, 4 * width, width, activation=nn.GELU)
    return nn.Sequential(
        Residual(nn.LayerNorm(width), Attention(width, **attention)), Residual(nn.LayerNorm(width), network)
    )


class DecodeStep(nn.Module):
    """One token of each sequence against cached keys and values, then a SwiGLU network; gives its own key and value."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm, self.network_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.inputs, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.network = SwiGlu(width, 11 * width // 4)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = self.inputs(self.norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        keys, values = torch.cat([keys, key], 2), torch.cat([values, value], 2)
        found = F.scaled_dot_product_attention(query, keys, values)
        x = x + self.out(found.transpose(1, 2).flatten(2))
        return x + self.network(self.network_norm(x)), key, value
