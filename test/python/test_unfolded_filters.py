"""Filters of windows that F.unfold makes: windows are never in memory, and what weighs them is summed in one kernel."""

import pytest
import torch
from functions import Function, computed
from torch.export import Dim
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")
OPEN = {2: Dim("h", min=6, max=999), 3: Dim("w", min=6, max=999)}


def windows(x, size=3, mode="reflect"):
    """[n, c, h, w] -> [n, c, size * size, h, w]"""
    around = F.pad(x, (size // 2,) * 4, mode=mode)
    return F.unfold(around, size).view(*x.shape[:2], size * size, *x.shape[2:])


def bilateral(x, **how):
    near = windows(x, **how)
    weight = torch.exp(-((near - x.unsqueeze(2)) ** 2).mean(1, keepdim=True) * 3)
    return (near * weight).sum(2) / weight.sum(2)


def check(function, shape, kinds, open_=True, kind=torch.float32, target="sm_90a"):
    """Compares what a function of images gives of several sizes; says what its kernels are."""
    shapes = ((OPEN,),) if open_ else None
    example = (torch.rand(shape).to(kind),)
    compiled = kitsune_mlir.compile(Function(function), example, target=target, dynamic_shapes=shapes)
    if kinds is not None:
        assert computed(compiled) == kinds
    for sizes in [shape[2:], (6, 6), (7, 33)] if open_ else [shape[2:]]:
        x = torch.rand(*shape[:2], *sizes).to(kind)
        found = (compiled if target == "cpu" else Simulation(compiled, seed=1))(x)
        wanted = function(x)
        for one, other in zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]:
            torch.testing.assert_close(torch.as_tensor(one), other)


@pytest.mark.parametrize("open_", [True, False], ids=["open", "known"])
@pytest.mark.parametrize("channels", [2, 3, 4])
def test_images_of_few_channels(channels, open_):
    check(bilateral, (2, channels, 6, 9), ["gather", "product", "elementwise"], open_)


@pytest.mark.parametrize("mode", ["constant", "replicate", "circular"])
def test_what_is_around_an_image(mode):
    check(lambda x: bilateral(x, mode=mode), (2, 3, 6, 9), None)


def test_larger_windows_of_16_bits():
    """Sums of 25 that are rounded as often as torch's are."""
    check(lambda x: bilateral(x.float(), size=5), (1, 3, 7, 9), None)
    check(lambda x: (windows(x) - x.unsqueeze(2)).abs().sum(1).amax(1), (1, 3, 7, 9), None, kind=torch.bfloat16)


def test_sums_of_windows_alone():
    """By themselves, beside norms of channels."""
    check(lambda x: (windows(x).sum(2) + windows(x).amax(2), windows(x).norm(dim=1).sum(1)), (2, 3, 6, 9), None)


def test_softmax_over_windows():
    def alike(x):
        near = windows(x)
        weight = (-(near - x.unsqueeze(2)).abs().sum(1, keepdim=True)).softmax(2)
        return (weight * near).sum(2)

    check(alike, (2, 3, 6, 9), None)


def test_on_a_cpu():
    check(bilateral, (2, 3, 6, 9), None, target="cpu")
