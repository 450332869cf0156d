"""Medians and quantiles of rows that are not sorted, beside torch's."""

import pytest
import torch
from functions import Function, on_both

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")
BATCH = torch.export.Dim("batch", min=1)
NAN, INF = float("nan"), float("inf")


def special(*shape):
    """Numbers of which many are equal, and some are none."""
    x = (torch.randn(shape) * 3).round() * torch.tensor(0.5)
    x[:, 1::11], x[0, 3], x[1, ::2], x[2] = -0.0, NAN, INF, NAN
    x[-1, 5::7], x[-2] = -INF, -INF
    return x


def every(x):
    """All medians, and quantiles that are numbers of the row, and some between; of few columns those of all numbers."""
    along = [torch.median(x, 1), torch.nanmedian(x, 1), torch.median(x, 0, keepdim=True)]
    found = *(part for pair in along for part in pair), x.quantile(0.31, dim=1)
    if x.shape[1] > 100:
        return found
    more = x.quantile(1.0, dim=1), x.quantile(0.6, dim=0, keepdim=True), x[:3, :9].median(), x[3:5, :9].quantile(0.4)
    return *found, *more


def check(found, x):
    """Places are of such numbers as torch's are, which has none in particular of equal ones."""
    for number, (own, wanted) in enumerate(zip(found, every(x), strict=True)):
        own = torch.as_tensor(own)
        if wanted.dtype != torch.int64:
            torch.testing.assert_close(own, wanted, rtol=1e-6, atol=1e-6, equal_nan=True)
            continue
        dim = 0 if number > 3 else 1  # of places
        places = [each if each.dim() == 2 else each.unsqueeze(dim) for each in (own, wanted)]
        values = [x.gather(dim, each) for each in places]
        torch.testing.assert_close(*values, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("shape", [(20, 18), (18, 101)])
def test_as_torchs(shape, small_gpu):
    torch.manual_seed(0)
    given = torch.randn(*shape), special(*shape)
    for run in on_both(Function(every), given[:1], small_gpu):
        for x in given:
            check(run(x), x)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.int32])
def test_other_types(kind, small_gpu):
    x = (torch.randn(19, 40) * 100).to(kind)
    for run in on_both(Function(lambda x: x.median(-1, keepdim=True)), (x,), small_gpu):
        values, places = run(x)
        assert torch.equal(torch.as_tensor(values), x.median(-1, keepdim=True).values)
        assert torch.equal(x.gather(-1, torch.as_tensor(places)), torch.as_tensor(values))


def test_what_is_robust_is_one_kernel(small_gpu):
    """A deviation of medians, and what is cut by it, of an open batch."""

    def robust(x):
        middle = x.median(1, keepdim=True).values
        spread = (x - middle).abs().median(1, keepdim=True).values
        return torch.minimum(torch.maximum(x, middle - spread), middle + spread).mean(1), spread

    shapes = (({0: BATCH},),)
    compiled = kitsune_mlir.compile(Function(robust), (torch.randn(50, 90),), target=small_gpu, dynamic_shapes=shapes)
    assert [launch["form"] for launch in compiled.plan["launches"]] == ["scheduled rows"]
    for count in (1, 23):
        x = torch.randn(count, 90)
        for own, wanted in zip(Simulation(compiled)(x), robust(x), strict=True):
            torch.testing.assert_close(torch.as_tensor(own), wanted)


@pytest.mark.parametrize("mode", ["linear", "lower", "higher", "nearest", "midpoint"])
def test_sorted_rows(mode):
    """Of few numbers, of f64, and by other rules than the one between two neighbours."""

    def quantiles(few, wide, many):
        along = [x.quantile(0.37, dim=1, interpolation=mode) for x in (few, wide, many)]
        return along if mode != "linear" else [*along, *(x.flatten().quantile(0.9) for x in (few, wide, many))]

    given = torch.randn(3, 8), torch.randn(3, 30, dtype=torch.float64), special(5, 40)
    compiled = kitsune_mlir.compile(Function(quantiles), given, target="cpu")
    for own, wanted in zip(compiled(*given), quantiles(*given), strict=True):
        torch.testing.assert_close(torch.as_tensor(own), wanted, equal_nan=True)


@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
def test_several_quantiles_and_those_of_numbers_alone(is_open):
    """Of shares in a tensor, also one that is computed, along any dimension; NaN is skipped or all there is."""

    def several(x, share):
        shares = torch.tensor([0.3, 1.0, 0.62])
        along = x.quantile(shares, dim=1), torch.nanquantile(x, shares, dim=0, keepdim=True), x.nanquantile(0.4, dim=1)
        return *along, x[:, 2:].quantile(share), x.quantile(share.view(1) * 0.5, dim=-1, interpolation="nearest")

    shapes = (({0: torch.export.Dim("rows", min=3)}, None),) if is_open else None
    x = torch.randn(5, 30)
    compiled = kitsune_mlir.compile(Function(several), (x, torch.tensor(0.5)), dynamic_shapes=shapes)
    x = torch.randn(8 if is_open else 5, 30)
    x[1, 1], x[2] = NAN, NAN
    for found, wanted in zip(compiled(x, torch.tensor(0.3)), several(x, torch.tensor(0.3)), strict=True):
        torch.testing.assert_close(torch.as_tensor(found), wanted, equal_nan=True)
