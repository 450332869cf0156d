"""Stencils on grids of open sizes with an edge: what is around a grid is in no memory."""

import pytest
import torch
from functions import Function, computed
from torch.export import Dim
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")
OPEN = {0: Dim("h", min=2, max=999), 1: Dim("w", min=2, max=999)}
SIZES = [(6, 9), (2, 2), (3, 17)]


def laplacian(x, outside=0.0):
    p = F.pad(x, (1, 1, 1, 1), value=outside)
    return p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * x


def upwind(x):
    p, q = F.pad(x, (2, 0)), F.pad(x * 2, (0, 0, 0, 1), value=1.5)
    return x - p[:, :-2] + q[1:] * p[:, 1:-1]


def wider(x):
    """There may be results where there is no element."""
    return F.pad(x, (2, 2))[:, 1:-1].relu()


CASES = {
    "laplacian": (laplacian, ["gather"]),
    "another number outside": (lambda x: laplacian(x, -2.5).relu(), ["gather"]),
    "two steps": (lambda x: laplacian(x + 0.1 * laplacian(x)), ["gather"] * 2),
    "one side": (upwind, ["gather"]),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("target", ["sm_90a", "cpu"])
def test_what_is_around_is_in_no_memory(name, target):
    function, kinds = CASES[name]
    check(function, target, kinds)


@pytest.mark.parametrize("function", [wider, lambda x: F.pad(x, (3, 1, 0, 2)) * 2], ids=["wider", "whole"])
def test_other_slices(function):
    check(function, "sm_90a")


def check(function, target, kinds=None):
    torch.manual_seed(0)
    compiled = kitsune_mlir.compile(
        Function(function), (torch.randn(SIZES[0]),), target=target, dynamic_shapes=((OPEN,),)
    )
    if target != "cpu" and kinds:
        assert computed(compiled) == kinds
    run = compiled if target == "cpu" else Simulation(compiled, seed=1)
    for size in SIZES:
        x = torch.randn(size)
        torch.testing.assert_close(torch.as_tensor(run(x)), function(x), rtol=1e-5, atol=1e-5)
