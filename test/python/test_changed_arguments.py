"""What a model changes in place, written where it is on a GPU (passes/changed_arguments.py)."""

import copy

import pytest
import torch
from functions import Function
from torch import nn

import kitsune_mlir
from kitsune_mlir.errors import UserError
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")


class Cached(nn.Module):
    """A step of attention against keys and values that it writes into a cache of so many tokens."""

    def __init__(self, width=64, heads=2, length=24):
        super().__init__()
        self.heads, self.inputs = heads, nn.Linear(width, 3 * width)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.randn(2, heads, length, width // heads))

    def forward(self, x, place):
        parts = self.inputs(x).chunk(3, -1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        self.keys.index_copy_(2, place, key)
        self.values.index_copy_(2, place, value)
        mask = torch.arange(self.keys.shape[2])[None] <= place[:, None]
        return nn.functional.scaled_dot_product_attention(query, self.keys, self.values, attn_mask=mask)


def added(table, places, x):
    """The table is read once it is changed."""
    table.index_add_(0, places, x)
    return table.sum(0)


def assigned(table, places, x):
    table[3:7] = x[:4]
    return table * 2


def read_later(table, places, x):
    """Both contents are wanted."""
    old = table * 1.0
    before = table.clone()
    table.index_add_(0, places, x)
    return table - before, old


def test_a_cache_is_written_where_it_is():
    torch.manual_seed(0)
    model = Cached().eval().requires_grad_(False)
    exact, args = copy.deepcopy(model), (torch.randn(2, 1, 64), torch.tensor([4]))
    found = kitsune_mlir.compile(model, args, target="sm_90a")
    assert "memref.copy" not in found.mlir("sm_90a:convert-linalg-to-gpu")
    simulation = Simulation(found, seed=1)
    for place in range(4, 7):
        args = torch.randn(2, 1, 64), torch.tensor([place])
        torch.testing.assert_close(torch.as_tensor(simulation(*args)), exact(*args))
    named = {argument.spec.name: argument.value for argument in found.interface.arguments}
    torch.testing.assert_close(torch.as_tensor(named["keys"]), exact.keys)


@pytest.mark.parametrize("function", [added, assigned, read_later])
def test_an_input_has_its_new_contents(function):
    torch.manual_seed(0)
    table, places, x = torch.randn(40, 16), torch.tensor([3, 0, 39, 3, 7]), torch.randn(5, 16)
    found = kitsune_mlir.compile(Function(function), (table.clone(), places, x), target="sm_90a")
    simulation = Simulation(found, seed=1)
    for _ in range(2):
        ours, plain = table.clone(), table.clone()
        results, wanted = simulation(ours, places, x), function(plain, places, x)
        for a, b in zip(*([y] if isinstance(y, torch.Tensor) else y for y in (results, wanted)), strict=True):
            torch.testing.assert_close(torch.as_tensor(a), b)
        torch.testing.assert_close(ours, plain)


class Averaged(nn.Module):
    """Averages that are kept through `data`, as of codes that are learnt so, and one that is given anew."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(5))
        self.scale = nn.Parameter(torch.ones(5))

    def forward(self, x):
        self.mean.data.mul_(0.9).add_(x.mean(0), alpha=0.1)
        self.scale.data = self.scale.clamp(max=0.5) * 2
        return x.data * self.scale + self.mean


def test_what_is_changed_by_its_data():
    model, x = Averaged(), torch.randn(3, 5)
    compiled = kitsune_mlir.compile(copy.deepcopy(model), (x,))
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(x), model(x))
    exported = torch.export.export(Averaged(), (x,), strict=True)  # torch's own has constants of no data there
    with pytest.raises(UserError, match="writes to a tensor that is no buffer"):
        kitsune_mlir.compile(exported)
