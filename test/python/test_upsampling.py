"""Nearest neighbours, whole times as large and not: the same elements as torch's; and what lies between neighbours."""

import pytest
import torch
from functions import Function, computed
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.frontend import upsampling
from kitsune_mlir.tools.gpusim import Simulation

CASES = {
    "lines": (lambda x: F.interpolate(x[:, 0], scale_factor=3), True),
    "images": (lambda x: F.interpolate(x, scale_factor=2.0), True),
    "as large as asked for": (lambda x: F.interpolate(x, size=(12, 35)), True),
    "volumes": (lambda x: F.interpolate(x[None], scale_factor=(1, 2, 2)), True),
    "and half": (lambda x: F.interpolate(x, scale_factor=1.5), False),
    "smaller": (lambda x: F.interpolate(x, size=(3, 7)), False),
    "volumes of any size": (lambda x: F.interpolate(x[None], size=(2, 5, 9)), False),
}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_elements(name, dtype, small_gpu):
    torch.manual_seed(0)
    function, is_repeated = CASES[name]
    x = torch.randn(2, 3, 6, 7).to(dtype)
    compiled = kitsune_mlir.compile(Function(function), (x,), target=small_gpu)
    assert ("gather" not in computed(compiled)) == is_repeated
    torch.testing.assert_close(torch.as_tensor(Simulation(compiled)(x)), function(x), rtol=0, atol=0)


def test_an_open_number_of_lines():
    shapes = {"args": ({2: torch.export.Dim("height", max=100)},)}
    function = CASES["images"][0]
    compiled = kitsune_mlir.compile(Function(function), (torch.randn(2, 3, 6, 7),), target="cpu", dynamic_shapes=shapes)
    for height in (1, 5):
        x = torch.randn(2, 3, height, 7)
        torch.testing.assert_close(compiled(x), function(x), rtol=0, atol=0)


LINEAR = {
    "lines": (lambda x: F.interpolate(x[:, 0], scale_factor=3, mode="linear"), 1),
    "images": (lambda x: F.interpolate(x, size=(12, 28), mode="bilinear"), 2),
    "volumes": (lambda x: F.interpolate(x[None], scale_factor=(1, 2, 2), mode="trilinear"), 2),
    "one element": (lambda x: F.interpolate(x[:, :, :1], scale_factor=2, mode="bilinear"), 2),
    "and half": (lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"), 2),
    "a factor of another size": (lambda x: F.interpolate(x, scale_factor=1.3, mode="bilinear"), 2),
    "as large as asked for": (lambda x: F.interpolate(x, size=(8, 9), mode="bilinear"), 2),
    "smaller": (lambda x: F.interpolate(x, size=(4, 3), mode="bilinear"), 2),
    "corners": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True), 2),
    "corners of lines": (lambda x: F.interpolate(x[:, 0], size=12, mode="linear", align_corners=True), 1),
    "one corner": (lambda x: F.interpolate(x, size=(1, 9), mode="bilinear", align_corners=True), 2),
}
ROUNDED = ("lines", "volumes", "and half", "corners")  # 16 bits are computed with in f32, wherever elements are


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize(
    "name, dtype", [*((name, torch.float32) for name in LINEAR), *((name, torch.bfloat16) for name in ROUNDED)], ids=str
)
def test_between_elements(name, dtype, small_gpu):
    """At most a kernel for each dimension of another size."""
    torch.manual_seed(0)
    function, most = LINEAR[name]
    x = torch.randn(2, 3, 6, 7).to(dtype)
    compiled = kitsune_mlir.compile(Function(function), (x,), target=small_gpu)
    assert len(computed(compiled)) <= most
    found, wanted = torch.as_tensor(Simulation(compiled)(x)), function(x.double()).to(dtype)
    torch.testing.assert_close(found, wanted, rtol=2e-2 if dtype is torch.bfloat16 else 1e-5, atol=1e-5)


CUBIC = {
    "images": (lambda x: F.interpolate(x, scale_factor=(2, 3), mode="bicubic"), True),
    "one element": (lambda x: F.interpolate(x[:, :, :1], scale_factor=4, mode="bicubic"), True),
    "corners": (lambda x: F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=True), False),
}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("name", CUBIC)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_between_cubic_elements(name, dtype, small_gpu, monkeypatch):
    """Each element and its neighbours are read where they lie, not by number; what is beyond the edges may be."""
    monkeypatch.setattr(upsampling, "MANY", 0)
    torch.manual_seed(0)
    function, is_between = CUBIC[name]
    x = torch.randn(2, 3, 6, 7).to(dtype)
    compiled = kitsune_mlir.compile(Function(function), (x,), target=small_gpu)
    assert (computed(compiled)[-1] != "gather") == is_between
    found, wanted = torch.as_tensor(Simulation(compiled)(x)), function(x.double()).to(dtype)
    torch.testing.assert_close(found, wanted, rtol=2e-2 if dtype is torch.bfloat16 else 1e-5, atol=1e-5)


OPEN_CUBIC = {
    "sizes": lambda x: F.interpolate(x, size=(3 * x.shape[2], 2 * x.shape[3]), mode="bicubic"),
    "factors": lambda x: F.interpolate(x, scale_factor=(2, 3), mode="bicubic"),
}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("name", OPEN_CUBIC)
@pytest.mark.parametrize("target", ["gpu", "cpu"])
def test_between_cubic_elements_of_open_sizes(name, target, small_gpu):
    """Whole times as many results as elements, whatever these are: so these are read where they lie."""
    torch.manual_seed(0)
    dims = {d: torch.export.Dim(f"size{d}", min=2, max=1 << 20) for d in (2, 3)}
    given = {"target": small_gpu if target == "gpu" else "cpu", "dynamic_shapes": {"args": (dims,)}}
    compiled = kitsune_mlir.compile(Function(OPEN_CUBIC[name]), (torch.randn(2, 3, 6, 7),), **given)
    assert target == "cpu" or len(compiled.plan["launches"]) <= 4
    run = Simulation(compiled) if target == "gpu" else compiled
    for height, width in ((6, 7), (2, 5), (9, 3)):
        x = torch.randn(2, 3, height, width)
        wanted = OPEN_CUBIC[name](x.double()).float()
        torch.testing.assert_close(torch.as_tensor(run(x)), wanted, rtol=1e-5, atol=1e-5)


ANTIALIASED = {
    "smaller": {"size": (5, 4)},
    "larger one way": {"size": (4, 15)},
    "by factors": {"scale_factor": (0.6, 0.45)},
    "corners": {"size": (4, 5), "align_corners": True},
}


@pytest.mark.parametrize("form", ANTIALIASED)
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_against_aliasing(mode, form):
    """Weighted means of the elements near each result, whose weights are in no table."""
    torch.manual_seed(0)

    def function(x):
        return F.interpolate(x, mode=mode, antialias=True, **ANTIALIASED[form])

    x = torch.randn(2, 3, 9, 11)
    compiled = kitsune_mlir.compile(Function(function), (x,), target="cpu")
    torch.testing.assert_close(compiled(x), function(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_means_of_few_elements_are_no_products(mode):
    """Means of few elements, in the simulator, of images that become smaller one way and larger the other."""
    torch.manual_seed(0)

    def function(x):
        return F.interpolate(x, size=(13, 41), mode=mode, antialias=True)

    x = torch.randn(2, 3, 29, 37)
    compiled = kitsune_mlir.compile(Function(function), (x,), target="sm_90a")
    assert not any("product" in launch["kernel"] for launch in compiled.plan["launches"])
    torch.testing.assert_close(torch.as_tensor(Simulation(compiled, seed=1)(x)), function(x), rtol=1e-5, atol=1e-5)
