"""Pools and paddings of images whose sizes are open until the call, on a CPU and in the GPU simulator."""

import pytest
import torch
from functions import Function, on_both
from torch.nn import functional as F

pytestmark = pytest.mark.usefixtures("unassembled")
WINDOWS = [(3, 2, 1, 1), (2, 2, 0, 1), (3, 4, 1, 2), (5, 3, 2, 1)]  # sizes, strides, what is around, dilations


def of_maxima(x):
    """Windows that end behind the image, and those of lines."""
    lines = F.max_pool1d(x[:, :, 0], 3, 2), F.max_pool1d(x.flatten(0, 1), 2, ceil_mode=True)
    return *(F.max_pool2d(x, k, s, p, d, ceil_mode=True) for k, s, p, d in WINDOWS), *lines


def of_averages(x):
    inside = F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)
    roots = F.lp_pool2d(x, 2, 3, 2, ceil_mode=True), F.avg_pool1d(x[:, 1], 3, 2, ceil_mode=True)
    return *(F.avg_pool2d(x, k, s, p, ceil_mode=True) for k, s, p, _ in WINDOWS), inside, *roots


def of_places(x):
    """Where maxima are found, and put again. The windows leave out an element of some sizes and none of others."""
    values, places = F.max_pool2d(x, 2, return_indices=True)
    ends = F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True)
    return values, places, *ends, F.max_unpool2d(values, places, 2, output_size=x.shape)


def of_less(x):
    """Paddings that are below zero for some sizes."""
    high, wide = x.shape[2:]
    even = F.pad(x, (0, wide // 2 * 2 - wide, high // 3 * 3 - high, 0))
    return even, F.pad(x, (1, 10 - wide, 9 - high, -1), value=3.0), F.pad(x, (0, -wide % 4)) + 1


@pytest.mark.parametrize("function", [of_maxima, of_averages, of_places, of_less])
def test_open_images(function):
    torch.manual_seed(0)
    sizes = {2: torch.export.Dim("height", min=6, max=64), 3: torch.export.Dim("width", min=6, max=64)}
    for run in on_both(Function(function), (torch.randn(2, 3, 8, 11),), dynamic_shapes=((sizes,),)):
        for size in ((8, 11), (7, 14), (13, 6), (10, 9)):
            x = torch.randn(2, 3, *size)
            for found, wanted in zip(run(x), function(x), strict=True):
                torch.testing.assert_close(torch.as_tensor(found), wanted, rtol=1e-5, atol=1e-5)
