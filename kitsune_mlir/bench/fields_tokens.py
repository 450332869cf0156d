"""Models of tokens of which the batch and all lengths are open until the call: attention as people write it."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .zoo_models import SwiGlu


class Attention(nn.Module):
    """Projections around an attention of `heads`, which a subclass says: [b, t, width] -> the same."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads, self.inputs, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values: [b, heads, t, width / heads] each."""
        query, key, value = self.inputs(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return query, key, value

    def joined(self, x: Tensor) -> Tensor:
        return self.out(x.transpose(1, 2).flatten(2))


class Padded(Attention):
    """A mask of the tokens that are there: [b, t, width], bool [b, t] -> [b, t, width]."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.joined(F.scaled_dot_product_attention(*self.parts(x), attn_mask=mask[:, None, None]))


class SlidingWindow(Attention):
    """Each token sees itself and the 127 before it."""

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[1], device=x.device)
        back = places[:, None] - places
        return self.joined(F.scaled_dot_product_attention(*self.parts(x), attn_mask=(back >= 0) & (back < 128)))


class RelativeBias(Attention):
    """T5's: a bias for each head, by distance."""

    def __init__(self, width: int, heads: int, reach: int = 32):
        super().__init__(width, heads)
        self.reach, self.bias = reach, nn.Embedding(2 * reach, heads)

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[1], device=x.device)
        steps = (places - places[:, None]).clamp(-self.reach, self.reach - 1) + self.reach
        return self.joined(F.scaled_dot_product_attention(*self.parts(x), attn_mask=self.bias(steps).permute(2, 0, 1)))


class LinearBias(Attention):
    """ALiBi, written out: scores less what the distance takes of them."""

    def __init__(self, width: int, heads: int):
        super().__init__(width, heads)
        self.register_buffer("slopes", 2.0 ** -(8 / heads * torch.arange(1, heads + 1)))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.parts(x)
        places = torch.arange(x.shape[1], device=x.device)
        away = (places[:, None] - places).abs() * self.slopes[:, None, None]
        scores = (query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])).float() - away.float()
        return self.joined(scores.softmax(-1).to(value.dtype) @ value)


class Cached(Attention):
    """New tokens that see a cache and themselves: [b, t, width], [b, heads, p, width / heads] twice -> [b, t, width],
    and the longer cache."""

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = self.parts(x)
        key, value = torch.cat([keys, key], 2), torch.cat([values, value], 2)
        return self.joined(F.scaled_dot_product_attention(query, key, value)), key, value


class Retention(Attention):
    """RetNet's: scores that decay with distance, no softmax."""

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.parts(x)
        places = torch.arange(x.shape[1], device=x.device)
        back = places[:, None] - places
        decay = torch.where(back >= 0, 0.97 ** back.float(), 0.0).to(x.dtype)
        found = (query @ key.transpose(-1, -2) * decay) @ value
        return self.joined(F.layer_norm(found, found.shape[-1:]))


class CrossAttention(nn.Module):
    """Two sequences of lengths of their own: [b, t, width], [b, s, width] -> [b, t, width]."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads, self.queries, self.out = heads, nn.Linear(width, width), nn.Linear(width, width)
        self.inputs = nn.Linear(width, 2 * width)

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        query = self.queries(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        key, value = self.inputs(other).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))


class Weighed(nn.Module):
    """torch's attention, with the average of its weights: [b, t, width] -> [b, t, width], [b, t, t]."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.attention(x, x, x)


class LlamaLayer(nn.Module):
    """A Llama layer that makes its rotations: [b, t, width] -> the same."""

    def __init__(self, width: int, heads: int, groups: int, hidden: int):
        super().__init__()
        self.heads, self.groups, each = heads, groups, width // heads
        self.attention_norm, self.network_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.queries, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.keys, self.values = (nn.Linear(width, groups * each, bias=False) for _ in range(2))
        self.network = SwiGlu(width, hidden)
        self.register_buffer("rates", 10_000.0 ** (-torch.arange(0, each, 2) / each))

    def forward(self, x: Tensor) -> Tensor:
        y = self.attention_norm(x)
        angles = torch.outer(torch.arange(x.shape[1], device=x.device).float(), self.rates.float())
        angles = torch.cat([angles, angles], -1)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        query = _rotated(self.queries(y).unflatten(-1, (self.heads, -1)).transpose(1, 2), cos, sin)
        key = _rotated(self.keys(y).unflatten(-1, (self.groups, -1)).transpose(1, 2), cos, sin)
        value = self.values(y).unflatten(-1, (self.groups, -1)).transpose(1, 2)
        found = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        x = x + self.out(found.transpose(1, 2).flatten(2))
        return x + self.network(self.network_norm(x))


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


class Pooled(nn.Module):
    """A weighted mean of the tokens that are there: [b, t, width], bool [b, t] -> [b, width]."""

    def __init__(self, width: int):
        super().__init__()
        self.keys, self.query = nn.Linear(width, width), nn.Linear(width, 1, bias=False)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        scores = self.query(torch.tanh(self.keys(x))).squeeze(-1).masked_fill(~mask, float("-inf"))
        return (scores.softmax(1).unsqueeze(-1) * x).sum(1)


class Matcher(nn.Module):
    """LightGlue's head: which points of two sets belong together: [b, m, width], [b, n, width] -> [b, m, n]."""

    def __init__(self, width: int):
        super().__init__()
        self.project, self.matches = nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        scores = self.project(first) @ self.project(second).transpose(1, 2) / math.sqrt(first.shape[-1])
        there = F.logsigmoid(self.matches(first)) + F.logsigmoid(self.matches(second)).transpose(1, 2)
        return F.log_softmax(scores, 1) + F.log_softmax(scores, 2) + there


def encoder_layer(width: int, heads: int) -> nn.Module:
    """torch's encoder layer, of 4 widths within."""
    return nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True)
