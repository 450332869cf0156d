"""Sums over channels of what is sampled channels last, beside torch, on a CPU and in the GPU simulator."""

import pytest
import torch
from functions import Function
from torch import nn
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")


def swept(x, grid, y):
    """Agreement of samples with an image: [n, c, h, w], [n, d h, w, 2], [n, c, h, w] -> [n, d, h, w]."""
    n, c, height, width = y.shape
    found = F.grid_sample(x, grid, align_corners=True).view(n, c, -1, height, width)
    return (found * y.unsqueeze(2)).mean(1)


def differing(x, grid, y):
    """Sums of absolute differences."""
    n, c, height, width = y.shape
    found = F.grid_sample(x, grid, align_corners=False).view(n, c, -1, height, width)
    return (found - y.unsqueeze(2)).abs().sum(1)


def weighed(x, grid, weights):
    """Samples weighed by place: [n, c, h, w], [n, q, p, 2], [n, 1, q, p] -> [n, c, q]."""
    return (F.grid_sample(x, grid, align_corners=False) * weights).sum(-1)


class Turned(nn.Module):
    """A layer's results, heads first, weighed in several ways: [n, t, 24] -> [n, 3], [n, 3, t]."""

    def __init__(self):
        super().__init__()
        self.layer, self.weight = nn.Linear(24, 24), nn.Parameter(torch.randn(3, 8, 1))

    def forward(self, x):
        y = self.layer(x).view(*x.shape[:2], 3, 8).permute(0, 2, 3, 1)
        return (y * self.weight * 2 + self.weight).sum((2,)), x


def cases():
    n, c, d, h, w = 2, 5, 3, 6, 7
    images = torch.randn(n, c, 9, 8), torch.rand(n, d * h, w, 2) * 2.4 - 1.2, torch.randn(n, c, h, w)
    places = torch.randn(n, c, 9, 8), torch.rand(n, 11, 4, 2) * 2 - 1, torch.rand(n, 1, 11, 4)
    batch = {0: torch.export.Dim("batch", min=1, max=64)}
    tokens = {**batch, 1: torch.export.Dim("tokens", min=2, max=4096)}
    return {
        "swept": (Function(swept), images, None),
        "swept-open": (Function(swept), images, ((batch,) * 3,)),
        "differing": (Function(differing), images, None),
        "weighed": (Function(weighed), places, ((batch,) * 3,)),
        "turned": (Turned(), (torch.randn(3, 10, 24),), (tokens,)),
    }


@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
@pytest.mark.parametrize("name", ["swept", "swept-open", "differing", "weighed", "turned"])
def test_as_torch(name, target):
    torch.manual_seed(0)
    model, args, shapes = cases()[name]
    made = kitsune_mlir.compile(model, args, target=target, dynamic_shapes=shapes)
    given = [torch.randn(x.shape) if i != 1 else x.flip(1) * 0.9 for i, x in enumerate(args)]
    if shapes is not None:
        given = [torch.cat([x, x[:1] * 0.5]) for x in given]
    got = made(*given) if target == "cpu" else Simulation(made, seed=1)(*given)
    with torch.no_grad():
        want = model.double()(*(x.double() for x in given))
    pairs = zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]
    for a, b in pairs:
        torch.testing.assert_close(torch.as_tensor(a).double(), b, rtol=1e-5, atol=2e-5)


def test_samples_are_summed_where_they_lie():
    """No kernel but that which samples writes all samples."""
    model, args, _ = cases()["swept"]
    args = torch.randn(1, 32, 40, 48), torch.rand(1, 8 * 40, 48, 2), torch.randn(1, 32, 40, 48)
    made = kitsune_mlir.compile(model, args, target="sm_90a")
    large = 4 * 32 * 8 * 40 * 48
    assert sum(launch.get("work", {}).get("written_bytes", 0) >= large for launch in made.plan["launches"]) <= 1
