"""Networks that are made to be timed: chains of layers, and the three patterns of the paper's Fig. 2."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .cases import CHAIN_ROWS, DTYPES

CHAIN_LAYERS, CHAIN_INPUTS = 10, 64


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


def make(name: str, dtype: str) -> tuple[nn.Module, tuple[Any, ...], None]:
    """The network of a case of the suites "chains" and "patterns", in eval mode, with random arguments."""
    kind = getattr(torch, DTYPES[dtype])

    def rows(count: int, width: int) -> Tensor:
        return torch.randn(count, width, dtype=kind)

    head, _, rest = name.partition("-")
    if head == "chain":
        width, _, activation = rest.partition("-")
        module, args = _chain(int(width), activation or "relu"), (rows(CHAIN_ROWS, CHAIN_INPUTS),)
    elif head == "hidden":
        module = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(approximate="tanh"), nn.Linear(4096, 1024))
        args = (rows(int(rest.rpartition("-")[2]), 1024),)
    elif name == "batch-reduction":
        module, args = BatchReduction(), (rows(CHAIN_ROWS, 256), rows(CHAIN_ROWS, 256))
    elif name == "multicast":
        module, args = Multicast(256), tuple(rows(CHAIN_ROWS, 256) for _ in range(3))
    else:  # edge-mlp: GraphCast's
        module = nn.Sequential(nn.Linear(1536, 512), nn.SiLU(), nn.Linear(512, 512), nn.LayerNorm(512))
        args = (rows(327_660, 1536),)
    return module.to(kind).eval(), args, None


def _chain(width: int, activation: str) -> nn.Module:
    """Ten layers of that width, each with its activation; weights scaled so that signals keep their size."""
    after = {"relu": nn.ReLU, "silu": nn.SiLU, "gelu": nn.GELU, "layernorm": lambda: nn.LayerNorm(width)}
    layers: list[nn.Module] = []
    for i in range(CHAIN_LAYERS):
        linear = nn.Linear(CHAIN_INPUTS if i == 0 else width, width)
        nn.init.normal_(linear.weight, std=(2 / linear.in_features) ** 0.5)
        layers += [linear, after[activation]()]
    return nn.Sequential(*layers)
