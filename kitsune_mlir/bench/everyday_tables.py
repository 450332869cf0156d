"""Everyday models of rows: tables with categories, recommendations, points, rays and fields."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .everyday_sequences import Block
from .zoo_features import Cross
from .zoo_models import mlp


def classifier() -> nn.Module:
    """784-512-512-10 with dropout."""
    layers = (nn.Linear(784, 512), nn.ReLU(), nn.Dropout(0.2), nn.Linear(512, 512), nn.ReLU(), nn.Dropout(0.2))
    return nn.Sequential(*layers, nn.Linear(512, 10))


class DeepFM(nn.Module):
    """A factorisation machine beside a network, of the embeddings of 20 fields: [n, fields] -> [n, 1]."""

    def __init__(self, fields: int = 20, values: int = 1000, width: int = 16):
        super().__init__()
        self.embedding, self.weight = nn.Embedding(fields * values, width), nn.Embedding(fields * values, 1)
        self.network = mlp(fields * width, 256, 128, 1)
        self.register_buffer("offsets", torch.arange(fields) * values)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.offsets
        found = self.embedding(x)
        pairs = 0.5 * (found.sum(1).square() - found.square().sum(1)).sum(1, keepdim=True)
        return torch.sigmoid(self.weight(x).sum(1) + pairs + self.network(found.flatten(1)))


class DeepCross(nn.Module):
    """DCN-V2: cross layers beside a network: [n, width] -> [n]."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.cross, self.deep = Cross(width, 3), nn.Sequential(mlp(width, hidden, hidden), nn.ReLU())
        self.out = nn.Linear(width + hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.cat([self.cross(x), self.deep(x)], 1)).squeeze(1)


class NeuralFiltering(nn.Module):
    """NCF: a product of a user's and an item's embeddings beside a network of two others."""

    def __init__(self, users: int = 5000, items: int = 3000):
        super().__init__()
        self.user, self.item = nn.Embedding(users, 32), nn.Embedding(items, 32)
        self.network_user, self.network_item = nn.Embedding(users, 64), nn.Embedding(items, 64)
        self.network, self.out = nn.Sequential(mlp(128, 64, 32), nn.ReLU()), nn.Linear(64, 1)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        deep = self.network(torch.cat([self.network_user(user), self.network_item(item)], -1))
        return torch.sigmoid(self.out(torch.cat([self.user(user) * self.item(item), deep], -1)))


class TabTransformer(nn.Module):
    """Attention among the embeddings of a row's categories, then a network of them and of the row's numbers."""

    def __init__(self, columns: int = 10, numbers: int = 6, width: int = 32):
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(50, width) for _ in range(columns))
        self.blocks, self.norm = nn.Sequential(Block(width, 4), Block(width, 4)), nn.LayerNorm(numbers)
        self.network = mlp(columns * width + numbers, 128, 2)

    def forward(self, categories: Tensor, numbers: Tensor) -> Tensor:
        found = torch.stack([embedding(categories[:, i]) for i, embedding in enumerate(self.embeddings)], 1)
        return self.network(torch.cat([self.blocks(found).flatten(1), self.norm(numbers)], 1))


class TwoTowers(nn.Module):
    """The heads of CLIP: the logits of all pairs of two networks' unit vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = mlp(384, 256, 64), mlp(512, 256, 64)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.normalize(self.left(x), dim=-1) @ F.normalize(self.right(y), dim=-1).T * 20.0


class PointNet(nn.Module):
    """A network of each point, the largest of all points, a network of that: [n, points, 3] -> [n, 40]."""

    def __init__(self) -> None:
        super().__init__()
        self.points, self.whole = nn.Sequential(mlp(3, 64, 128, 1024), nn.ReLU()), mlp(1024, 512, 256, 40)

    def forward(self, x: Tensor) -> Tensor:
        return self.whole(self.points(x).amax(1))


class Rays(nn.Module):
    """NeRF's colours of rays: points [n, samples, 3] and their depths [n, samples] -> [n, 3]."""

    def __init__(self, frequencies: int = 6):
        super().__init__()
        self.frequencies, self.network = frequencies, mlp(3 + 6 * frequencies, 128, 128, 4)

    def forward(self, points: Tensor, depths: Tensor) -> Tensor:
        factors = 2.0 ** torch.arange(self.frequencies, device=points.device, dtype=points.dtype)
        waves = (wave(points[..., None, :] * factors[:, None]).flatten(-2) for wave in (torch.sin, torch.cos))
        found = self.network(torch.cat([points, *waves], -1))
        steps = torch.cat([depths[:, 1:] - depths[:, :-1], torch.full_like(depths[:, :1], 1e2)], 1)
        opaque = 1 - torch.exp(-F.relu(found[..., 3]) * steps)
        through = torch.cumprod(torch.cat([torch.ones_like(opaque[:, :1]), 1 - opaque + 1e-6], 1), 1)[:, :-1]
        return ((opaque * through)[..., None] * torch.sigmoid(found[..., :3])).sum(1)


class Codebook(nn.Module):
    """VQ-VAE's: the nearest of 256 codes of each row, and its number."""

    def __init__(self, codes: int = 256, width: int = 64):
        super().__init__()
        self.codes = nn.Embedding(codes, width)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        codes = self.codes.weight
        distances = (x * x).sum(-1, keepdim=True) - 2 * x @ codes.T + (codes**2).sum(-1)
        nearest = distances.argmin(-1)
        return self.codes(nearest), nearest
