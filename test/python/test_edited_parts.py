"""Parts of computed tensors that are changed in place: as many elements as the call says, and no more."""

import pytest
import torch
from functions import Function, computed, on_both
from torch.export import Dim

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation


def cleared(x, z):
    y = x * 2
    y[: z.shape[0]] = 0
    return y


def added_to(x, z):
    y = x * 2
    y[: z.shape[0], 2:5] += 1
    return y.exp()


def squashed(x, z):
    y = x * 2
    y[:, : z.shape[0]] = y[:, : z.shape[0]].sin()
    return y


@pytest.mark.parametrize("rows", [16, None], ids=["known rows", "open rows"])
@pytest.mark.parametrize("function", [cleared, added_to, squashed])
def test_as_many_as_the_call_says(function, rows):
    sizes = (({} if rows else {0: Dim("rows", min=8)}), {0: Dim("part", min=1, max=7)})
    calls = on_both(Function(function), (torch.randn(16, 8), torch.randn(5, 2)), dynamic_shapes=(sizes,))
    for call in calls:
        for part, count in ((1, rows or 9), (5, 16), (7, rows or 40)):
            args = torch.randn(count, 8), torch.randn(part, 2)
            torch.testing.assert_close(torch.as_tensor(call(*args)), function(*args))


def test_whole_dimensions_of_open_size():
    def function(x):
        y = x * 2
        y[:, 2:5] = y[:, 2:5].sin()
        return y + 1

    sizes = (({0: Dim("rows", min=2)},),)
    compiled = kitsune_mlir.compile(Function(function), (torch.randn(16, 8),), target="sm_90a", dynamic_shapes=sizes)
    x = torch.randn(9, 8)
    torch.testing.assert_close(torch.as_tensor(Simulation(compiled)(x)), function(x))
    assert computed(compiled) == ["elementwise"]
