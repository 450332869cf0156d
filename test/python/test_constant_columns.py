"""Layers of operands of which some columns hold one number everywhere (passes/constant_columns.py)."""

import copy

import pytest
import torch
from torch import nn

import kitsune_mlir


class Times(nn.Module):
    """A network that is asked at several times, which stand behind, between and in front of what it is asked of."""

    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Linear(width + 3, 16), nn.Linear(width, 8, bias=False)

    def forward(self, x):
        def at(time):
            return torch.full_like(x[..., :1], time)

        early = self.first(torch.cat([at(0.25), x, at(0.5), at(-2.0)], -1))
        return early, self.second(torch.cat([x[..., :3], at(1.5), x[..., 4:]], -1))


@pytest.mark.parametrize("shape", [(6, 12), (2, 3, 12)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_times(shape, dtype):
    torch.manual_seed(0)
    model, x = Times(shape[-1]).to(dtype).eval(), torch.randn(shape).to(dtype)
    batch = torch.export.Dim("batch", min=2)
    compiled = kitsune_mlir.compile(model, (x,), dynamic_shapes=({0: batch},))
    assert "tensor<16x12x" in compiled.mlir("prepare-linalg")
    x = torch.randn(5, *shape[1:]).to(dtype)
    for found, wanted in zip(compiled(x), copy.deepcopy(model).double()(x.double()), strict=True):
        close = {torch.float32: 1e-5, torch.bfloat16: 1e-2}[dtype]
        torch.testing.assert_close(torch.as_tensor(found).double(), wanted, rtol=close, atol=close)
