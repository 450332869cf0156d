"""Running sums, products, extrema: one kernel of lines, or one for each four times as many elements; none of one
thread."""

import pytest
import torch
from functions import Function

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

NAN, INF = float("nan"), float("inf")
ROWS = torch.tensor([[1, 3, -2, NAN, 5, 1, 0], [INF, 1, -INF, 2, 2, 3, 1], [-1, -1, 4, 4, 0, -0.0, 7]])
SCANS = {
    "sums of rows": (lambda x: x.cumsum(-1), ROWS),
    "sums of columns": (lambda x: x.cumsum(0), torch.randn(37, 20)),
    "sums of one dimension": (lambda x: x.cumsum(0), torch.randn(300)),
    "sums of 16 bits": (lambda x: x.cumsum(1), torch.randn(3, 65, 4).bfloat16()),
    "how many so far": (lambda x: (x > 0).cumsum(1), torch.randn(5, 17)),
    "sums in another type": (lambda x: x.cumsum(1, dtype=torch.int32), torch.arange(40).view(2, 20)),
    "sums of longer lines": (lambda x: x.cumsum(1), torch.randn(2, 300)),
    "products": (lambda x: x.cumprod(1), torch.randn(9, 33)),
    "products of whole numbers": (lambda x: x.cumprod(0), torch.tensor([1, -2, 3, 1, 2])),
    "maxima": (lambda x: x.cummax(1), ROWS),
    "minima": (lambda x: x.cummin(1), ROWS),
    "maxima of whole numbers": (lambda x: x.cummax(0), torch.tensor([[-(2**63)], [-5], [-5], [2], [1]])),
    "logarithms of sums": (lambda x: x.logcumsumexp(1), ROWS),
}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("name", SCANS)
def test_on_both_targets(name, small_gpu):
    function, x = SCANS[name]
    wanted = function(x)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for target in ("cpu", small_gpu):
        compiled = kitsune_mlir.compile(Function(function), (x,), target=target)
        found = compiled(x) if target == "cpu" else Simulation(compiled)(x)
        for a, b in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
            exact = {} if a.dtype != torch.bfloat16 else {"rtol": 1e-2, "atol": 1e-2}
            torch.testing.assert_close(torch.as_tensor(a), b, equal_nan=True, **exact)
    assert not [launch for launch in compiled.plan["launches"] if launch["computes"] == "serial"]


@pytest.mark.usefixtures("unassembled")
def test_zeros_before_one_dimension(small_gpu):
    """What a kernel reads is moved along the only dimension that there is."""
    x = torch.randn(300)
    compiled = kitsune_mlir.compile(Function(lambda x: torch.nn.functional.pad(x, (5, 0)) * 2), (x,), target=small_gpu)
    torch.testing.assert_close(Simulation(compiled)(x), torch.nn.functional.pad(x, (5, 0)) * 2)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize(("shape", "dim", "scans"), [((64, 500), 1, 1), ((2, 60000), 1, 2), ((40, 300, 9), 1, 1)])
def test_which_are_of_lines(shape, dim, scans):
    """A warp has a line, or a lane; few, long ones are cut into pieces."""
    torch.manual_seed(0)
    x = torch.randn(shape)
    compiled = kitsune_mlir.compile(Function(lambda x: x.cumsum(dim)), (x,), target="sm_90a")
    computes = " ".join(launch["computes"] for launch in compiled.plan["launches"])
    assert computes.count("scan") == scans and "windows" not in computes
    torch.testing.assert_close(torch.as_tensor(Simulation(compiled)(x)), x.cumsum(dim), rtol=0, atol=2e-4)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize(
    ("shape", "dim", "is_open"),
    [((64, 300), 1, False), ((4, 100, 9), 1, False), ((3, 70), 1, True), ((2, 60000), 1, False)],
)
def test_running_sums_of_exponentials(shape, dim, is_open):
    """A scan of its own, over lines or pieces of them, without overflow, of open sizes too."""
    torch.manual_seed(0)
    x = torch.randn(shape) * torch.linspace(-200, 300, shape[-1])
    x[0, :5], x[1, 3], x[1, 7] = -INF, INF, NAN
    shapes = (({dim: torch.export.Dim("n", min=2)},),) if is_open else None
    for target in ("cpu", "sm_90a"):
        compiled = kitsune_mlir.compile(
            Function(lambda x: x.logcumsumexp(dim)), (x,), target=target, dynamic_shapes=shapes
        )
        found = compiled(x) if target == "cpu" else Simulation(compiled)(x)
        torch.testing.assert_close(torch.as_tensor(found), x.logcumsumexp(dim), equal_nan=True, rtol=1e-6, atol=1e-5)
    computes = " ".join(launch["computes"] for launch in compiled.plan["launches"])
    assert computes.count("scan") == 1 + (shape[dim] > 10000) and "windows" not in computes


def test_long_sums_on_a_cpu():
    """Their roundings are no larger than torch's."""
    x = torch.rand(2, 1500)
    compiled = kitsune_mlir.compile(Function(lambda x: x.cumsum(1)), (x,), target="cpu")
    torch.testing.assert_close(compiled(x).double(), x.double().cumsum(1), rtol=2e-7, atol=0)
