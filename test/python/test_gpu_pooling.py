"""Maxima and averages over windows of padded images on the stand-in GPU: one kernel, which pads nothing."""

import pytest
import torch
from functions import Function, computed
from torch import nn
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

POOLS = {
    "padded": (lambda: nn.MaxPool2d(3, 2, 1), (2, 5, 11, 13)),
    "not padded": (lambda: nn.MaxPool2d(2, 2), (1, 4, 8, 8)),
    "padded by 2": (lambda: nn.MaxPool2d(5, 3, 2), (1, 3, 17, 9)),
    "of one element": (lambda: nn.MaxPool2d(3, 1, 1), (1, 2, 1, 1)),
    "of lines": (lambda: nn.MaxPool1d(3, 2, 1), (2, 3, 50)),
    "rounded up": (lambda: nn.MaxPool2d(3, 2, 1, ceil_mode=True), (2, 3, 10, 12)),
    "dilated": (lambda: nn.MaxPool2d(2, 1, 1, dilation=2), (1, 3, 7, 7)),
}


@pytest.mark.parametrize("name", POOLS)
def test_as_torch(name):
    make, shape = POOLS[name]
    torch.manual_seed(0)
    x = torch.randn(shape).to(torch.bfloat16)
    x.view(-1)[0] = -torch.inf
    compiled = kitsune_mlir.compile(make(), (x,), target="sm_90a")
    torch.testing.assert_close(Simulation(compiled, seed=1)(x), make()(x), rtol=0, atol=0)
    assert len(compiled.plan["launches"]) == 1


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("pool", ["avg", "max"])
def test_windows_that_are_whole_images(pool, dims):
    x = torch.randn(4, 6, *[9, 10, 11][-dims:]).bfloat16()
    operator = getattr(torch.nn.functional, f"{pool}_pool{dims}d")
    model = Function(lambda x: operator(x, x.shape[2:]))
    compiled = kitsune_mlir.compile(model, (x,), target="sm_90a")
    assert {launch["form"] for launch in compiled.plan["launches"]} == {"scheduled rows"}
    found = torch.as_tensor(Simulation(compiled, seed=1)(x))
    torch.testing.assert_close(found, model(x.float()).bfloat16(), rtol=8e-3, atol=1e-6)


def test_an_open_number_of_images():
    x = torch.randn(3, 4, 9, 9)
    dynamic = ({0: torch.export.Dim("n", min=1, max=64)},)
    compiled = kitsune_mlir.compile(nn.MaxPool2d(3, 2, 1), (x,), target="sm_90a", dynamic_shapes=dynamic)
    simulation = Simulation(compiled, seed=1)
    for images in (x, x[:2]):
        torch.testing.assert_close(simulation(images), nn.MaxPool2d(3, 2, 1)(images), rtol=0, atol=0)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("size", [2, 3, (7, 4), (30, 1)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_averages_of_windows_of_several_sizes(size, dtype):
    """Threads share a window's elements: no long loop is a thread's own."""
    torch.manual_seed(0)
    x = torch.randn(1, 64, 23, 31).to(dtype)
    x[0, 0, -1, -1], x[0, 1, 0, 0] = torch.inf, torch.nan  # in the windows that have them alone
    model = nn.AdaptiveAvgPool2d(size)
    compiled = kitsune_mlir.compile(model, (x,), target="sm_90a")
    assert compiled.plan["predicted_us"] < 9
    wanted = model(x.double()).to(dtype)
    found = torch.as_tensor(Simulation(compiled, seed=1)(x))
    torch.testing.assert_close(found, wanted, rtol=1e-5 if dtype == torch.float32 else 8e-3, atol=1e-6, equal_nan=True)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool2d"])
def test_windows_of_several_sizes_are_read_where_they_are(name, dtype):
    """One kernel a dimension, and nothing is written between an image and its sums."""
    torch.manual_seed(0)
    rank = int(name[-2])
    sizes, output = {1: ((2, 3, 100), 7), 2: ((2, 3, 19, 46), (4, 5)), 3: ((1, 2, 7, 8, 9), (3, 8, 2))}[rank]
    x, model = torch.randn(sizes).to(dtype), getattr(nn, name)(output)
    x.view(-1)[-1] = torch.inf
    compiled = kitsune_mlir.compile(model, (x,), target="sm_90a")
    computed = ", then ".join(launch["computes"] for launch in compiled.plan["launches"])
    assert set(computed.split(", then ")) == {"reduce"}
    assert len(compiled.plan["launches"]) <= rank
    found = torch.as_tensor(Simulation(compiled, seed=1)(x))
    torch.testing.assert_close(
        found, model(x.double()).to(dtype), rtol=1e-5 if dtype == torch.float32 else 8e-3, atol=1e-6
    )


@pytest.mark.parametrize("window", [dict(kernel_size=5, stride=1, padding=2), dict(kernel_size=(7, 5), stride=(2, 1))])
@pytest.mark.parametrize("counted", [True, False])
def test_large_windows_are_averaged_along_one_dimension_after_the_other(window, counted):
    """Also of open sizes, where what is around an image is in no memory either."""
    function = Function(lambda x: F.avg_pool2d(x, count_include_pad=counted, **window))
    sizes = {2: torch.export.Dim("h", min=7, max=99), 3: torch.export.Dim("w", min=7, max=99)}
    for shapes in (None, (sizes,)):
        compiled = kitsune_mlir.compile(
            function, (torch.randn(2, 1, 12, 9),), target="sm_90a", dynamic_shapes=None if shapes is None else (shapes,)
        )
        x = torch.randn(2, 1, 12, 9) if shapes is None else torch.randn(2, 1, 8, 13)
        assert computed(compiled).count("windows") == 2 and "copy" not in computed(compiled)
        torch.testing.assert_close(torch.as_tensor(Simulation(compiled, seed=1)(x)), function(x))
