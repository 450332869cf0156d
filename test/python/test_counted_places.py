"""Gathers whose places are counted along some dimensions, as x[torch.arange(n)[:, None], index]."""

import pytest
import torch
from functions import Function, computed
from torch.export import Dim

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")


def rows_of_batches(x, index):
    return x[torch.arange(x.shape[0])[:, None], index] * 2


def of_pairs(x, index):
    """Keys that queries have drawn, of what all of them have alike (Informer)."""
    every = x.unsqueeze(1).expand(-1, x.shape[1], -1, -1)
    return every[:, torch.arange(x.shape[1])[:, None], index % x.shape[1]]


def from_behind(x, index):
    return x[torch.arange(x.shape[0])[:, None] - 1, index]


@pytest.mark.parametrize("function", [rows_of_batches, of_pairs, from_behind])
@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
def test_gathers(function, is_open):
    pairs = function is of_pairs
    shapes = (({0: Dim("b", min=2)}, {} if pairs else {0: Dim("b", min=2)}),) if is_open else None
    example = torch.randn(4, 7, 5), torch.randint(0, 7, (7, 3) if pairs else (4, 3))
    compiled = kitsune_mlir.compile(Function(function), example, target="sm_90a", dynamic_shapes=shapes)
    assert computed(compiled) == ["gather"]
    calls = [example]
    if is_open:
        calls.append((torch.randn(9, 7, 5), torch.randint(-7, 7, (7, 3) if pairs else (9, 3))))
    for args in calls:
        torch.testing.assert_close(torch.as_tensor(Simulation(compiled, seed=1)(*args)), function(*args))
    cpu = kitsune_mlir.compile(Function(function), example, target="cpu", dynamic_shapes=shapes)
    torch.testing.assert_close(torch.as_tensor(cpu(*calls[-1])), function(*calls[-1]))


def test_numbers_that_are_wrong_are_reported():
    """A place that is counted needs no check, the others do."""
    example = torch.randn(4, 7, 5), torch.randint(0, 7, (4, 3))
    compiled = kitsune_mlir.compile(Function(rows_of_batches), example, target="cpu")
    with pytest.raises(Exception, match="an index is out of range"):
        compiled(example[0], torch.full((4, 3), 7))


@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
def test_the_first_rows_of_a_longer_table(is_open):
    """Places in a text."""

    def embedded(x, table):
        return x + table[torch.arange(x.shape[1])]

    example = torch.randn(2, 6, 5), torch.randn(40, 5)
    shapes = (({1: Dim("t", min=2, max=40)}, {}),) if is_open else None
    compiled = kitsune_mlir.compile(Function(embedded), example, target="sm_90a", dynamic_shapes=shapes)
    for tokens in (6, 2, 40) if is_open else (6,):
        args = torch.randn(2, tokens, 5), example[1]
        torch.testing.assert_close(torch.as_tensor(Simulation(compiled, seed=1)(*args)), embedded(*args))
