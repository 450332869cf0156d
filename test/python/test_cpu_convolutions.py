"""Convolutions on the CPU: strides, dilations, groups, ranks, element types, an open batch."""

import numpy as np
import pytest
import torch
from cpu_case import runner
from torch import nn

import kitsune_mlir
from kitsune_mlir.codegen import cpu
from kitsune_mlir.frontend import import_model
from kitsune_mlir.planning import target

CASES = {
    "1d": (nn.Conv1d(4, 6, 3, padding=1, stride=2), (2, 4, 21)),
    "2d": (nn.Conv2d(4, 6, (3, 2), stride=(2, 1), dilation=(1, 3)), (2, 4, 11, 13)),
    "3d": (nn.Conv3d(2, 5, 2, bias=False), (1, 2, 5, 4, 6)),
    "depthwise": (nn.Conv2d(4, 4, 3, groups=4), (2, 4, 9, 9)),
    "depthwise 3d": (nn.Conv3d(4, 4, (3, 2, 3), stride=(1, 2, 2), padding=1, groups=4), (2, 4, 4, 7, 6)),
    "depthwise 3d, transposed": (nn.ConvTranspose3d(4, 4, 3, stride=2, groups=4), (1, 4, 3, 2, 3)),
    "grouped": (nn.Conv2d(4, 6, 3, groups=2), (2, 4, 9, 9)),
    "transposed": (nn.ConvTranspose2d(4, 6, 3, stride=2), (1, 4, 6, 6)),
    "bf16": (nn.Conv2d(4, 6, 3).bfloat16(), (2, 4, 9, 9)),
}


def compiled(model, example, **options):
    program = import_model(model.eval(), (example,), **options)
    section = cpu.build(program.module, target.load("cpu"), opt_level=0)
    return runner(section, [argument.value for argument in program.arguments])


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_torch(name):
    model, shape = CASES[name]
    x = torch.randn(shape).to(next(model.parameters()).dtype)
    narrow = x.dtype == torch.bfloat16
    (found,) = compiled(model, x).run([(x.view(torch.uint16) if narrow else x).numpy()])
    found = torch.from_numpy(found).view(torch.bfloat16) if narrow else torch.from_numpy(found)
    with torch.no_grad():
        wanted = model(x).double()
    assert (found - wanted).norm() / wanted.norm() < (1e-2 if narrow else 1e-6)


def test_open_batch():
    model = nn.Conv2d(3, 5, 3)
    call = compiled(model, torch.zeros(2, 3, 8, 8), dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=64)},))
    for batch in (1, 2, 7):
        x = torch.randn(batch, 3, 8, 8)
        (found,) = call.run([x.numpy()])
        assert np.abs(found - model(x).detach().numpy()).max() < 1e-5


@pytest.mark.parametrize("open_", [(0,), (0, 2, 3)], ids=["batch", "image"])
@pytest.mark.parametrize("padding", ["valid", "same"])
def test_paddings_that_are_said(open_, padding):
    """torch gives one number for all dimensions then."""
    model = torch.nn.Conv2d(3, 8, 3, padding=padding)
    sizes = ({d: torch.export.Dim.AUTO for d in open_},)
    compiled = kitsune_mlir.compile(model, (torch.randn(2, 3, 12, 12),), dynamic_shapes=sizes)
    x = torch.randn(3, 3, 12, 12)
    torch.testing.assert_close(compiled(x), model(x).detach(), rtol=1e-4, atol=1e-5)
