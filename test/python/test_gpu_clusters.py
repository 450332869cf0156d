"""Tiles shared by the CTAs of a cluster, on the stand-in device."""

import pytest
import torch
from test_gpu_chained import mlp, run
from torch import nn

from kitsune_mlir.codegen.hopper import wgmma
from kitsune_mlir.tools.gpusim.faults import MemoryFault

pytestmark = pytest.mark.usefixtures("unassembled")


def test_what_no_cta_holds_is_exchanged(small_gpu):
    args = (torch.randn(150, 64, dtype=torch.bfloat16),)
    (launch,) = run(mlp(torch.bfloat16, (64, 416, 416), nn.ReLU), args, small_gpu, 2e-2)
    assert launch["cluster"] == 2


def test_passes_over_an_exchanged_tile(gpu_of):
    """Each pass reads the tile: other CTAs may send the next one only after the last of them."""
    args, model = (torch.randn(300, 64).bfloat16(),), mlp(torch.bfloat16, (64, 64, 1088), nn.ReLU)
    run(model, args, gpu_of(4), 2e-2, place="cluster=2", launches=3)


class Residual(nn.Module):
    """A loaded tile that is multiplied and added, then an exchanged one."""

    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        h = x + self.first(x)
        return h + self.second(h)


def test_residuals(small_gpu):
    run(Residual(416).bfloat16(), (torch.randn(40, 416, dtype=torch.bfloat16),), small_gpu, 2e-2)


class Normalised(nn.Module):
    """Sums over the rows' columns, which no CTA has alone, between products and after the last."""

    def __init__(self, width):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(64, width), nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return self.norm(self.second(self.norm(torch.relu(self.first(x)))))


def test_sums_of_rows(small_gpu):
    torch.manual_seed(0)
    run(Normalised(416).bfloat16(), (torch.randn(140, 64, dtype=torch.bfloat16),), small_gpu, 2e-2)


def test_a_rank_in_a_descriptor_is_found(small_gpu, monkeypatch):
    """The address of a CTA's own shared memory carries its rank; whether or not the operand's boxes follow others."""
    monkeypatch.setattr(wgmma, "_ADDRESS", -1)
    with pytest.raises(MemoryFault, match="is the CTA's rank in it"):
        run(mlp(torch.bfloat16, (64, 416, 416), nn.ReLU), (torch.randn(40, 64).bfloat16(),), small_gpu, 2e-2)
