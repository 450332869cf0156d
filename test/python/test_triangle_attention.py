"""Attention within each row of pairs, as structures of proteins are found by, of open sizes."""

import pytest
import torch
from torch import nn
from torch.export import Dim

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")


class Triangle(nn.Module):
    """Keys are those of the row; a bias is another pair's. No operand has the batch as a dimension of its own."""

    def __init__(self):
        super().__init__()
        self.qkv, self.bias, self.out = nn.Linear(32, 3 * 64), nn.Linear(32, 4, bias=False), nn.Linear(64, 32)

    def forward(self, pairs, mask):
        q, k, v = self.qkv(pairs).view(*pairs.shape[:-1], 3, 4, 16).permute(3, 0, 1, 4, 2, 5)
        scores = q * 0.25 @ k.transpose(-1, -2) + (1e9 * (mask - 1))[..., :, None, None, :]
        weights = (scores + self.bias(pairs).permute(0, 3, 1, 2).unsqueeze(1)).softmax(-1)
        return self.out((weights @ v).transpose(-2, -3).flatten(-2))


def test_triangles_of_open_sizes():
    torch.manual_seed(0)
    model, auto = Triangle(), {0: Dim.AUTO, 1: Dim.AUTO, 2: Dim.AUTO}

    def args(batch, size):
        return torch.randn(batch, size, size, 32), (torch.rand(batch, size, size) < 0.9).float()

    with torch.no_grad():
        compiled = kitsune_mlir.compile(model, args(2, 6), target="sm_90a", dynamic_shapes=(auto, auto))
        for sizes in ((1, 9), (3, 4)):
            given = args(*sizes)
            torch.testing.assert_close(Simulation(compiled, seed=1)(*given), model(*given), atol=1e-5, rtol=1e-5)
