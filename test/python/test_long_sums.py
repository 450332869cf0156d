"""Long reductions to few elements go through columns: blocks of sums over rows, in words."""

import pytest
import torch
from functions import Function
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.passes import long_sums
from kitsune_mlir.tools.gpusim import Simulation

SHAPE = (6, 128, 20)


def squares(x, y):
    return F.mse_loss(x.float(), y.float())


def largest_of_few(x, y):
    return (x * y).amax((1, 2)) + x[:, 0, 0]


def weighed(x, y):
    weight = (torch.sigmoid(x) * y.sum((1, 2), keepdim=True)).flatten(1)
    return weight.sum(1)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("function", [squares, largest_of_few, weighed])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_they_are_right(function, dtype, small_gpu, monkeypatch):
    monkeypatch.setattr(long_sums, "_LEAST", 1 << 10)
    torch.manual_seed(0)
    x, y = torch.randn(SHAPE).to(dtype), torch.randn(SHAPE).to(dtype)
    compiled = kitsune_mlir.compile(Function(function), (x, y), target=small_gpu)
    found, wanted = torch.as_tensor(Simulation(compiled)(x, y)), function(x.double(), y.double())
    torch.testing.assert_close(
        found.double(), wanted.double(), rtol=1e-5 if dtype == torch.float32 else 1e-2, atol=1e-2
    )


def test_blocks_fill_the_gpu():
    """A sum of all elements was done by 128 blocks of warps, which read an element a thread."""
    args = tuple(torch.randn(64, 4096, 20, dtype=torch.bfloat16) for _ in range(2))
    first, *_ = kitsune_mlir.compile(Function(squares), args, target="sm_90a").plan["launches"]
    assert first["ctas"] >= 256 and first["limit"] in ("DRAM", "L2")


@pytest.mark.usefixtures("unassembled")
def test_many_ways_to_what_is_summed():
    """Each of two numbers is of both before it, forty times, so that there are 2^40 ways back to the inputs."""

    def function(a, b):
        for _ in range(40):
            a, b = torch.maximum(a, b) * 0.5, torch.minimum(a, b) + b
        return (a * b).sum()

    args = torch.rand(300, 4096), torch.rand(300, 4096)
    compiled = kitsune_mlir.compile(Function(function), args, target="sm_90a")
    assert len(compiled.plan["launches"]) < 5
