"""Small kernels that are one launch compute what they do apart, in the simulator of GPUs, which knows races."""

import pytest
import torch
from functions import Function

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

ROWS = torch.export.Dim("rows", min=2, max=5000)


def _in_turn(x, y):
    order = x.sort(-1).values.roll(1, -1)  # a sort has buffers in shared memory
    total = (order.cumsum(-1) * y.flip(0)).amax(-1, keepdim=True)
    return order - total, y.roll(3, 1).tril() + total


def _side_by_side(x, y):
    return x.flip(0), y.roll(1, 0), x.argmax(-1), torch.cat([y, x], 1).flip(1)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("function", [_in_turn, _side_by_side])
def test_small_kernels(function):
    torch.manual_seed(0)
    args = torch.randn(5, 40), torch.randn(5, 40)
    compiled = kitsune_mlir.compile(Function(function), args, target="sm_90a")
    computed = [launch["computes"] for launch in compiled.plan["launches"]]
    assert any((", then " if function is _in_turn else "; ") in what for what in computed), computed
    fresh = torch.randn(5, 40), torch.randn(5, 40)
    for found, wanted in zip(Simulation(compiled, seed=1)(*fresh), function(*fresh), strict=True):
        torch.testing.assert_close(torch.as_tensor(found), wanted)


@pytest.mark.usefixtures("unassembled")
def test_open_sizes():
    """How many blocks are whose the call decides."""
    torch.manual_seed(0)
    sizes = {0: ROWS}
    compiled = kitsune_mlir.compile(
        Function(_side_by_side), (torch.randn(90, 7),) * 2, target="sm_90a", dynamic_shapes=((sizes, sizes),)
    )
    assert any("; " in launch["computes"] for launch in compiled.plan["launches"])
    for rows in (90, 2, 400):
        args = torch.randn(rows, 7), torch.randn(rows, 7)
        for found, wanted in zip(Simulation(compiled, seed=2)(*args), _side_by_side(*args), strict=True):
            torch.testing.assert_close(torch.as_tensor(found), wanted)


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(6))

    def forward(self, x):
        before = self.seen.flip(0)
        self.seen.copy_(self.seen.roll(1, 0) + x)
        return before + x, self.seen.flip(0)


@pytest.mark.usefixtures("unassembled")
def test_a_buffer_that_changes():
    """What is read before it changes is read before, in whichever launch."""
    torch.manual_seed(0)
    model, wanted = Counter(), Counter()
    simulation = Simulation(kitsune_mlir.compile(model, (torch.randn(6),), target="sm_90a"), seed=1)
    for _ in range(2):
        x = torch.randn(6)
        for found, expected in zip(simulation(x), wanted(x), strict=True):
            torch.testing.assert_close(torch.as_tensor(found), expected)
