"""Norms of groups of channels and of channels: rows, as layer norms are, whatever the image's size."""

import pytest
import torch
from decomposed_functions import TARGETS, check_error, results
from functions import Function
from torch import nn
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation


def normal(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


NORMS = {
    "odd sizes": (lambda x, w, b: F.group_norm(x, 3, w, b), (2, 6, 5, 7)),
    "one group": (lambda x, w, b: F.group_norm(x, 1, w, b), (2, 6, 4, 4)),
    "one pixel": (lambda x, w, b: F.group_norm(x, 2, w, b), (3, 8, 1, 1)),
    "no image": (lambda x, w, b: F.group_norm(x, 2, w, b), (3, 8)),
    "without weights": (lambda x, w, b: F.group_norm(x, 2), (3, 8, 10)),
    "wide": (lambda x, w, b: F.group_norm(x, 1, w, b), (1, 3, 90, 70)),
    "of channels": (lambda x, w, b: F.instance_norm(x, None, None, w, b), (2, 6, 5, 7)),
    "of channels without weights": (lambda x, w, b: F.instance_norm(x), (2, 6, 9)),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("name", NORMS)
def test_as_exact_as_torchs(name, dtype, target):
    function, shape = NORMS[name]
    args = [normal(*shape) + 1, *(normal(2, shape[1]) + 1)]
    check_error(function, *(x.to(dtype) for x in args), target=target, least=2e-6)  # a CPU adds up in turn


@pytest.mark.parametrize("target", TARGETS)
def test_statistics_come_along(target):
    def norm(x, weight, bias):
        return torch.native_group_norm(x, weight, bias, 2, 6, 35, 3, 1e-5)

    args = (normal(2, 6, 35) + 1, *normal(2, 6))
    for one, wanted in zip(results(norm, *args, target=target), norm(*args), strict=True):
        torch.testing.assert_close(one, wanted, rtol=1e-5, atol=1e-5)


def test_any_number_of_images():
    norm = nn.GroupNorm(3, 6).eval()
    images = torch.export.Dim("images", min=0, max=64)
    compiled = kitsune_mlir.compile(norm, (normal(4, 6, 5, 3),), target="sm_90a", dynamic_shapes=({0: images},))
    simulated = Simulation(compiled, seed=1)
    for count in (0, 1, 3):
        x = normal(count, 6, 5, 3)
        torch.testing.assert_close(simulated(x), norm(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("inside", [torch.sigmoid, F.silu])
def test_a_group_is_read_once(inside, dtype):
    """One kernel reads it, and computes what is elementwise behind it, though that is on images, not on groups."""
    model = Function(nn.Sequential(nn.GroupNorm(8, 16), Function(inside))).to(dtype)
    x = (normal(2, 16, 12, 12) + 1).to(dtype)
    compiled = kitsune_mlir.compile(model, (x,), target="sm_90a")
    (launch,) = compiled.plan["launches"]
    assert launch["form"] == "scheduled rows"
    bound = 1e-5 if dtype == torch.float32 else 2e-2
    with torch.no_grad():
        torch.testing.assert_close(Simulation(compiled, seed=1)(x), model(x), rtol=bound, atol=bound)


@pytest.mark.usefixtures("unassembled")
def test_an_activation_behind_many_elements_is_in_the_kernel_that_norms_them():
    """And the elements without their mean are in no memory: rows that groups are made of give sums alone."""
    module = nn.Sequential(nn.GroupNorm(32, 256), nn.SiLU()).bfloat16()
    plan = kitsune_mlir.compile(module, (torch.randn(8, 256, 64, 64).bfloat16(),), target="sm_90a").plan
    assert [launch["computes"] for launch in plan["launches"]][-1] == "elementwise"
    assert [launch["form"] for launch in plan["launches"]] == ["scheduled rows", "scheduled rows", "operator"]
    assert sum(launch["predicted_us"] for launch in plan["launches"]) < 35
