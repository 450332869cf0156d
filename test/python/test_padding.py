"""Images with more of themselves around them: torch's elements, copied part by part."""

import pytest
import torch
from functions import Function
from torch.nn import functional as F

import kitsune_mlir

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
def test_parts_are_copied(mode):
    x = torch.randn(2, 3, 16, 20, dtype=torch.bfloat16)
    module = Function(lambda x: F.pad(x, (1, 1, 1, 1), mode=mode))
    launches = kitsune_mlir.compile(module, (x,), target="sm_90a").plan["launches"]
    assert [launch["computes"] for launch in launches] == ["copy", "copy"]
