"""Pairs of points written out: coordinates of all pairs are never in memory, and sums take in what they are of."""

import pytest
import torch
from functions import Function, computed
from torch.export import Dim
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")
OPEN = ({0: Dim("n", min=2, max=999)}, {0: Dim("m", min=2, max=999)})


def check(function, width=3, kind=torch.float32, open_=True, target="sm_90a"):
    """What the kernels of a function of two sets of points are; its results are compared for several sizes."""
    shapes = (OPEN,) if open_ else None
    example = points(20, width, kind), points(40, width, kind)
    compiled = kitsune_mlir.compile(Function(function), example, target=target, dynamic_shapes=shapes)
    for sizes in [(20, 40), (2, 2), (3, 70)] if open_ else [(20, 40)]:
        x, y = (points(size, width, kind) for size in sizes)
        found, wanted = (compiled if target == "cpu" else Simulation(compiled, seed=1))(x, y), function(x, y)
        for one, other in zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]:
            torch.testing.assert_close(torch.as_tensor(one), other)
    return [] if target == "cpu" else computed(compiled)


def points(count, width, kind):
    return torch.randn(count, width).to(kind)


def apart(x, y):
    return x.unsqueeze(1) - y.unsqueeze(0)


def forces(x, y):
    away = apart(x, y)
    squares = away.square().sum(-1) + 0.1
    return (away / (squares * squares.sqrt()).unsqueeze(-1)).sum(1)


@pytest.mark.parametrize("open_", [True, False], ids=["open", "known"])
@pytest.mark.parametrize("width", [2, 3, 4])
def test_sums_over_pairs(width, open_):
    assert check(forces, width, open_=open_) == ["product", "elementwise"]


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_16_bits(kind):
    """Distances round as torch's do."""
    assert check(lambda x, y: apart(x, y).abs().sum(-1).amin(1), kind=kind) == ["reduce"]


@pytest.mark.parametrize(
    ("function", "kinds"),
    [
        (lambda x, y: (-apart(x, y).square().sum(-1)).exp().sum(1), ["product"]),
        (lambda x, y: apart(x, y).square().sum(-1).argmin(1), None),
        (lambda x, y: F.normalize(apart(x, y), dim=-1).sum(1), ["product", "elementwise"]),
        (lambda x, y: apart(x, y).softmax(-1).mean(1), ["reduce", "elementwise"]),
        (lambda x, y: (x.T.unsqueeze(2) - y.T.unsqueeze(1)).square().sum(0).amin(0), None),
        (lambda x, y: (apart(x, y).norm(dim=-1).amin(1), apart(x, y).amax(-1).sum(0)), None),
        (lambda x, y: (apart(x, y), (apart(x, y) * apart(x, y).sum(-1, True)).sum(1)), None),
    ],
    ids=["densities", "nearest", "directions", "softmax", "first dimension", "two", "asked for"],
)
def test_of_all_kinds(function, kinds):
    found = check(function)
    assert kinds is None or found == kinds


def test_on_a_cpu():
    check(forces, target="cpu")


def test_long_rows_of_known_sizes():
    """Threads that are side by side have neighbours: a coordinate of points is read by sectors."""

    def weighed(x, y):
        weights = (-apart(x, y).square().sum(-1)).softmax(-1)
        return (weights.unsqueeze(-1) * apart(x, y)).sum(1)

    example = torch.randn(1000, 3), torch.randn(2000, 3)
    compiled = kitsune_mlir.compile(Function(weighed), example, target="sm_90a")
    assert compiled.plan["predicted_us"] < 25  # 28.4 by words of neighbours, 66 of whole tensors
