"""Images and volumes read at places that a tensor has: as torch reads them, by one kernel."""

import pytest
import torch
from decomposed_functions import check_error
from functions import Function, computed
from torch.export import Dim
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")


def sampler(**how):
    return lambda x, grid: F.grid_sample(x, grid, **how)


@pytest.mark.parametrize("corners", [True, False], ids=["corners", "sides"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("sizes", [(2, 2, 3, 4, 5), (2, 3, 5, 7), (2, 12, 4, 3)], ids=["volume", "image", "channels"])
def test_samples(sizes, mode, padding, corners):
    """Channels that are many are last while they are read."""
    torch.manual_seed(0)
    dims = len(sizes) - 2
    grid = torch.rand(2, *(3, 4, 2)[-dims:], dims) * 3 - 1.5  # some places are outside
    function = sampler(mode=mode, padding_mode=padding, align_corners=corners)
    check_error(function, torch.randn(sizes), grid, target="sm_90a" if corners else "cpu", least=1e-6)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float64])
def test_types(kind):
    torch.manual_seed(0)
    x, grid = torch.randn(2, 8, 4, 5).to(kind), (torch.rand(2, 3, 3, 2) * 2 - 1).to(kind)
    check_error(sampler(align_corners=False), x, grid, target="sm_90a", least=1e-6)


@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
@pytest.mark.parametrize("channels", [3, 8])
def test_open_sizes(channels, target):
    """Images and places of any number, also of one line."""
    h, w, n = (Dim(name, min=1, max=99) for name in ("h", "w", "n"))
    function = Function(sampler(padding_mode="reflection", align_corners=False))
    args = torch.randn(2, channels, 6, 5), torch.rand(2, 1, 7, 2)
    shapes = (({2: h, 3: w}, {2: n}),)
    compiled = kitsune_mlir.compile(function, args, target=target, dynamic_shapes=shapes)
    run = compiled if target == "cpu" else Simulation(compiled, seed=1)
    for height, width, count in ((4, 9, 3), (1, 3, 11)):
        args = torch.randn(2, channels, height, width), torch.rand(2, 1, count, 2) * 3 - 1.5
        torch.testing.assert_close(torch.as_tensor(run(*args)), function(*args), atol=1e-5, rtol=1e-5)


def test_infinite_and_missing_numbers():
    """What is beyond the last element has no part in it; places that are no numbers read nothing outside."""
    x = torch.tensor([[1.0, 2.0], [3.0, torch.inf]]).view(1, 1, 2, 2)
    grid = torch.tensor([[1.0, 1.0], [9.0, 9.0], [-1.0, 0.0], [torch.nan, 0.0]]).view(1, 1, 4, 2)
    function = Function(sampler(padding_mode="border", align_corners=True))
    for target in ("cpu", "sm_90a"):
        compiled = kitsune_mlir.compile(function, (x, grid), target=target)
        found = torch.as_tensor((compiled if target == "cpu" else Simulation(compiled, seed=1))(x, grid))
        torch.testing.assert_close(found[..., :3], function(x, grid)[..., :3], equal_nan=True)
        assert found[..., :2].isinf().all()


@pytest.mark.parametrize("channels, kernels", [(3, ["gather"]), (8, ["elementwise", "gather"])])
def test_one_kernel_reads_all_corners(channels, kernels):
    """Images of many channels are turned before."""
    args = torch.randn(2, channels, 32, 32), torch.rand(2, 32, 32, 2)
    compiled = kitsune_mlir.compile(Function(sampler(align_corners=True)), args, target="sm_90a")
    assert computed(compiled) == kernels


def test_few_places_of_a_large_image():
    """An image is not turned for them."""
    args = torch.randn(1, 8, 64, 64), torch.rand(1, 1, 9, 2)
    compiled = kitsune_mlir.compile(Function(sampler(align_corners=True)), args, target="sm_90a")
    assert computed(compiled) == ["gather"]


def test_lines_of_an_image_with_zeros_around_it():
    """Whose sizes are open: threads read words of its channels."""
    h, w = Dim("h", min=4, max=99), Dim("w", min=4, max=99)

    def function(x, grid):
        return F.grid_sample(F.pad(x, (1, 1, 1, 1)), grid, align_corners=True)

    args, shapes = (torch.randn(2, 8, 6, 7), torch.rand(2, 6, 7, 2)), (({2: h, 3: w}, {1: h, 2: w}),)
    compiled = kitsune_mlir.compile(Function(function), args, target="sm_90a", dynamic_shapes=shapes)
    args = torch.randn(2, 8, 5, 9), torch.rand(2, 5, 9, 2) * 2 - 1
    found = torch.as_tensor(Simulation(compiled, seed=1)(*args))
    torch.testing.assert_close(found, function(*args), atol=1e-5, rtol=1e-5)
