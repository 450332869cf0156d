"""Images of few channels, some of which are summed: one kernel, whose threads have all channels of a place."""

import pytest
import torch
from functions import Function, computed
from torch.export import Dim
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")
OPEN = {2: Dim("h", min=5, max=999), 3: Dim("w", min=5, max=999)}


def bilateral(x):
    """Means of neighbours, weighed by how alike all of their channels are."""
    padded = F.pad(x, (1, 1, 1, 1), mode="reflect")
    total, weights = 0, 0
    for dy in range(3):
        for dx in range(3):
            near = padded[:, :, dy : dy + x.shape[2], dx : dx + x.shape[3]]
            weight = torch.exp(-((near - x) ** 2).mean(1, keepdim=True))
            total, weights = total + weight * near, weights + weight
    return total / weights


def centred(x):
    """Also what a plane's own operator is between, whose dimension of channels is taken away."""
    grey = x.mean(1)
    return torch.relu(grey).unsqueeze(1) - x, (x - grey.unsqueeze(1)).abs().amax(1, keepdim=True)


def over_images(x):
    """The first dimension, over which weights are one; places are part of what is computed."""
    weight = torch.exp(x * torch.arange(x.shape[3]))
    weight = weight / weight.sum(0, keepdim=True)
    return (x * weight).sum(0, keepdim=True)


def checked(function, shape, other=None):
    """The compiled function, and results that are torch's; of open sizes for another shape."""
    args = (torch.rand(shape),)
    shapes = None if other is None else ((OPEN,),)
    compiled = kitsune_mlir.compile(Function(function), args, target="sm_90a", dynamic_shapes=shapes)
    x = torch.rand(shape if other is None else other)
    found, wanted = Simulation(compiled, seed=1)(x), function(x)
    for one, exact in zip(*(y if isinstance(y, tuple) else (y,) for y in (found, wanted)), strict=True):
        torch.testing.assert_close(torch.as_tensor(one), exact)
    return compiled


@pytest.mark.parametrize("channels", [2, 3, 4])
@pytest.mark.parametrize("function", [bilateral, centred, over_images])
def test_open_images(function, channels):
    shape = (channels, 2, 6, 9) if function is over_images else (2, channels, 6, 9)
    checked(function, shape, (*shape[:2], 11, 5))


def test_one_kernel_has_all_taps():
    """Where they lie in the image and its reflection around it."""
    assert computed(checked(bilateral, (2, 3, 6, 9), (2, 3, 5, 7))) == ["gather"]


def test_slices_of_known_sizes():
    """They are read where they are, too, and not copied for a kernel of rows."""
    assert len(checked(bilateral, (2, 3, 6, 9)).plan["launches"]) == 1


def test_more_channels_stay_a_tensor():
    checked(bilateral, (1, 5, 6, 9), (1, 5, 5, 7))


def test_several_results_of_one_operator_are_written_where_they_belong():
    """Channels are parts of one tensor, and no copies of it."""
    compiled = checked(lambda x: x / x.sum(1, keepdim=True), (2, 3, 6, 9), (2, 3, 7, 5))
    assert computed(compiled) == ["elementwise"]


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("function", [torch.mean, torch.amax, torch.logsumexp])
def test_windows_of_few_elements_are_reduced(function, step):
    """The first element of each window is read where the row is, which is longer than there are windows."""
    checked(lambda x: F.relu(x) + function(x.unfold(-1, 3, step), -1).mean(-1, keepdim=True), (1, 5, 12))
