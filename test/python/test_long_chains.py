"""Hundreds of elementwise operators in a row: behind a product, in front of one, and by themselves."""

import pytest
import torch
from torch import nn

import kitsune_mlir
from kitsune_mlir import deep_stack
from kitsune_mlir.codegen import fused_loops
from kitsune_mlir.passes import shared_elements
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")
MANY = 260


class Chain(nn.Module):
    """y = f(f(f(x))), between as many products as there are."""

    def __init__(self, before, behind, count=MANY):
        super().__init__()
        self.first = nn.Linear(16, 16) if before else nn.Identity()
        self.last = nn.Linear(16, 16) if behind else nn.Identity()
        self.count = count

    def forward(self, x):
        y = self.first(x)
        for i in range(self.count):
            y = y * 0.99 + 0.01 if i % 3 else y - 0.3 * x
        return self.last(y)


@pytest.mark.parametrize("before, behind", [(True, False), (False, True), (True, True), (False, False)])
def test_cpu(before, behind):
    model, x = Chain(before, behind), torch.randn(5, 16)
    compiled = kitsune_mlir.compile(model, (x,))
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("before, behind", [(True, False), (False, False)])
def test_gpu(before, behind, monkeypatch):
    """Loops end where they are long: here where they have a fraction of what they may have."""
    monkeypatch.setattr(fused_loops, "MOST_FUSED", 150)
    monkeypatch.setattr(shared_elements, "MOST_JOINED", 200)
    model, x = Chain(before, behind), torch.randn(5, 16)
    compiled = kitsune_mlir.compile(model, (x,), target="sm_90a")
    loops = sum(launch["computes"].count("elementwise") for launch in compiled.plan["launches"])
    assert before or loops > 1
    torch.testing.assert_close(Simulation(compiled)(x), model(x), rtol=1e-4, atol=1e-5)


def test_residual_layers_stay_together():
    """Operators in a row are those without a product between: layers of a network are as many as it has."""

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(120))

        def forward(self, x):
            for layer in self.layers:
                x = x + layer(x)
            return x

    compiled = kitsune_mlir.compile(Residual(), (torch.randn(256, 16),), target="cpu")
    assert not any("in a row" in one["reason"] for one in compiled.plan["declined"])


def test_room():
    def count(n):
        return n and 1 + sum(map(count, [n - 1]))

    with pytest.raises(RecursionError):
        deep_stack.with_room(10, lambda: count(5000))
    assert deep_stack.with_room(5000, lambda: count(5000)) == 5000
    with pytest.raises(ZeroDivisionError):
        deep_stack.with_room(5000, lambda: 1 // 0)
