"""A transformer encoder block (Vaswani et al., arXiv 1706.03762), normalised before each half."""

import torch
from torch import Tensor, nn


class Attention(nn.Module):
    """Multi-head self-attention, [batch, tokens, width] -> the same."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.inputs = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.inputs(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(query, key, value)
        return self.output(attended.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """LayerNorm, attention, LayerNorm, GELU network; both halves residual."""

    def __init__(self, width: int, heads: int, hidden: int):
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.network_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.down(nn.functional.gelu(self.up(self.network_norm(x))))


def transformer(
    batch: int = 2, tokens: int = 16, width: int = 64, heads: int = 4, hidden: int = 128, dtype=torch.float32
):
    """(Block, (x [batch, tokens, width],))"""
    return Block(width, heads, hidden).to(dtype).eval(), (torch.randn(batch, tokens, width, dtype=dtype),)
