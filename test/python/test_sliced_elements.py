"""Columns of what is computed one by one are computed by who reads them, whatever else that is broadcast from."""

import pytest
import torch
from torch import nn

import kitsune_mlir
from kitsune_mlir.tools.gpusim.simulation import Simulation


class Hashed(nn.Module):
    """One level of a hash grid: the numbers of eight corners around each point, and their rows, weighed."""

    def __init__(self):
        super().__init__()
        self.rows = nn.Parameter(torch.randn(512, 2, generator=torch.Generator().manual_seed(1)))
        sides = [torch.arange(2)] * 3
        self.register_buffer("corners", torch.stack(torch.meshgrid(*sides, indexing="ij"), -1).view(8, 3))
        self.register_buffer("primes", torch.tensor([1, 2654435761, 805459861]))

    def forward(self, x):
        low = (x * 37).floor()
        part = (x * 37 - low)[:, None]
        number = (low.long()[:, None] + self.corners) * self.primes
        number = (number[..., 0] ^ number[..., 1] ^ number[..., 2]) % 512
        weight = torch.where(self.corners.bool(), part, 1 - part).prod(-1)
        return (self.rows[number] * weight[..., None]).sum(1)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
def test_a_hash_of_coordinates_is_computed_where_it_is_used(is_open):
    module, x = Hashed().requires_grad_(False), torch.rand(40, 3, generator=torch.Generator().manual_seed(2))
    shapes = ({0: torch.export.Dim("points", min=1)},) if is_open else None
    compiled = kitsune_mlir.compile(module, (x,), target="sm_90a", dynamic_shapes=shapes)
    written = [line for line in compiled.mlir("sm_90a:convert-linalg-to-gpu").splitlines() if "memref.alloc" in line]
    assert not any("8x3xi64" in line for line in written)
    simulated = Simulation(compiled, seed=1)
    for points in (x, x[:7]) if is_open else (x,):
        torch.testing.assert_close(torch.as_tensor(simulated(points)), module(points))
