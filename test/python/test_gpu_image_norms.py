"""Norms of images whose rows no CTA holds, on the stand-in GPU: what their kernels read and write, and how many."""

import pytest
import torch
from functions import Function
from torch import nn

import kitsune_mlir
from kitsune_mlir.codegen import gpu_linalg
from kitsune_mlir.tools.gpusim import Simulation

IMAGES = ({0: torch.export.Dim("images", max=64)},)


def launches_of(module, x, calls=()):
    """The kernels of a model of an open number of images, whose results are right."""
    module = module.eval().requires_grad_(False)
    compiled = kitsune_mlir.compile(module, (x,), target="sm_90a", dynamic_shapes=IMAGES)
    simulated, exact = Simulation(compiled, seed=1), module.double()
    for call in (x, *calls):
        found, wanted = torch.as_tensor(simulated(call)).double(), exact(call.double())
        torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)
    return compiled


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("height, width", [(150, 160), (1, 24001)], ids=["parts", "a prime"])
def test_few_long_rows_of_any_number_are_shared(monkeypatch, height, width):
    """Each sum is of parts, those of wide rows made together; what is summed has no mean, and is computed again by who
    scales it."""
    monkeypatch.setattr(gpu_linalg, "LEAST_PART", 8)
    x, y = (torch.randn(images, 6, height, width).bfloat16() for images in (2, 3))
    compiled = launches_of(nn.GroupNorm(2, 6).bfloat16(), x, [y])
    kernels = [launch["kernel"].rstrip("_0123456789") for launch in compiled.plan["launches"]]
    if width == 160:
        assert kernels == ["rows", "rows", "elementwise"]
    else:
        assert "rows" not in kernels
        assert compiled.plan["launches"][0]["ctas"] > 8


@pytest.mark.usefixtures("unassembled")
def test_a_convolution_of_channels_rounds_what_its_norm_reads():
    x = torch.randn(2, 6, 12, 200).bfloat16()
    module = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1, groups=6), nn.GroupNorm(2, 6)).bfloat16()
    compiled = launches_of(module, x)
    assert [launch["computes"] for launch in compiled.plan["launches"]][:1] == ["windows"]
    stored = [line for line in compiled.mlir("sm_90a:convert-linalg-to-gpu").splitlines() if "memref.alloc" in line]
    assert not any("x12x200xf32" in line for line in stored)


@pytest.mark.usefixtures("unassembled")
def test_a_convolution_is_narrow_for_several_readers():
    """Of a norm by hand, whose mean and whose difference to it are of numbers of 16 bits, as torch's are."""
    layer = nn.Conv2d(32, 64, 3, padding=1).bfloat16()
    x = torch.randn(1, 32, 9, 11).bfloat16()

    def function(x):
        y = nn.functional.conv2d(x, layer.weight, layer.bias, padding=1)
        centred = y - y.mean(1, keepdim=True)
        return centred / torch.sqrt(centred.square().mean(1, keepdim=True) + 1e-6)

    compiled = kitsune_mlir.compile(Function(function), (x,), target="sm_90a")
    lines = compiled.mlir("sm_90a:schedule-products").splitlines()
    assert ["x99xbf16" in line for line in lines if '"kitsune.result"' in line] == [True]
