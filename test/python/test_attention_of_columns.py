"""Attention among the columns of pairs of things, heads in front, of open sizes: a mask's rows are the batch's."""

import pytest
import torch
from torch import nn

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")
OPEN = torch.export.Dim.AUTO


class Columns(nn.Module):
    """Heads of 16 numbers over the tokens `s` of x[b, n, s, 32], with a mask of them."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(32, 3 * 64, bias=False)

    def forward(self, x, mask):
        q, k, v = (part.unflatten(-1, (4, 16)).transpose(-2, -3) for part in self.qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) + (1e9 * (mask - 1))[:, :, None, None, :]
        return (scores.softmax(-1) @ v).transpose(-2, -3).flatten(-2)


def test_rows_of_a_mask():
    model = Columns()

    def inputs(b, n, s):
        return torch.randn(b, n, s, 32), (torch.rand(b, n, s) < 0.9).float()

    shapes = ({0: OPEN, 1: OPEN, 2: OPEN}, {0: OPEN, 1: OPEN, 2: OPEN})
    compiled = kitsune_mlir.compile(model, inputs(2, 6, 4), target="sm_90a", dynamic_shapes=shapes)
    for sizes in ((1, 9, 3), (3, 2, 5)):
        given = inputs(*sizes)
        wanted = Columns.forward(model.double(), *(x.double() for x in given))
        model.float()
        torch.testing.assert_close(Simulation(compiled)(*given).double(), wanted, rtol=1e-5, atol=1e-5)
