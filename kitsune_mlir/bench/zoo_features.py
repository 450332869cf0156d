"""Modules of the zoo that compare, multiply and expand the features of their rows."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .zoo_models import mlp


class Towers(nn.Module):
    """Two networks, the logits of all pairs of their unit vectors (CLIP)."""

    def __init__(self, left: int, right: int, width: int):
        super().__init__()
        self.left, self.right = mlp(left, width, width), mlp(right, width, width)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return 20 * F.normalize(self.left(x), dim=-1) @ F.normalize(self.right(y), dim=-1).t()


def outer(x: Tensor, y: Tensor) -> Tensor:
    """The outer product of two vectors of each row."""
    return x[:, :, None] * y[:, None, :]


def distances(x: Tensor, y: Tensor) -> Tensor:
    """The squared distances of all pairs of rows, of one product."""
    return (x * x).sum(-1, keepdim=True) + (y * y).sum(-1) - 2 * x @ y.t()


class TensorProduct(nn.Module):
    """The outer product of two vectors of each row, then a product with weights (multimodal fusion)."""

    def __init__(self, left: int, right: int, outputs: int):
        super().__init__()
        self.layer = nn.Linear(left * right, outputs)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.layer(outer(x, y).flatten(1))


class Fourier(nn.Module):
    """Sines and cosines of random directions, then a network."""

    def __init__(self, inputs: int, features: int, outputs: int):
        super().__init__()
        self.register_buffer("directions", torch.randn(inputs, features) / 4)
        self.network = mlp(2 * features, 256, 256, outputs)

    def forward(self, x: Tensor) -> Tensor:
        angles = 2 * math.pi * x @ self.directions
        return self.network(torch.cat([angles.sin(), angles.cos()], -1))


class Polynomial(nn.Module):
    """The powers of each column, then a product."""

    def __init__(self, inputs: int, degree: int, outputs: int):
        super().__init__()
        self.degree, self.layer = degree, nn.Linear(degree * inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(torch.cat([x**power for power in range(1, self.degree + 1)], -1))


class Cross(nn.Module):
    """Deep & cross: every layer multiplies with the first value again."""

    def __init__(self, width: int, layers: int):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        first = x
        for layer in self.layers:
            x = first * layer(x) + x
        return x


class Sine(nn.Module):
    """SIREN's activation."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(3 * x)
