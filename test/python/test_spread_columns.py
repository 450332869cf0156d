"""Layers of columns that many rows have alike are sums of layers."""

import pytest
import torch
from torch import nn

import kitsune_mlir


class Points(nn.Module):
    """What is known of all points beside each, and of each beside each other."""

    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(2 * width + 3, 24)

    def forward(self, x):
        n = x.shape[1]
        one, other = x[:, :, None].expand(-1, -1, n, -1), x[:, None].expand(-1, n, -1, -1)
        return self.layer(torch.cat([one, x[:, :, None, :3] - x[:, None, :, :3], other], -1))


class Context(nn.Module):
    """Channels beside their averages."""

    def __init__(self, conv, width):
        super().__init__()
        self.conv = conv(2 * width, 16, 1)

    def forward(self, x):
        mean = x.mean(tuple(range(2, x.dim())), keepdim=True)
        return self.conv(torch.cat([x, mean.expand_as(x)], 1)).relu()


class Repeated(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(2 * width, 8)

    def forward(self, x):
        return self.layer(torch.cat([x[:, None].repeat(1, 9, 1), x[:, None].expand(-1, 9, -1)], -1))


FORMS = {
    "pairs": (Points(160), (2, 10, 160)),
    "channels of a line": (Context(nn.Conv1d, 160), (2, 160, 12)),
    "channels of an image": (Context(nn.Conv2d, 160), (2, 160, 4, 5)),
    "all of them": (Repeated(40), (3, 40)),
    "few columns": (Points(16), (2, 10, 16)),
}


@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
@pytest.mark.parametrize("name", FORMS)
def test_results(name, is_open):
    torch.manual_seed(0)
    model, shape = FORMS[name]
    x = torch.randn(shape)
    shapes = ({0: torch.export.Dim("b")},) if is_open else None
    compiled = kitsune_mlir.compile(model, (x,), target="cpu", dynamic_shapes=shapes)
    assert ("tensor.concat" in compiled.mlir("linalg")) == (name == "few columns")
    for given in (x, torch.randn(5, *shape[1:])) if is_open else (x,):
        torch.testing.assert_close(compiled(given), model(given).detach(), rtol=1e-4, atol=1e-5)
