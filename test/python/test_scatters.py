"""Writes by index in the forms that torch has for them: on a CPU and in the GPU simulator."""

import pytest
import torch
from decomposed_functions import TARGETS, results

X = torch.arange(24.0).view(4, 6) - 7
PLACES = torch.tensor([[0, 5], [3, 1], [2, 4], [5, 0]])
VALUES = torch.tensor([[1.5, -2], [3, 4], [0.5, 6], [7, 8]])


def changed(x, function):
    x = x.clone()
    function(x)
    return x


FUNCTIONS = {
    "the last dimension": lambda x, i, v: torch.zeros_like(x).scatter(-1, i, v),
    "the last but one": lambda x, i, v: x.scatter(-2, i % 4, v),
    "a number": lambda x, i, v: x.scatter(-1, i, 2.5),
    "truth": lambda x, i, v: (x > 0).scatter(-1, i, True),
    "a sum": lambda x, i, v: x.scatter_add(-1, i, v),
    "the largest": lambda x, i, v: x.scatter_reduce(-1, i, v, "amax"),
    "a mean of others": lambda x, i, v: x.scatter_reduce(-1, i, v, "mean", include_self=False),
    "reduce=add": lambda x, i, v: x.scatter(1, i, v, reduce="add"),
    "reduce=multiply": lambda x, i, v: x.scatter(-1, i, 3, reduce="multiply"),
    "put": lambda x, i, v: x.put(i * 4, v),
    "put, summed": lambda x, i, v: x.put(i, v, accumulate=True),
    "fill_diagonal_": lambda x, i, v: changed(x, lambda y: y.fill_diagonal_(3)),
    "a diagonal above": lambda x, i, v: torch.diagonal_scatter(x, v[:, 0], 2),
    "a diagonal below": lambda x, i, v: torch.diagonal_scatter(x, v[:3, 1], -1),
    "a batch's diagonals": lambda x, i, v: changed(
        torch.stack([x, -x]), lambda y: y.diagonal(dim1=-2, dim2=-1).add_(1)
    ),
    "diagonals of outer dimensions": lambda x, i, v: changed(
        torch.stack([x, -x]), lambda y: y.diagonal(dim1=2, dim2=0).mul_(2)
    ),
}


@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_scatters(name, target):
    function = FUNCTIONS[name]
    found, wanted = results(function, X, PLACES, VALUES, target=target)[0], function(X, PLACES, VALUES)
    assert found.dtype == wanted.dtype
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("reduce", ["amax", "amin"])
def test_numbers_that_are_none_stay(reduce, target):
    """In the table and among updates, which many rows take several of, larger and smaller ones."""
    x, v = X.clone(), VALUES.clone()
    x[0, 1], v[1, 0] = torch.nan, torch.nan

    def function(x, i, v):
        return x.scatter_reduce(-1, i, v, reduce)

    found = results(function, x, PLACES, v, target=target)[0]
    torch.testing.assert_close(found, function(x, PLACES, v), equal_nan=True)
