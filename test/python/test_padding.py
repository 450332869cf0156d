"""Images with more of themselves around them: torch's elements, on a GPU read by number or copied."""

import pytest
import torch
from functions import Function, computed
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

MODES = ("reflect", "replicate", "circular")
CASES = {
    "lines": ((2, 3, 7), (3, 1)),
    "images": ((2, 3, 7, 5), (0, 2, 4, 1)),
    "volumes": ((2, 3, 4, 5, 6), (1, 2, 3, 0, 2, 3)),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_as_torch(name, mode):
    shape, padding = CASES[name]
    x, function = torch.randn(shape), (lambda x: F.pad(x, padding, mode=mode) * 2)
    compiled = kitsune_mlir.compile(Function(function), (x,), target="cpu")
    torch.testing.assert_close(compiled(x), function(x), rtol=0, atol=0)


@pytest.mark.parametrize("mode", MODES)
def test_open_lines(mode):
    function = lambda x: F.pad(x, (2, 1), mode=mode) * 2  # noqa: E731
    shapes = {"args": ({2: torch.export.Dim("length", min=4)},)}
    compiled = kitsune_mlir.compile(Function(function), (torch.randn(2, 3, 9),), target="cpu", dynamic_shapes=shapes)
    x = torch.randn(2, 3, 6)
    torch.testing.assert_close(compiled(x), function(x), rtol=0, atol=0)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_one_kernel_reads_by_number(name, mode):
    shape, padding = CASES[name]
    x, module = torch.randn(shape), Function(lambda x: F.pad(x, padding, mode=mode))
    batch = {"args": ({0: torch.export.Dim("batch", max=16)},)}
    compiled = kitsune_mlir.compile(module, (x,), target="sm_90a", dynamic_shapes=batch)
    assert [launch["computes"] for launch in compiled.plan["launches"]] == ["gather"]
    torch.testing.assert_close(torch.as_tensor(Simulation(compiled, seed=1)(x)), module(x), rtol=0, atol=0)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("mode", MODES)
def test_whole_lines_are_copied(mode):
    x = torch.randn(2, 3, 6, 8, dtype=torch.bfloat16)
    module = Function(lambda x: F.pad(x, (0, 0, 1, 2), mode=mode))
    compiled = kitsune_mlir.compile(module, (x,), target="sm_90a")
    assert len(compiled.plan["launches"]) == 1 and set(computed(compiled)) == {"copy"}
    assert torch.equal(torch.as_tensor(Simulation(compiled, seed=1)(x)), module(x))


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("mode", MODES)
def test_convolutions_pad_what_has_its_channels_last(mode):
    """The images are transposed as they are; whole lines of channels are moved then."""
    layer = torch.nn.Conv2d(64, 32, 5, padding=2, padding_mode=mode).to(torch.bfloat16).requires_grad_(False)
    x = torch.randn(2, 64, 6, 9, dtype=torch.bfloat16)
    compiled = kitsune_mlir.compile(layer, (x,), target="sm_90a")
    assert [launch["computes"] for launch in compiled.plan["launches"]][:2] == ["elementwise", "gather"]
    found, wanted = torch.as_tensor(Simulation(compiled, seed=1)(x)), layer.double()(x.double())
    torch.testing.assert_close(found.double(), wanted, rtol=2e-2, atol=2e-2)


@pytest.mark.usefixtures("unassembled")
def test_what_is_beside_itself_otherwise():
    """Parts that no way of padding has there."""
    x, function = torch.randn(2, 3, 5), lambda x: torch.cat([x[..., 2:3], x, x[..., 0:1], x[..., 0:1], x[..., 4:]], 2)
    compiled = kitsune_mlir.compile(Function(function), (x,), target="sm_90a")
    assert torch.equal(torch.as_tensor(Simulation(compiled, seed=1)(x)), function(x))


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("mode", MODES)
def test_open_images(mode):
    """Both dimensions are read where they lie at once: no part is copied, and no table of numbers is made."""
    sizes = {2: torch.export.Dim("height", min=4), 3: torch.export.Dim("width", min=4)}
    function = Function(lambda x: F.pad(x, (2, 1, 3, 2), mode=mode) * 2)
    compiled = kitsune_mlir.compile(function, (torch.rand(2, 3, 6, 5),), target="sm_90a", dynamic_shapes=((sizes,),))
    assert computed(compiled) == ["gather"]
    for size in ((6, 5), (4, 9), (33, 4)):
        x = torch.rand(2, 3, *size)
        assert torch.equal(torch.as_tensor(Simulation(compiled, seed=1)(x)), function(x))
