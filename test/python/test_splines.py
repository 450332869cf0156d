"""Splines by the recursion of their bases: each degree is made of neighbours of the one before, in one kernel."""

from __future__ import annotations

import pytest
import torch
from functions import Function

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

GRID = torch.linspace(-2.2, 2.2, 12)


def _bases(x: torch.Tensor, grid: torch.Tensor, degree: int = 3) -> torch.Tensor:
    x = x.unsqueeze(-1)
    found = ((x >= grid[:-1]) & (x < grid[1:])).to(x.dtype)
    for k in range(1, degree + 1):
        left = (x - grid[: -(k + 1)]) / (grid[k:-1] - grid[: -(k + 1)]) * found[..., :-1]
        right = (grid[k + 1 :] - x) / (grid[k + 1 :] - grid[1:-k]) * found[..., 1:]
        found = left + right
    return found


@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
@pytest.mark.parametrize("is_open", [False, True])
def test_splines(target: str, is_open: bool) -> None:
    x = torch.randn(5, 7)
    shapes = {"args": ({0: torch.export.Dim("rows", min=1)}, None)} if is_open else None
    compiled = kitsune_mlir.compile(Function(_bases), (x, GRID), target=target, dynamic_shapes=shapes)
    found = torch.as_tensor((compiled if target == "cpu" else Simulation(compiled, seed=1))(x, GRID))
    torch.testing.assert_close(found, _bases(x, GRID), rtol=1e-5, atol=1e-6)
    if target != "cpu":  # besides, what the grid alone says
        assert len(compiled.plan["launches"]) <= 2


def test_neighbours_of_what_takes_long_are_computed_once() -> None:
    def differences(x: torch.Tensor) -> torch.Tensor:
        y = torch.exp(torch.tanh(x) * x)
        return y[:, 1:] - y[:, :-1]

    x = torch.randn(6, 9)
    compiled = kitsune_mlir.compile(Function(differences), (x,), target="sm_90a")
    assert compiled.mlir("prepare-linalg").count("math.exp") == 1
    torch.testing.assert_close(torch.as_tensor(Simulation(compiled, seed=1)(x)), differences(x), rtol=1e-5, atol=1e-5)
