"""Linear interpolation of images whose sizes are open until the call: one kernel, which is as exact as torch."""

import pytest
import torch
from functions import Function, computed
from torch.export import Dim
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")
H, W, A, B = (Dim(name, min=2, max=999) for name in "hwab")


def found(function, example, other, shapes, target):
    compiled = kitsune_mlir.compile(Function(function), example, target=target, dynamic_shapes=(shapes,))
    if target == "sm_90a":
        assert computed(compiled) == ["gather"]
    return torch.as_tensor((compiled if target == "cpu" else Simulation(compiled, seed=1))(*other))


@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
@pytest.mark.parametrize("corners", [False, True], ids=["sides", "corners"])
def test_to_the_size_of_another(corners, target):
    """With what is added to it; smaller along one dimension, larger along the other."""

    def function(x, y):
        return F.interpolate(x, size=y.shape[-2:], mode="bilinear", align_corners=corners) + y

    example = torch.randn(2, 3, 4, 6), torch.randn(1, 1, 9, 7)
    other = torch.randn(2, 3, 5, 12), torch.randn(1, 1, 8, 11)
    result = found(function, example, other, ({2: H, 3: W}, {2: A, 3: B}), target)
    torch.testing.assert_close(result, function(*other))


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("factor", [2, 1.5])
def test_by_a_factor(factor, kind):
    function = lambda x: F.interpolate(x, scale_factor=factor, mode="bilinear")  # noqa: E731
    x = torch.randn(2, 3, 2, 7).to(kind)
    result = found(function, (torch.randn(2, 3, 4, 6).to(kind),), (x,), ({2: H, 3: W},), "sm_90a")
    wanted = function(x.double())
    assert result.dtype == kind and result.shape == wanted.shape
    torch.testing.assert_close(result.double(), wanted, rtol=2 * torch.finfo(kind).eps, atol=16 * torch.finfo(kind).eps)


def test_signals_and_volumes():
    for mode, sizes, other in (("linear", (6,), (9,)), ("trilinear", (3, 4, 5), (4, 2, 6))):
        function = lambda x, mode=mode: F.interpolate(x, scale_factor=2, mode=mode)  # noqa: E731
        shapes = {2 + d: (H, W, A)[d] for d in range(len(sizes))}
        x = torch.randn(2, 3, *other)
        result = found(function, (torch.randn(2, 3, *sizes),), (x,), (shapes,), "sm_90a")
        torch.testing.assert_close(result, function(x))
