"""Long rows, and rows of open length, are sorted by digits; stably, as torch sorts with NaN greatest."""

import pytest
import torch
from decomposed_functions import TARGETS
from functions import Function

import kitsune_mlir
from kitsune_mlir.frontend import digit_sorts, sorts
from kitsune_mlir.tools.gpusim import Simulation

N, B = torch.export.Dim("n", min=9, max=1 << 20), torch.export.Dim("b", min=1, max=1 << 12)


@pytest.fixture
def long_rows(monkeypatch):
    """Rows are long, that few elements show what happens to many."""
    monkeypatch.setattr(sorts, "_SHORT", 8)
    monkeypatch.setattr(sorts, "_FOUND", ())
    monkeypatch.setattr(digit_sorts, "_COMPARED", 0)


def drawn(shape, dtype):
    """Few different numbers, and those that are none."""
    x = torch.randn(shape)
    if not dtype.is_floating_point:
        return (x * (1e5 if dtype == torch.int32 else 1e13)).to(dtype) if shape[-1] % 2 else (x * 3).to(dtype)
    x = (4 * x).round() / 4
    x[..., ::7], x[..., 3], x[..., 4], x[..., 5] = torch.nan, torch.inf, -torch.inf, -0.0
    return x.to(dtype)


def same(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(torch.as_tensor(one), other, rtol=0, atol=0, equal_nan=True)


@pytest.mark.usefixtures("long_rows")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "shape, shapes, other",
    [
        ((2, 3, 17), None, None),
        ((100,), None, None),
        ((64,), {0: N}, (41,)),
        ((4, 40), {1: N}, (4, 55)),
        ((2, 3, 30), {0: B, 2: N}, (5, 3, 12)),
    ],
    ids=["rows", "one row", "open", "rows of open length", "open rows"],
)
def test_sorts(shape, shapes, other, target):
    functions = {
        torch.float32: lambda x: x.sort(dim=-1, stable=True),
        torch.float64: lambda x: x.sort(dim=-1, stable=True, descending=True),
        torch.int32: lambda x: (x.argsort(dim=-1, stable=True, descending=True),),
        torch.int64: lambda x: x.sort(dim=-1, stable=True),
        torch.bfloat16: lambda x: x.sort(dim=-1, stable=True, descending=True),
    }
    if target != "cpu":
        functions = {dtype: functions[dtype] for dtype in (torch.float64, torch.int32)}
    model = Function(lambda *xs: [part for f, x in zip(functions.values(), xs, strict=True) for part in f(x)])
    given, others = ([drawn(size, dtype) for dtype in functions] for size in (shape, other or shape))
    dims = None if shapes is None else (tuple(shapes for _ in functions),)
    compiled = kitsune_mlir.compile(model, tuple(given), target=target, dynamic_shapes=dims)
    run = compiled if target == "cpu" else Simulation(compiled, seed=1)
    same(run(*others), model(*others))


def test_what_takes_the_square_of_a_length():
    """A quantile of all numbers of a batch of any size is not one of 192,000 ranks."""
    model, shapes = Function(lambda x: torch.quantile(x.flatten(), 0.9)), (({0: B},),)
    compiled = kitsune_mlir.compile(model, (torch.randn(64, 3000),), target="sm_90a", dynamic_shapes=shapes)
    assert compiled.plan["predicted_us"] < 100


def test_short_rows_of_open_length_are_ranked():
    model = Function(lambda x: x.sort(dim=-1, stable=True)[0])
    compiled = kitsune_mlir.compile(model, (torch.randn(8, 64),), target="sm_90a", dynamic_shapes=(({1: N},),))
    assert len(compiled.plan["launches"]) < 8


def test_median_of_a_long_row():
    x = drawn((5000,), torch.float32).nan_to_num(1.0)
    for function in (torch.median, lambda x: x.sort(descending=True)[0]):
        found = kitsune_mlir.compile(Function(function), (x,), target="cpu")(x)
        torch.testing.assert_close(torch.as_tensor(found), function(x))
