"""Products of one operand with several weights as one (passes/join_products.py): launches, and numbers in the
simulator, of attentions whose queries, keys and values are such."""

import copy

import pytest
import torch
from torch import nn

import kitsune_mlir
from kitsune_mlir import mlir
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")

WIDTH, HEAD = 96, 32
ERRORS = {torch.float32: 3e-6, torch.bfloat16: 8e-3}


class Attention(nn.Module):
    """Queries have so many heads, keys and values so many; biases and a factor by name, a norm of queries if asked."""

    def __init__(self, heads, key_heads, biases="qkv", factor=1.0, normed=False):
        super().__init__()
        self.heads = {"q": heads, "k": key_heads, "v": key_heads}
        self.layers = nn.ModuleDict(
            {name: nn.Linear(WIDTH, count * HEAD, bias=name in biases) for name, count in self.heads.items()}
        )
        self.factor, self.last = factor, nn.Linear(heads * HEAD, WIDTH)
        self.norm = nn.LayerNorm(HEAD) if normed else nn.Identity()

    def forward(self, x):
        q, k, v = (layer(x) for layer in self.layers.values())
        if self.factor != 1:
            q = q * self.factor
        q, k, v = (y.unflatten(-1, (-1, HEAD)) for y in (q, k, v))
        q, k, v = (y.transpose(1, 2) for y in (self.norm(q), k, v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.last(y.transpose(1, 2).flatten(2)) + x


class Apart(nn.Module):
    """Two layers of one operand, and what becomes of them."""

    def __init__(self, function):
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(nn.Linear(WIDTH, 128) for _ in range(2))

    def forward(self, x):
        return self.function(*(layer(x) for layer in self.layers))


def compiled(model, x, target, open_=False):
    shapes = {"x": {0: torch.export.Dim("batch")}} if open_ else None
    return kitsune_mlir.compile(model.eval(), (x,), target=target, dynamic_shapes=shapes)


def products(found, before):
    return len(list(mlir.walk(found.module(f"sm_90a:{before}"), "linalg.matmul")))


@pytest.mark.parametrize(
    ("dtype", "attention", "open_"),
    [
        (torch.bfloat16, Attention(4, 4), False),
        (torch.bfloat16, Attention(4, 2, "qv", 0.3), True),
        (torch.float32, Attention(4, 1, "qk", 0.5), False),
        (torch.float32, Attention(2, 2, ""), True),
    ],
)
def test_queries_keys_and_values_are_one_product(dtype, attention, open_):
    torch.manual_seed(0)
    model, x = attention.to(dtype).requires_grad_(False), torch.randn(3, 40, WIDTH, dtype=dtype)
    found = compiled(model, x, "sm_90a", open_)
    assert (products(found, "schedule-chains"), products(found, "join-products")) == (4, 2)
    simulation, exact = Simulation(found, seed=1), copy.deepcopy(model).double()
    x = x[:2] if open_ else x
    want = exact(x.double())
    got = torch.as_tensor(simulation(x)).double()
    assert (got - want).norm() <= ERRORS[dtype] * want.norm()


def test_queries_that_go_on_in_f32_stay_apart():
    """Their norm reads them as the factor left them, not rounded: no product has columns of two types."""
    model, x = Attention(4, 2, "", 0.3, normed=True).bfloat16(), torch.randn(3, 40, WIDTH).bfloat16()
    found = compiled(model, x, "sm_90a")
    assert (products(found, "schedule-chains"), products(found, "join-products")) == (4, 3)


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: a.sigmoid() * b,
        lambda a, b: (a, b),
        lambda a, b: torch.cat([a.relu(), b.relu()], -1).unflatten(-1, (4, 64)).transpose(1, 2),
        lambda a, b: (a.relu().transpose(1, 2), b.tanh().transpose(1, 2)),
    ],
    ids=["they meet", "they are returned", "they are beside each other", "they do different things"],
)
def test_layers_that_stay_apart(function):
    model, x = Apart(function).bfloat16(), torch.randn(3, 40, WIDTH).bfloat16()
    found = compiled(model, x, "sm_90a")
    assert products(found, "schedule-attention") == products(found, "schedule-chains")
