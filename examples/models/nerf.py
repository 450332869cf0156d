"""NeRF: colour and density of points seen from directions (Mildenhall et al., arXiv 2003.08934)."""

import math

import torch
from torch import Tensor, nn


class PositionalEncoding(nn.Module):
    """[rows, n] -> [rows, 2 * n * octaves]: sines and cosines of the coordinates times pi * 2^k.

    The angles are f32 at least: in bf16 the high octaves would be noise.
    """

    def __init__(self, octaves: int):
        super().__init__()
        self.register_buffer("scales", 2.0 ** torch.arange(octaves))

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(torch.promote_types(x.dtype, torch.float32)) * math.pi
        angles = (x[:, :, None] * self.scales).flatten(1)
        return torch.cat([torch.sin(angles), torch.cos(angles)], 1).to(self.scales.dtype)


class NeRF(nn.Module):
    """10 octaves of position and 4 of direction (60 + 24 inputs), `depth` layers with one skip, two heads."""

    def __init__(self, width: int = 256, depth: int = 8, skip: int = 4, position: int = 10, direction: int = 4):
        super().__init__()
        self.encode_position = PositionalEncoding(position)
        self.encode_direction = PositionalEncoding(direction)
        points, views = 6 * position, 6 * direction
        self.skip = skip
        self.trunk = nn.ModuleList(
            nn.Linear(points if i == 0 else width + points if i == skip else width, width) for i in range(depth)
        )
        self.density = nn.Linear(width, 1)
        nn.init.constant_(self.density.bias, 0.5)  # an untrained network is not all empty
        self.feature = nn.Linear(width, width)
        self.view = nn.Linear(width + views, width // 2)
        self.colour = nn.Linear(width // 2, 3)

    def forward(self, points: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
        x = encoded = self.encode_position(points)
        for i, layer in enumerate(self.trunk):
            if i == self.skip:
                x = torch.cat([x, encoded], 1)
            x = torch.relu(layer(x))
        density = torch.relu(self.density(x))
        x = torch.cat([self.feature(x), self.encode_direction(directions)], 1)
        x = torch.relu(self.view(x))
        return torch.sigmoid(self.colour(x)), density


def nerf(samples: int = 512, width: int = 64, depth: int = 8, skip: int = 4, dtype: torch.dtype = torch.float32):
    """(NeRF, (points f32 [samples, 3] in [-1, 1], directions f32 [samples, 3] of unit length))"""
    points = torch.rand(samples, 3) * 2 - 1
    directions = nn.functional.normalize(torch.randn(samples, 3), dim=1)
    return NeRF(width, depth, skip).to(dtype).eval(), (points, directions)
