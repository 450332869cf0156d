"""Numbers of 16 bits that are compared with what was found among them: both are rounded, whichever kernel has them."""

import pytest
import torch
from functions import Function
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation


def test_places_of_a_pool_are_found():
    """The largest number of a window is among those that are computed again to find its place."""
    weight = torch.randn(4, 3, 3, 3).bfloat16()
    model = Function(lambda x: F.max_pool2d(F.conv2d(x, weight, padding=1).relu(), 2, return_indices=True)[1])
    x = torch.randn(2, 3, 16, 16).bfloat16()
    places = kitsune_mlir.compile(model, (x,), target="cpu")(x)
    assert places.min() >= 0 and (places == model(x)).float().mean() > 0.95


@pytest.mark.usefixtures("unassembled")
def test_as_many_are_kept_as_were_chosen(small_gpu):
    def kept(a, b):
        y = torch.sigmoid(a * b) * b
        values = y.topk(8).values
        return y, values, y >= values[:, -1:]

    args = torch.randn(30, 64).bfloat16(), torch.randn(30, 64).bfloat16()
    compiled = kitsune_mlir.compile(Function(kept), args, target=small_gpu)
    y, values, found = map(torch.as_tensor, Simulation(compiled, seed=1)(*args))
    assert torch.equal(values, y.topk(8).values)
    assert torch.equal(found, y >= values[:, -1:])


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_what_a_model_rounds_itself_is_rounded(kind, target):
    """What is lost by a type of 16 bits, and a number that is too large for f16, are what such a model asks for."""

    def errors(x):
        near = x.to(kind).float()
        return x - near, (3 * x).to(kind).float().sum(-1), (x * 1e5).to(kind).double()

    compiled = kitsune_mlir.compile(Function(errors), (torch.randn(6, 40),), target=target)
    x = torch.randn(6, 40)
    for found, wanted in zip((compiled if target == "cpu" else Simulation(compiled))(x), errors(x), strict=True):
        torch.testing.assert_close(torch.as_tensor(found), wanted, rtol=1e-5, atol=1e-5)
