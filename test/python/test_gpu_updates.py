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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_the_largest_and_the_least(dtype):
    """By the bits of f32, of both signs, zeros, infinities and NaNs among them, in the table as well."""

    def extrema(x, to, start):
        rows = to.view(-1, 1).expand_as(x)
        found = [start.scatter_reduce(0, rows, x, way) for way in ("amax", "amin")]
        return (*found, start.scatter_reduce(0, rows, x, "amax", include_self=False), x.abs().amin(0))

    torch.manual_seed(7)
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, -torch.nan])
    x, start, to = torch.randn(400, 10), torch.randn(30, 10), torch.randint(0, 29, (400,))
    for table in (x, start):
        table.view(-1)[torch.randperm(table.numel())[:12]] = special.repeat(2)
    x, start = x.to(dtype), start.to(dtype)
    compiled = kitsune_mlir.compile(Function(extrema), (x, to, start), target="sm_90a")
    for found, wanted in zip(Simulation(compiled)(x, to, start), extrema(x, to, start), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
    assert ("red.relaxed.gpu.global.max.s32" in compiled.ptx) == (dtype != torch.float64)
