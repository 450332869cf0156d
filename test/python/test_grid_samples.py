"""Volumes read at places that a tensor has: as torch reads them."""

import pytest
import torch
from decomposed_functions import check_error
from functions import Function
from torch.nn import functional as F

import kitsune_mlir

pytestmark = pytest.mark.usefixtures("unassembled")


@pytest.mark.parametrize("corners", [True, False], ids=["corners", "sides"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_volumes(mode, padding, corners):
    def function(x, grid):
        return F.grid_sample(x, grid, mode=mode, padding_mode=padding, align_corners=corners)

    torch.manual_seed(0)
    grid = torch.rand(2, 2, 3, 4, 3) * 3 - 1.5  # some places are outside
    target = "sm_90a" if corners else "cpu"
    check_error(function, torch.randn(2, 2, 3, 4, 5), grid, target=target, least=1e-6)


def test_any_number_of_volumes():
    batch, function = (
        torch.export.Dim("batch", max=9),
        Function(lambda x, grid: F.grid_sample(x, grid, align_corners=False)),
    )
    args = torch.randn(3, 1, 4, 3, 2), torch.rand(3, 2, 2, 2, 3)
    compiled = kitsune_mlir.compile(function, args, target="cpu", dynamic_shapes=(({0: batch}, {0: batch}),))
    args = torch.randn(5, 1, 4, 3, 2), torch.rand(5, 2, 2, 2, 3)
    torch.testing.assert_close(compiled(*args), function(*args))
