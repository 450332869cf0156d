"""Steps of a recurrence whose products are of each head apart: what is between two products is one kernel a step."""

import pytest
import torch
from functions import Function, computed
from torch.export import Dim

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")
STEPS, HEADS, WIDTH = 4, 2, 16
WEIGHTS = torch.randn(HEADS, WIDTH, 4 * WIDTH) * 0.3


def recurrent(x):
    """A cell of four gates with matrices of its heads, whose states are stacked."""
    state = cell = x.new_zeros(x.shape[0], HEADS, WIDTH)
    states = []
    for step in range(STEPS):
        gates = x[:, step] + torch.einsum("bhc,hce->bhe", state, WEIGHTS.to(x))
        new, put, keep, give = gates.chunk(4, -1)
        cell = keep.sigmoid() * cell + put.exp() * new.tanh()
        state = give.sigmoid() * cell / (1 + cell.abs())
        states.append(state)
    return torch.stack(states, 1).flatten(2), cell


def drawn(batch, dtype):
    return torch.randn(batch, STEPS, HEADS, 4 * WIDTH).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("batch", [None, {0: Dim("b", min=2, max=999)}], ids=["known", "open"])
def test_a_step_is_a_product_and_a_kernel(batch, dtype, small_gpu):
    x = drawn(40, dtype)
    shapes = ((batch,),) if batch else None
    compiled = kitsune_mlir.compile(Function(recurrent), (x,), target=small_gpu, dynamic_shapes=shapes)
    assert "copy" not in computed(compiled)
    for given in [x, *([drawn(3, dtype)] if batch else [])]:
        wanted, exact = recurrent(given), recurrent(given.double())
        for found, own, right in zip(Simulation(compiled, seed=1)(given), wanted, exact, strict=True):
            off = (own.double() - right).abs().max()  # torch rounds as often
            assert (torch.as_tensor(found).double() - right).abs().max() <= 4 * off + 2e-5


def test_parts_of_several_widths(small_gpu):
    """They are taken of the sum of a product and of what is given."""

    def parts(x, y, w):
        a, b, c = (x @ w + y).split([24, 8, 32], -1)
        return a.relu(), b.exp() - c[:, ::4], c * 2

    args = torch.randn(70, 48), torch.randn(70, 64), torch.randn(48, 64)
    compiled = kitsune_mlir.compile(Function(parts), args, target=small_gpu)
    for found, wanted in zip(Simulation(compiled, seed=1)(*args), parts(*args), strict=True):
        torch.testing.assert_close(torch.as_tensor(found), wanted, rtol=1e-4, atol=1e-4)
