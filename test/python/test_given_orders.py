"""Inputs that do not lie row by row in the example are taken as they lie."""

import numpy as np
import pytest
import torch
from torch import nn

import kitsune_mlir
from kitsune_mlir.errors import UserError
from kitsune_mlir.tools.gpusim.simulation import Simulation

LAST = (0, 2, 3, 1)


def images(*shape):
    return torch.randn(*shape).to(memory_format=torch.channels_last)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.SiLU(), nn.MaxPool2d(2), nn.Conv2d(16, 8, 1))

    def forward(self, x):
        return self.layers(x).mean((2, 3)) + x.amax((2, 3)), x.flatten(1).sum(1)


def orders(compiled):
    return [argument.spec.order for argument in compiled.interface.arguments if argument.kind == "input"]


def check(run, model, *args):
    for a, b in zip(run(*args), model(*args), strict=True):
        torch.testing.assert_close(
            torch.as_tensor(a), b, rtol=1e-5, atol=5e-5
        )  # of sums of 960 numbers torch's own are off by 2e-5


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
def test_images_with_channels_last(target):
    """They, those that lie row by row, and others: all have one shape for the caller."""
    model, x = Net().eval(), images(3, 8, 10, 12)
    compiled = kitsune_mlir.compile(model, (x,), target=target)
    assert orders(compiled) == [LAST] and compiled.interface.inputs[0].shape == (3, 8, 10, 12)
    run = compiled if target == "cpu" else Simulation(compiled)
    with torch.no_grad():
        # What a GPU's kernels are given is in one order: all orders are told to the CPU alone.
        for one in (x, x.contiguous(), x.mT.contiguous().mT) if target == "cpu" else (x.contiguous(),):
            check(run, model, one)
        found = run(x.numpy())
        np.testing.assert_allclose(found[0], model(x)[0].numpy(), rtol=1e-5, atol=1e-5)
    with pytest.raises(UserError, match=r"must have the shape \[3, 8, 10, 12\], found \[3, 10, 12, 8\]"):
        run(x.permute(LAST))


def test_an_open_number_of_images(tmp_path):
    """In an artifact, too; sizes that are equal are compared as the caller has them."""
    model, batch = Net().eval(), torch.export.Dim("batch", min=1)
    compiled = kitsune_mlir.compile(model, (images(3, 8, 10, 12),), target="cpu", dynamic_shapes=({0: batch},))
    loaded = kitsune_mlir.load(compiled.save(tmp_path / "net.kitsune"))
    with torch.no_grad():
        for count in (3, 1, 7):
            check(loaded, model, images(count, 8, 10, 12))

    class Sum(nn.Module):
        def forward(self, a, b):
            return a + b

    sizes = ({0: torch.export.Dim("rows"), 1: torch.export.Dim("columns")},) * 2
    compiled = kitsune_mlir.compile(
        Sum(), (torch.randn(5, 4).mT, torch.randn(4, 5)), target="cpu", dynamic_shapes=sizes
    )
    assert orders(compiled) == [(1, 0), ()]
    a, b = torch.randn(3, 6), torch.randn(3, 6)
    torch.testing.assert_close(compiled(a, b), a + b)
    with pytest.raises(UserError, match=r"must agree in size: a.shape\[0\] is 3 but b.shape\[0\] is 6"):
        compiled(a, b.mT)


class Moved(nn.Module):
    """One input is written, one returned as it is; of one the elements lie apart, another has a single long side."""

    def forward(self, a, b, c, d):
        a.add_(1.0)
        return b, b.mT, c * 2, d + 1


def test_what_is_taken_as_it_was():
    args = torch.randn(5, 4).mT, torch.randn(4, 6).mT, torch.randn(4, 9)[:, ::2], torch.randn(1, 7).mT
    model = Moved()
    given = [arg.clone(memory_format=torch.preserve_format) for arg in args]
    given[2] = torch.randn(4, 9)[:, ::2].copy_(args[2])
    compiled = kitsune_mlir.compile(model, args, target="cpu")
    assert orders(compiled) == [(), (1, 0), (), ()]
    found, wanted = compiled(*args), model(*given)
    torch.testing.assert_close(args[0], given[0])
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b)
