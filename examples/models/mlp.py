"""A plain multilayer perceptron."""

import torch
from torch import Tensor, nn


class MLP(nn.Module):
    """Linear layers with ReLU between them."""

    def __init__(self, widths: tuple[int, ...]):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:], strict=False))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)


def mlp(rows: int = 256, widths: tuple[int, ...] = (64, 128, 128, 8), dtype: torch.dtype = torch.float32):
    """(MLP, (x [rows, widths[0]],))"""
    return MLP(widths).to(dtype).eval(), (torch.randn(rows, widths[0], dtype=dtype),)
