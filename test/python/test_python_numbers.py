"""Python's numbers of tensors, `int(i)` and `i.item()`, as places: windows, caches, buffers that are gone round."""

import builtins
import copy
import sys

import pytest
import torch
from functions import Function, on_both
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.errors import UnsupportedError

pytestmark = pytest.mark.usefixtures("unassembled")
READ = {"tensor": lambda i: i, "int": lambda i: int(i), "item": lambda i: i.item()}


class Ring(nn.Module):
    """A buffer whose rows are written in turn, and one that counts them."""

    def __init__(self, read):
        super().__init__()
        self.read = read
        self.register_buffer("rows", torch.zeros(2, 3, 4))
        self.register_buffer("at", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        at = self.read(self.at)
        self.rows[:, at] = x
        self.at.add_(1).remainder_(3)
        return self.rows.cumsum(1)


def attended(read):
    """A cache to which one token more is written at its place."""

    def function(keys, values, query, key, value, i):
        n = read(i)
        keys, values = keys.clone(), values.clone()
        keys[:, :, n : n + 1], values[:, :, n : n + 1] = key, value
        seen = (torch.arange(keys.shape[2]) <= n)[None]
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=seen), keys, values

    return function


FUNCTIONS = {
    "window": lambda x, n: x[:, n : n + 3] * x[:, n + 1 : n + 4],
    "narrow": lambda x, n: x.narrow(1, n, 3) + torch.narrow(x, 1, n + 1, 3),
    "pad": lambda x, n: F.pad(x[:, :4], (n, 5 - n), value=2.0),
    "pad all": lambda x, n: F.pad(x, (1, 2, n, 5 - n)),
    "roll": lambda x, n: x.roll(n, 1) - x.roll((1, n), (0, -1)),
}


@pytest.mark.parametrize("name, reading", [(name, reading) for name in FUNCTIONS for reading in READ])
def test_places(name, reading):
    check(FUNCTIONS[name], reading)


@pytest.mark.parametrize("reading", ["int", "item"])
def test_places_that_are_compared(reading):
    check(lambda x, n: x[:, n - 1] + x[:, max(n - 4, 0)], reading)


def check(function, reading):
    module = Function(lambda x, i: function(x, READ[reading](i)))
    x = torch.randn(3, 9)
    for run in on_both(module, (x, torch.tensor(2))):
        for place in (5, 3, 1):
            i = torch.tensor(place)
            torch.testing.assert_close(torch.as_tensor(run(x, i)), module(x, i))


@pytest.mark.parametrize("reading", READ)
def test_a_cache_that_is_written_at_a_place(reading):
    def drawn(batch, place):
        caches, tokens = ([torch.randn(batch, 2, n, 16) for _ in range(k)] for n, k in ((9, 2), (1, 3)))
        return *caches, *tokens, torch.tensor(place)

    module, batch = Function(attended(READ[reading])), {0: Dim("batch", min=1, max=99)}
    shapes = ((*[batch] * 5, {}),)
    for run in on_both(module, drawn(2, 3), dynamic_shapes=shapes):
        for args in (drawn(3, 0), drawn(1, 8)):
            for found, wanted in zip(run(*args), module(*args), strict=True):
                torch.testing.assert_close(torch.as_tensor(found), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reading", READ)
def test_a_buffer_that_is_gone_round(reading):
    module = Ring(READ[reading])
    for number in range(2):  # of their own buffers
        run, own = on_both(copy.deepcopy(module), (torch.randn(2, 4),))[number], copy.deepcopy(module)
        for _ in range(4):
            x = torch.randn(2, 4)
            torch.testing.assert_close(torch.as_tensor(run(x)), own(x))


def test_modules_have_pythons_functions_again():
    kitsune_mlir.compile(Function(lambda x, i: x[int(i) : int(i) + 2]), (torch.randn(9), torch.tensor(2)), target="cpu")
    assert int is builtins.int and "int" not in vars(sys.modules[__name__])
    with pytest.raises(UnsupportedError, match="depends on the data"):
        kitsune_mlir.compile(Function(lambda x, i: x[: int(i)] * 2), (torch.randn(9), torch.tensor(2)), target="cpu")
    assert "int" not in vars(sys.modules[__name__])
