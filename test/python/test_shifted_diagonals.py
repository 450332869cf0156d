"""Dynamic programs by anti-diagonals: a kernel a diagonal, which reads those before where they lie."""

import pytest
import torch
from functions import Function, computed
from torch.export import Dim
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.bench.fields_steps import SoftWarping
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")
ROWS = {0: Dim("rows", min=2, max=999)}


def warping(a, b):
    """Dynamic time warping of [n, t] and [n, t], with the least of three ways."""
    size, huge = a.shape[1], 1e6
    costs = (a.unsqueeze(2) - b.unsqueeze(1)).abs()
    before = F.pad(costs.new_zeros(a.shape[0], 1), (0, size), value=huge)
    last = torch.full_like(before, huge)
    for d in range(2, 2 * size + 1):
        first, end = max(1, d - size), min(size, d - 1)
        rows = torch.arange(first, end + 1)
        least = torch.minimum(last[:, first : end + 1], last[:, first - 1 : end])
        value = costs[:, rows - 1, d - rows - 1] + torch.minimum(least, before[:, first - 1 : end])
        before, last = last, F.pad(value, (first, size - end), value=huge)
    return last[:, size]


def check(function, shape, kernels, open_=True, target="sm_90a"):
    """Compares what a function gives of several numbers of rows; it has so many kernels."""
    args = torch.randn(shape), torch.randn(shape)
    shapes = ((ROWS, ROWS),) if open_ else None
    compiled = kitsune_mlir.compile(Function(function), args, target=target, dynamic_shapes=shapes)
    if target != "cpu":
        assert len(computed(compiled)) == kernels
    for count in (2, 5) if open_ else (shape[0],):
        x = torch.randn(count, *shape[1:]), torch.randn(count, *shape[1:])
        found = (compiled if target == "cpu" else Simulation(compiled, seed=1))(*x)
        torch.testing.assert_close(torch.as_tensor(found), function(*x))


@pytest.mark.parametrize("open_", [True, False], ids=["open", "known"])
@pytest.mark.parametrize("function", [SoftWarping(), warping], ids=["soft", "least"])
@pytest.mark.parametrize("length, kernels", [(9, 11), (4, 1)])
def test_a_diagonal_is_a_kernel(length, kernels, function, open_):
    """Where a thread has no room for all of them: it has for the last ones."""
    check(function, (8, length), kernels, open_)


def test_on_a_cpu():
    check(SoftWarping(), (8, 4), 0, target="cpu")


def test_what_is_stacked_is_reduced_in_place():
    """No tensor of all ways is written."""

    def ways(x, y):
        stacked = torch.stack([x, y, x * y, x.abs()], -1)
        return (stacked.softmax(-1) * stacked).sum(-1) + stacked.amax(-1)

    check(ways, (8, 20), 1)


def test_slices_of_what_is_padded():
    """In two dimensions, beyond what there is, and beside what else reads it."""

    def around(x, y):
        padded = F.pad(x, (2, 1, 1, 2), value=3.0)
        return padded[:, :3, 2:] * padded[:, 1:4, :-2] + padded[:, 3:, 1:-1] + y[:, :3], padded.sum((1, 2))

    args = torch.randn(8, 3, 5), torch.randn(8, 3, 6)
    compiled = kitsune_mlir.compile(Function(around), args, target="sm_90a", dynamic_shapes=((ROWS, ROWS),))
    for count in (8, 3):
        x = torch.randn(count, 3, 5), torch.randn(count, 3, 6)
        for one, other in zip(Simulation(compiled, seed=1)(*x), around(*x), strict=True):
            torch.testing.assert_close(torch.as_tensor(one), other)
