"""Elementwise operators whose results others read, too, are one kernel with a reader of theirs."""

import pytest
import torch
from functions import Function
from torch import nn

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation


def cell(f, i, c, o):
    new = torch.sigmoid(f) * c + torch.tanh(i)
    return torch.sigmoid(o) * torch.tanh(new), new


def behind(x, y):
    """The reader of the first sum needs what comes behind it."""
    first = x + y
    turned = first.flip(0)
    return torch.relu(first) * turned, first


def before(x, y):
    """Another reads the first sum before the one that could be joined is there."""
    first = x * y
    rows = first.sum(1, keepdim=True)
    return first * rows, first.exp()


def three(x, y):
    a = x * y
    b = torch.tanh(a) + a
    return a, b, b * a


def slices(x, y):
    """A view that stands behind the first operator is moved in front of it."""
    first = x[:, :16].sigmoid() + y
    return first, first * x[:, 16:].tanh()


def recurrence(x, y):
    """Steps that are elementwise, and read parts of tensors, are one kernel."""
    state, found = x.new_zeros(x.shape[0]), []
    for step in range(12):
        largest = torch.maximum(state, x[:, step])
        state = torch.exp(state - largest) * y[:, step] + largest
        found.append(state / (1 + largest.abs()))
    return *found, state


X, Y = torch.randn(33, 40), torch.randn(33, 40)
CASES = {
    "cell": (cell, tuple(torch.randn(5, 24) for _ in range(4)), 1),
    "cell of 16 bits": (cell, tuple(torch.randn(3, 24).bfloat16() for _ in range(4)), 1),
    "behind": (behind, (X, Y), 2),
    "before": (before, (X, Y), 3),
    "three": (three, (X, Y), 1),
    "odd sizes": (three, (X[:, :37].contiguous(), Y[:, :37].contiguous()), 1),
    "recurrence": (recurrence, (X, Y), 1),
    "slices": (slices, (torch.randn(7, 32), torch.randn(7, 16)), 1),
}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("name", CASES)
def test_kernels(name, small_gpu):
    function, args, most = CASES[name]
    compiled = kitsune_mlir.compile(Function(function), args, target=small_gpu)
    assert len(compiled.plan["launches"]) <= most
    exact = {} if args[0].dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
    for found, wanted in zip(Simulation(compiled)(*args), function(*args), strict=True):
        torch.testing.assert_close(torch.as_tensor(found), wanted, **exact)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("name", ["cell", "three", "recurrence", "slices"])
def test_an_open_number_of_rows(name, small_gpu):
    function, args, most = CASES[name]
    rows = torch.export.Dim("rows", max=1000)
    shapes = {"args": ({0: rows},) * len(args)}
    compiled = kitsune_mlir.compile(Function(function), args, target=small_gpu, dynamic_shapes=shapes)
    assert len(compiled.plan["launches"]) <= most
    for count in (1, len(args[0]) - 1):
        fewer = [x[:count] for x in args]
        for found, wanted in zip(Simulation(compiled)(*fewer), function(*fewer), strict=True):
            torch.testing.assert_close(torch.as_tensor(found), wanted)


@pytest.mark.usefixtures("unassembled")
def test_a_layer_of_cells(small_gpu):
    torch.manual_seed(0)
    model, x = nn.LSTM(16, 24, batch_first=True).eval(), torch.randn(3, 4, 16)
    compiled = kitsune_mlir.compile(Function(lambda x: model(x)[0]), (x,), target=small_gpu)
    with torch.no_grad():
        torch.testing.assert_close(torch.as_tensor(Simulation(compiled)(x)), model(x)[0], rtol=1e-4, atol=1e-5)


class Joined(nn.Module):
    """Concatenations that have parts in common, or begin with the same ones."""

    def forward(self, x, y, z):
        a, b = x + y, x * z
        of_results = [torch.cat(parts, 1) for parts in ((a, b, y), (a, b, z), (y, a, a))]
        return *of_results, *(torch.cat(parts, 1) for parts in ((x, y, z, x), (x, y, z, y), (x, y)))


@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
def test_parts_of_several(target):
    torch.manual_seed(0)
    args = tuple(torch.randn(37, 24) for _ in range(3))
    compiled = kitsune_mlir.compile(Joined(), args, target=target)
    found = (compiled if target == "cpu" else Simulation(compiled))(*args)
    for a, b in zip(found, Joined()(*args), strict=True):
        assert torch.equal(a, b)
