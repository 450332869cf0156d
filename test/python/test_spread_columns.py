"""Layers of columns that many rows have alike are sums of layers."""

import pytest
import torch
from functions import Function
from torch import nn
from torch.nn import functional as F

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


def _of_before(x: torch.Tensor, m: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    both = torch.cat([x, m.expand(-1, 16, -1)], 2)
    x.mul_(2)
    return F.linear(both, w)


def _of_a_copy(x: torch.Tensor, m: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    spread = m.repeat(1, 16, 1)
    m.add_(2)
    return F.linear(torch.cat([x, spread], 2), w)


@pytest.mark.parametrize("of", [_of_before, _of_a_copy])
def test_what_is_written_before_the_layer_is_not_seen(of) -> None:
    args = torch.randn(4, 16, 64), torch.randn(4, 1, 512), torch.randn(32, 576)
    wanted = of(*(x.clone() for x in args))
    compiled = kitsune_mlir.compile(Function(of), args, target="cpu")
    torch.testing.assert_close(torch.as_tensor(compiled(*args)), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "of, sizes",
    [
        (lambda x, m, w: F.linear(torch.cat([x, m.expand(-1, -1, 512)], 2), w), ((4, 16, 64), (4, 16, 1), (32, 576))),
        (lambda x, m, w: F.linear(torch.cat([x, m.repeat(2, 16, 1)], 2), w), ((4, 16, 64), (2, 1, 512), (32, 576))),
        (lambda x, m, w: F.conv1d(torch.cat([x, m.expand(16, 512)], 1), w), ((16, 64), (16, 1), (8, 16, 1))),
    ],
)
def test_what_is_spread_otherwise_stays(of, sizes) -> None:
    """Along the columns, over rows that are not one, in a layer without a batch."""
    args = [torch.randn(size) for size in sizes]
    compiled = kitsune_mlir.compile(Function(of), tuple(args), target="cpu")
    torch.testing.assert_close(torch.as_tensor(compiled(*args)), of(*args), rtol=1e-4, atol=1e-4)
