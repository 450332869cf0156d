"""Llama 3 decoder layers: RMSNorm, rotary embedding, grouped-query attention, SwiGLU (arXiv 2407.21783)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """Sizes; the defaults are those of the tests. `LLAMA_3_8B` has the real ones."""

    width: int = 64
    heads: int = 4
    cache_heads: int = 2
    hidden: int = 128
    layers: int = 2
    base: float = 500_000.0

    @property
    def head_width(self) -> int:
        return self.width // self.heads


LLAMA_3_8B = Config(width=4096, heads=32, cache_heads=8, hidden=14336, layers=2)


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary embedding of [batch, heads, tokens, head_width]; the two halves of a head are the pairs."""
    low, high = x.chunk(2, -1)
    return x * cosine + torch.cat([-high, low], -1) * sine


class Layer(nn.Module):
    """Attention, then the gated network, both behind an RMSNorm and residual."""

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        width, cached = config.width, config.cache_heads * config.head_width
        self.attention_norm = nn.RMSNorm(width, eps=1e-5)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, cached, bias=False)
        self.value = nn.Linear(width, cached, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.network_norm = nn.RMSNorm(width, eps=1e-5)
        self.gate = nn.Linear(width, config.hidden, bias=False)
        self.up = nn.Linear(width, config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, width, bias=False)

    def _heads(self, x: Tensor, heads: int) -> Tensor:
        return x.unflatten(-1, (heads, self.config.head_width)).transpose(1, 2)

    def forward(
        self, x: Tensor, cosine: Tensor, sine: Tensor, cache: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        y = self.attention_norm(x)
        query = rotate(self._heads(self.query(y), self.config.heads), cosine, sine)
        key = rotate(self._heads(self.key(y), self.config.cache_heads), cosine, sine)
        value = self._heads(self.value(y), self.config.cache_heads)
        if cache is not None:
            key, value = torch.cat([cache[0], key], 2), torch.cat([cache[1], value], 2)
        attended = nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=cache is None, enable_gqa=True
        )
        x = x + self.output(attended.transpose(1, 2).flatten(2))
        y = self.network_norm(x)
        x = x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))
        return x, key, value


class Prefill(nn.Module):
    """[batch, tokens, width] -> the same; positions start at 0."""

    def __init__(self, config: Config, tokens: int):
        super().__init__()
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        cosine, sine = rotary_table(config, torch.arange(tokens))
        self.register_buffer("cosine", cosine)
        self.register_buffer("sine", sine)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x, _, _ = layer(x, self.cosine, self.sine)
        return x


class Decode(nn.Module):
    """One token a sequence; each layer's cached keys and values come in, and go out one longer."""

    def __init__(self, config: Config, cached: int):
        super().__init__()
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        cosine, sine = rotary_table(config, torch.tensor([cached]))
        self.register_buffer("cosine", cosine)
        self.register_buffer("sine", sine)

    def forward(self, x: Tensor, caches: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        grown = []
        for layer, cache in zip(self.layers, caches, strict=True):
            x, key, value = layer(x, self.cosine, self.sine, cache)
            grown.append((key, value))
        return x, grown


def rotary_table(config: Config, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines, [positions, head_width] each."""
    rates = config.base ** (-torch.arange(0, config.head_width, 2) / config.head_width)
    angles = (positions[:, None] * rates).repeat(1, 2)
    return angles.cos(), angles.sin()


def prefill(tokens: int = 16, batch: int = 1, config: Config = Config(), dtype: torch.dtype = torch.float32):
    """(Prefill, (x [batch, tokens, width],))"""
    return Prefill(config, tokens).to(dtype).eval(), (torch.randn(batch, tokens, config.width, dtype=dtype),)


def decode(cached: int = 15, batch: int = 2, config: Config = Config(), dtype: torch.dtype = torch.float32):
    """(Decode, (x [batch, 1, width], caches: a pair [batch, cache_heads, cached, head_width] a layer))"""
    shape = batch, config.cache_heads, cached, config.head_width
    caches = [(torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)) for _ in range(config.layers)]
    return Decode(config, cached).to(dtype).eval(), (torch.randn(batch, 1, config.width, dtype=dtype), caches)
