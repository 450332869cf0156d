"""Tiles shared by the CTAs of a cluster, on the stand-in device."""

import pytest
import torch
from test_gpu_chained import mlp, run
from test_gpu_pipelines import small_gpu  # noqa: F401  (a fixture)
from torch import nn


@pytest.mark.parametrize("widths, rows", [((64, 416, 416), 150), ((64, 512, 512), 40)], ids=str)
def test_exchanged_tiles(widths, rows, small_gpu):  # noqa: F811
    args = (torch.randn(rows, widths[0], dtype=torch.bfloat16),)
    run(mlp(torch.bfloat16, widths, nn.ReLU), args, small_gpu, 2e-2)


class Normalised(nn.Module):
    """Sums over the rows' columns, which no CTA has alone, between products and after the last."""

    def __init__(self, width):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(64, width), nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return self.norm(self.second(self.norm(torch.relu(self.first(x)))))


@pytest.mark.parametrize("width, rows", [(416, 140), (512, 30)])
def test_sums_of_rows(width, rows, small_gpu):  # noqa: F811
    torch.manual_seed(0)
    run(Normalised(width).bfloat16(), (torch.randn(rows, 64, dtype=torch.bfloat16),), small_gpu, 2e-2)
