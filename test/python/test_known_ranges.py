"""Long sorts of numbers that the graph says are few different ones: counting sorts."""

import pytest
import torch
from torch import nn

import kitsune_mlir
from kitsune_mlir.frontend import known_ranges
from kitsune_mlir.tools.gpusim import Simulation


class Chosen(nn.Module):
    """The rows of a mixture in the order of the experts that they choose."""

    def forward(self, scores):
        return torch.sort(scores.topk(2, dim=-1)[1].reshape(-1))


class Others(nn.Module):
    """Sorts that are no such: the largest first, of numbers of which nothing is known, and of floats."""

    def forward(self, scores, numbers):
        chosen = scores.topk(2, dim=-1)[1].reshape(-1)
        return chosen.sort(descending=True)[0], numbers.sort()[0], scores.topk(2, dim=-1)[0].reshape(-1).sort()[0]


def scores(rows):
    torch.manual_seed(0)
    found = torch.randn(rows, 7)
    found[:, 3] -= 9  # which nobody chooses
    return found


@pytest.fixture
def counted(monkeypatch):
    """The sorts that are counting sorts, of 64 elements or more."""
    found, count = [], known_ranges.count
    monkeypatch.setattr(known_ranges, "_LEAST", 64)
    monkeypatch.setattr(known_ranges, "count", lambda node: found.append(node.name) or count(node))
    return found


@pytest.mark.parametrize("rows", [150, 64])
def test_rows_by_expert(rows, counted):
    x = scores(rows)
    want = torch.sort(x.topk(2, dim=-1)[1].reshape(-1), stable=True)
    found = kitsune_mlir.compile(Chosen(), (x,), target="cpu")(x)
    assert len(counted) == 1 and torch.equal(found[0], want[0]) and torch.equal(found[1], want[1])


@pytest.mark.usefixtures("unassembled")
def test_rows_by_expert_on_a_gpu(counted, gpu_of):
    x = scores(70)
    want = torch.sort(x.topk(2, dim=-1)[1].reshape(-1), stable=True)
    found = Simulation(kitsune_mlir.compile(Chosen(), (x,), target=gpu_of(4)))(x)
    assert counted and torch.equal(found[0], want[0]) and torch.equal(found[1], want[1])


def test_other_sorts_stay_what_they_are(counted):
    args = scores(40), torch.randint(0, 5, (80,))
    found = kitsune_mlir.compile(Others(), args, target="cpu")(*args)
    assert not counted
    for one, other in zip(found, Others()(*args), strict=True):
        assert torch.equal(one, other)
