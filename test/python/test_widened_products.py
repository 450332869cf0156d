"""Layers of f32 whose operands were 16-bit numbers (passes/absorb_casts.py): exact as f32, by products of 16 bits."""

import copy

import pytest
import torch
from torch import nn

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation


class Router(nn.Module):
    """Scores of experts in f32, as mixtures have them, of a model of 16 bits."""

    def __init__(self, width, experts):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(experts, width))

    def forward(self, x):
        return nn.functional.linear(x.to(self.kind), self.weight.to(self.kind))

    kind = torch.float32


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("target", ["cpu", "small_gpu"])
def test_scores_are_exact(dtype, target, request):
    """Numbers of one sign have sums that show what is cut off."""
    torch.manual_seed(0)
    model, x = Router(1024, 16).to(dtype), torch.rand(2, 40, 1024).to(dtype) * 4
    name = target if target == "cpu" else request.getfixturevalue(target)
    compiled = kitsune_mlir.compile(model, (x,), target=name)
    assert "arith.extf %in" not in compiled.mlir("prepare-linalg")
    exact = copy.deepcopy(model).double()
    exact.kind = torch.float64
    found = compiled(x) if target == "cpu" else Simulation(compiled, seed=1)(x)
    torch.testing.assert_close(torch.as_tensor(found).double(), exact(x.double()), rtol=1e-5, atol=0)
