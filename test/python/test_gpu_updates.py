"""What a scatter adds is computed in its kernel, where nothing else reads it and nothing that it reads has changed."""

import pytest
import torch
from functions import Function

import kitsune_mlir
from kitsune_mlir.codegen import gpu_scatter
from kitsune_mlir.tools.gpusim import Simulation


def weighted(x, weights, source, to):
    return x.new_zeros(9, 3, 4).index_add(0, to, x[source] * weights.unsqueeze(-1))


def largest(x, weights, source, to):
    rows = to.view(-1, 1).expand(-1, 12)
    return x.new_zeros(9, 12).scatter_reduce(0, rows, torch.exp(x.flatten(1)[source]), "amax")


def into_what_it_reads(x, weights, source, to):
    return x.index_add(0, to, x[source] * 2)


def read_elsewhere(x, weights, source, to):
    rows = x[source] * weights.unsqueeze(-1)
    return torch.zeros(9, 3, 4).index_add(0, to, rows), rows


KERNELS = {weighted: 1, largest: 1, into_what_it_reads: 1, read_elsewhere: 2}


@pytest.mark.parametrize("function", KERNELS, ids=lambda function: function.__name__)
def test_sums(function):
    torch.manual_seed(5)
    args = torch.randn(9, 3, 4), torch.randn(70, 3), torch.randint(0, 9, (70,)), torch.randint(0, 9, (70,))
    compiled = kitsune_mlir.compile(Function(function), args, target="sm_90a")
    kernels = [launch["kernel"] for launch in compiled.plan["launches"]]
    found, wanted = Simulation(compiled)(*args), function(*args)
    for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, wanted)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    assert sum(not kernel.startswith(("fill", "copy")) for kernel in kernels) == KERNELS[function], kernels


@pytest.mark.parametrize(
    "width, target, added", [(12, "sm_90a", 4), (6, "sm_90a", 2), (5, "sm_90a", 1), (8, "sm_80", 1)]
)
def test_neighbours_are_added_together(width, target, added, monkeypatch):
    """As many as columns and the chip allow; updates that are given, of 16 bits, and computed of a column's own. Each
    thread has several."""
    monkeypatch.setattr(gpu_scatter, "FEW", 0)

    def sums(x, to, y, weights):
        start = torch.zeros(9, width)
        return start.index_add(0, to, x), start.index_add(0, to, y.float()), start.index_add(0, to, x * weights)

    torch.manual_seed(6)
    x, y, weights = torch.randn(500, width), torch.randn(500, width).bfloat16(), torch.randn(500, 1)
    args = x, torch.randint(0, 9, (500,)), y, weights
    compiled = kitsune_mlir.compile(Function(sums), args, target=target)
    for found, wanted in zip(Simulation(compiled)(*args), sums(*args), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert [compiled.ptx.count(f"red.relaxed.gpu.global.add.v{n}.f32") for n in (2, 4)] == [
        3 * gpu_scatter.TURNS * (added == n) for n in (2, 4)
    ]
