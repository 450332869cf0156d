"""The demo's model: a photograph as a coordinate network, NeRF's trunk with two coordinates in and a colour out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch
from models.nerf import PositionalEncoding
from torch import Tensor, nn


class CoordinateNetwork(nn.Module):
    """(x, y) in [-1, 1] -> (red, green, blue) in [0, 1]: positional encoding, 8 x 256 with a skip.

    Takes f32 [rows, 2], gives [rows, 3] of the weights' type.
    """

    def __init__(self, width: int = 256, depth: int = 8, skip: int = 4, octaves: int = 8):
        super().__init__()
        self.encode = PositionalEncoding(octaves)
        inputs = 2 * 2 * octaves
        self.skip = skip
        self.trunk = nn.ModuleList(
            nn.Linear(inputs if i == 0 else width + inputs if i == skip else width, width) for i in range(depth)
        )
        self.colour = nn.Linear(width, 3)

    def forward(self, points: Tensor) -> Tensor:
        x = encoded = self.encode(points)
        for i, layer in enumerate(self.trunk):
            if i == self.skip:
                x = torch.cat([x, encoded], 1)
            x = torch.relu(layer(x))
        return torch.sigmoid(self.colour(x))


def pixel_grid(height: int, width: int) -> Tensor:
    """The coordinates of every pixel's centre, row by row: f32 [height * width, 2] of (x, y)."""
    y = (torch.arange(height) + 0.5) / height * 2 - 1
    x = (torch.arange(width) + 0.5) / width * 2 - 1
    return torch.stack(torch.meshgrid(y, x, indexing="ij"), -1).reshape(-1, 2).flip(1).contiguous()


def train(
    points: Tensor, colours: Tensor, seconds: float, tell: Callable[[int, float], None]
) -> tuple[CoordinateNetwork, int]:
    """Fits colours [n, 3] at points [n, 2] for so many seconds; `tell` gets steps and the recent mean
    squared error. Returns the network, f32 and in evaluation mode, and the number of steps."""
    torch.manual_seed(0)
    network = CoordinateNetwork()
    for layer in network.trunk:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        nn.init.zeros_(layer.bias)
    optimiser = torch.optim.Adam(network.parameters(), betas=(0.9, 0.99))

    def step(rate: float, products_in_bf16: bool) -> float:
        optimiser.param_groups[0]["lr"] = rate
        chosen = torch.randint(len(points), (1024,))
        with torch.autocast("cpu", torch.bfloat16, enabled=products_in_bf16):
            found = network(points[chosen])
        loss = nn.functional.mse_loss(found.float(), colours[chosen])
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        return loss.item()

    start = time.perf_counter()
    products_in_bf16 = _seconds(lambda: step(1e-4, True)) < _seconds(lambda: step(1e-4, False))
    steps, recent = 0, step(1e-4, products_in_bf16)
    while (done := (time.perf_counter() - start) / seconds) < 1:
        warm_up = min(1.0, (steps + 1) / 20)
        rate = warm_up * (4e-5 + 2e-3 * 0.5 * (1 + math.cos(math.pi * done)))  # cosine over the time there is
        recent = 0.95 * recent + 0.05 * step(rate, products_in_bf16)
        steps += 1
        tell(steps, recent)
    return network.eval(), steps


def _seconds(call: Callable[[], object], repeat: int = 4) -> float:
    """The shortest of a few calls."""
    found = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return min(found)
