"""Networks that are made to be timed: single layers, chains of them, and the three patterns of the paper's Fig. 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .cases import DTYPES
from .shapes import CHAIN_INPUTS, CHAIN_ROWS, Chain, Layer

_ROWS_DRAWN = 4096  # rows of an example that are drawn; the rest repeat them (check.refresh mixes all elements)


class BatchReduction(nn.Module):
    """The gradient of a layer's weight: x^T dy, a sum over the rows."""

    def forward(self, x: Tensor, dy: Tensor) -> Tensor:
        return x.t() @ dy


class Multicast(nn.Module):
    """The gradient of a ReLU goes to two products: dx = g W, dW = x^T g, with g = dy where y > 0."""

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) / width**0.5)

    def forward(self, x: Tensor, y: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
        gradient = torch.where(y > 0, dy, torch.zeros_like(dy))
        return gradient @ self.weight, x.t() @ gradient


def drawn(shape: Sequence[int], kind: torch.dtype) -> Tensor:
    """A random tensor whose later rows repeat its first."""
    count, *rest = shape
    first = torch.randn(min(count, _ROWS_DRAWN), *rest, dtype=kind)
    return first if count == len(first) else torch.cat([first] * (-(-count // len(first))))[:count].contiguous()


def make(name: str, dtype: str) -> tuple[nn.Module, tuple[Any, ...], None]:
    """The network of a named case, in eval mode, with random arguments. Raises KeyError for a name that is none."""
    kind = getattr(torch, DTYPES[dtype])

    def rows(count: int, width: int) -> Tensor:
        return drawn((count, width), kind)

    if chain := Chain.parse(name):
        module, args = _chain(chain), (rows(chain.rows, CHAIN_INPUTS),)
    elif layer := Layer.parse(name):
        module, args = _layer(layer), (rows(layer.m, layer.k),)
    elif name.startswith("hidden-4096-"):
        module = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(approximate="tanh"), nn.Linear(4096, 1024))
        args = (rows(int(name.rpartition("-")[2]), 1024),)
    elif name == "batch-reduction":
        module, args = BatchReduction(), (rows(CHAIN_ROWS, 256), rows(CHAIN_ROWS, 256))
    elif name == "multicast":
        module, args = Multicast(256), tuple(rows(CHAIN_ROWS, 256) for _ in range(3))
    elif name == "edge-mlp":  # GraphCast's
        module = nn.Sequential(nn.Linear(1536, 512), nn.SiLU(), nn.Linear(512, 512), nn.LayerNorm(512))
        args = (rows(327_660, 1536),)
    else:
        raise KeyError(name)
    return module.to(kind).eval(), args, None


def _chain(chain: Chain) -> nn.Module:
    """Weights are scaled so that signals keep their size."""
    layers: list[nn.Module] = []
    for i in range(chain.layers):
        linear = nn.Linear(CHAIN_INPUTS if i == 0 else chain.width, chain.width)
        nn.init.normal_(linear.weight, std=(2 / linear.in_features) ** 0.5)
        layers += [linear, _activation(chain.activation, chain.width)]
    return nn.Sequential(*layers)


def _layer(layer: Layer) -> nn.Module:
    linear = nn.Linear(layer.k, layer.n, bias=layer.bias)
    return linear if layer.activation == "none" else nn.Sequential(linear, _activation(layer.activation, layer.n))


def _activation(name: str, width: int) -> nn.Module:
    return nn.LayerNorm(width) if name == "layernorm" else {"relu": nn.ReLU, "silu": nn.SiLU, "gelu": nn.GELU}[name]()
