"""Sizes that are computed of open ones, as behind strides and pools, are those of tensors like any other."""

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")


class Attention(nn.Module):
    """Heads of 32 numbers, as people write them."""

    def __init__(self, width):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, width // 32, 32).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(-2, -1) / 32**0.5, -1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, tokens, width))


class Speech(nn.Module):
    def __init__(self, stride):
        super().__init__()
        self.conv, self.attention = nn.Conv1d(16, 64, 3, stride, 1), Attention(64)

    def forward(self, x):
        return self.attention(F.gelu(self.conv(x)).permute(0, 2, 1))


class Patches(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.attention = nn.Conv2d(3, 64, 4, 4), Attention(64)

    def forward(self, x):
        return self.attention(self.conv(x).flatten(2).transpose(1, 2))


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention(64)

    def forward(self, x):
        return self.attention(F.avg_pool1d(x.transpose(1, 2), 2).transpose(1, 2))


B, T = Dim("b", min=1, max=64), Dim("t", min=8, max=999)
CASES = {
    "strides of 2": (Speech(2), lambda b, t: (b, 16, t), {0: B, 2: T}),
    "strides of 3": (Speech(3), lambda b, t: (b, 16, t), {0: B, 2: T}),
    "patches": (Patches(), lambda b, t: (b, 3, 8, t), {0: B, 3: 4 * Dim("u", min=2, max=99)}),
    "pooled": (Pooled(), lambda b, t: (b, t, 64), {0: B, 1: T}),
}


@pytest.mark.parametrize("name", CASES)
def test_attention_behind(name, always):
    """One kernel of attention has all lengths, but where tokens are rows of patches."""
    torch.manual_seed(0)
    model, shape, open_ = CASES[name]
    compiled = kitsune_mlir.compile(
        model.eval(), (torch.randn(shape(2, 120)),), target="sm_90a", dynamic_shapes=(open_,)
    )
    if name != "patches":
        assert any(launch["kernel"].startswith("attention") for launch in compiled.plan["launches"])
    for size in ((1, 8), (3, 52), (2, 76)) if name == "patches" else ((1, 9), (3, 51), (2, 76)):
        x = torch.randn(shape(*size))
        with torch.no_grad():
            torch.testing.assert_close(torch.as_tensor(Simulation(compiled, seed=1)(x)), model(x), atol=2e-5, rtol=1e-4)
