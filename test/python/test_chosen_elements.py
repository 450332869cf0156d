"""One element of each row, written into a tensor of one number, is chosen where the rows are read."""

import pytest
import torch
from functions import Function
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

INDEX, ROW = torch.tensor([[6], [0], [3], [3]]), torch.tensor([[3, 0, 2, 2, 1, 0, 3]])
FORMS = {
    "number": lambda x, v, w: x * torch.zeros(4, 7).scatter(1, INDEX, -1.0),
    "column": lambda x, v, w: x + torch.full((4, 7), 2.0).scatter(-1, INDEX, v),
    "added": lambda x, v, w: x * torch.ones(4, 7).scatter_add(1, INDEX, v),
    "row": lambda x, v, w: x * torch.zeros_like(x).scatter(0, ROW, 3.0),
    "wider source": lambda x, v, w: torch.zeros_like(x).scatter(1, INDEX, w),
    "whole numbers": lambda x, v, w: torch.zeros(4, 7, dtype=torch.int64).scatter(1, INDEX, 5),
    "fewer rows": lambda x, v, w: torch.zeros(6, 7).scatter(1, INDEX, 1.0),
    "of numbers": lambda x, v, w: x.scatter(1, INDEX, v),
}


@pytest.mark.parametrize("name", FORMS)
def test_values(name):
    torch.manual_seed(0)
    args = torch.randn(4, 7), torch.randn(4, 1), torch.randn(4, 3)
    found = kitsune_mlir.compile(Function(FORMS[name]), args, target="cpu")(*args)
    torch.testing.assert_close(found, FORMS[name](*args))


@pytest.mark.parametrize("opened", [False, True])
def test_a_loss_and_its_gradient_are_a_kernel(opened):
    """Nothing is filled for the classes' gradients, and of an open batch nothing either."""
    torch.manual_seed(0)

    def run(x, y):
        grad = torch.zeros_like(x).scatter(1, y.unsqueeze(1), -1.0 / 7)
        return grad - x.softmax(1) * grad.sum(1, keepdim=True)

    args = torch.randn(9, 40), torch.randint(0, 40, (9,))
    sizes = {"dynamic_shapes": (({0: torch.export.Dim("rows")},) * 2,)} if opened else {}
    compiled = kitsune_mlir.compile(Function(run), args, target="sm_90a", **sizes)
    assert [launch["form"] for launch in compiled.plan["launches"]] == ["scheduled rows"]
    x = args[0].clone().requires_grad_()
    F.cross_entropy(x, args[1], reduction="sum").backward()
    torch.testing.assert_close(Simulation(compiled)(*args), x.grad / 7)
