"""Tensors stacked along a last dimension: one kernel computes all of a place, and stores it together."""

from __future__ import annotations

import pytest
import torch
from functions import Function

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


def _turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """The same, read again."""
    y = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    return x * torch.cat([cos, cos], -1) + y * torch.cat([sin, sin], -1)


def _polar(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """What takes long is computed once a place."""
    angle = x[..., :16] * cos
    return torch.stack((sin * angle.cos(), sin * angle.sin(), angle, angle.exp()), -1)


def _complex(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Numbers of two parts, which are computed in f32 of what is given, each where it is read."""
    z = torch.view_as_complex(x.float().unflatten(-1, (-1, 2))) * torch.complex(cos, sin)
    return torch.view_as_real(z).flatten(-2).to(x.dtype)


@pytest.mark.parametrize("of", [_rotated, _turned, _polar, _complex])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_one_kernel(of, kind: torch.dtype) -> None:
    turns = torch.float32 if of is _complex else kind
    x, cos, sin = torch.randn(3, 8, 32).to(kind), *(torch.randn(8, 16).to(turns) for _ in range(2))
    rows = {"args": ({0: torch.export.Dim("rows", min=1)}, None, None)}
    for shapes in (None, rows):
        compiled = kitsune_mlir.compile(Function(of), (x, cos, sin), target="sm_90a", dynamic_shapes=shapes)
        made = [launch["computes"] for launch in compiled.plan["launches"]]
        widened = of is _complex and kind != torch.float32 and shapes is not None  # an open tensor, for two readers
        assert made[-1] == "elementwise" and len(made) == (2 if of is _turned or widened else 1), made
        found = torch.as_tensor(Simulation(compiled, seed=1)(x, cos, sin))
        bound = 1e-5 if kind == torch.float32 else 4e-2
        torch.testing.assert_close(found.float(), of(*(t.float() for t in (x, cos, sin))), rtol=bound, atol=bound)


def test_of_three_and_of_parts_of_a_row() -> None:
    """What makes no word is put in place as ever."""
    x, y = torch.randn(5, 7), torch.randn(5, 7)
    compiled = kitsune_mlir.compile(
        Function(lambda x, y: (torch.stack((x, y, x * y), -1), torch.stack((x, y), 1))), (x, y), target="sm_90a"
    )
    found = map(torch.as_tensor, Simulation(compiled, seed=1)(x, y))
    for own, wanted in zip(found, (torch.stack((x, y, x * y), -1), torch.stack((x, y), 1)), strict=True):
        torch.testing.assert_close(own, wanted)
