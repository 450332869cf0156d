"""A vision transformer: patches, a class token, encoder blocks, a head (arXiv 2010.11929)."""

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Encoder block with normalisation first."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.inputs = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.network_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.inputs(self.attention_norm(x))
        query, key, value = y.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(query, key, value)
        x = x + self.output(attended.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.network_norm(x))))


class ViT(nn.Module):
    """[batch, 3, size, size] -> [batch, classes]."""

    def __init__(self, size: int, patch: int, width: int, heads: int, depth: int, classes: int):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, 0]))


def vit(
    batch: int = 2,
    size: int = 16,
    patch: int = 4,
    width: int = 32,
    heads: int = 2,
    depth: int = 2,
    classes: int = 10,
    dtype: torch.dtype = torch.float32,
):
    """(ViT, (image [batch, 3, size, size],))"""
    model = ViT(size, patch, width, heads, depth, classes).to(dtype).eval()
    return model, (torch.randn(batch, 3, size, size, dtype=dtype),)
