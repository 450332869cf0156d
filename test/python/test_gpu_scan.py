"""Running sums along a dimension that is open until the call, in the simulator of GPUs: a warp a line, or a lane."""

import pytest
import torch
from functions import Function

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

LENGTH = torch.export.Dim("length", min=2, max=4096)
FORMS = {  # the function, the shape of the example, and which dimension is open
    "integers": (lambda x: x.cumsum(1), (2, 37), 1),
    "lines that lie apart": (lambda x: (x * 1.0).cumsum(1), (3, 37, 5), 1),
    "lines that lie side by side": (lambda x: (x * 1.0).cumsum(1), (3, 37, 41), 1),
    "products": (lambda x: (1 + x / 100).cumprod(0), (37, 3), 0),
    "conditions": (lambda x: (x > 2).cumsum(-1), (2, 37), 1),
    "f64": (lambda x: x.double().cumsum(-1), (2, 37), 1),
    "numbers of 16 bits": (lambda x: x.bfloat16().cumsum(-1), (2, 37), 1),
}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("name", FORMS)
def test_open_lengths(name):
    function, shape, dim = FORMS[name]
    torch.manual_seed(0)
    sizes = ({dim: LENGTH},)
    compiled = kitsune_mlir.compile(
        Function(function), (torch.randint(0, 5, shape),), target="sm_90a", dynamic_shapes=(sizes,)
    )
    kernels = [launch["kernel"] for launch in compiled.plan["launches"]]
    assert "scan_0" in kernels and not any("serial" in kernel or "fill" in kernel for kernel in kernels)
    for length in (37, 2, 130, 300):
        x = torch.randint(0, 5, [length if d == dim else size for d, size in enumerate(shape)])
        found, wanted = torch.as_tensor(Simulation(compiled, seed=1)(x)), function(x)
        bound = 2e-2 if wanted.dtype == torch.bfloat16 else 1e-5
        torch.testing.assert_close(found.to(wanted.dtype), wanted, rtol=bound, atol=bound)


AROUND = {
    "lines that lie side by side": ((40, 33, 128), 1, torch.float32),
    "lines that lie apart": ((3, 37, 5), 1, torch.float32),
    "whole words": ((5000, 64), 1, torch.float64),
    "a few lines": ((3, 37, 41), 1, torch.float32),
}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("name", AROUND)
def test_what_is_elementwise_around_it(name):
    """It is computed in a scan's kernel; not what takes long, where few lines leave SMs idle."""
    shape, dim, kind = AROUND[name]
    torch.manual_seed(0)
    x = torch.randn(shape).to(kind)

    def function(x, y):
        return (2 * x + 1).cumsum(dim) * y - 0.5

    y = torch.randn(shape[:1] + (1,) * (len(shape) - 1)).to(kind)
    compiled = kitsune_mlir.compile(Function(function), (x, y), target="sm_90a")
    assert [launch["computes"] for launch in compiled.plan["launches"]] == ["scan"]
    found = torch.as_tensor(Simulation(compiled, seed=1)(x, y))
    torch.testing.assert_close(found, function(x, y), rtol=1e-5, atol=1e-4)

    def others(x, y):  # results of the scan that two read, and that the model gives
        total = (2 * x).cumsum(dim)
        return total, total.exp2().mean(), total * y

    small = x[:2].contiguous(), y[:2].contiguous()
    compiled = kitsune_mlir.compile(Function(others), small, target="sm_90a")
    for own, wanted in zip(Simulation(compiled, seed=1)(*small), others(*small), strict=True):
        torch.testing.assert_close(torch.as_tensor(own), wanted, rtol=1e-4, atol=1e-4)


LONG = {  # the function and the shape of the example; its last dimension, or the other one, is open
    "sums": (lambda x: x.cumsum(-1), (3, 5000)),
    "down columns": (lambda x: (x > 0).cumsum(0), (2000, 5)),
    "logarithms": (lambda x: x.logcumsumexp(-1), (2, 1500)),
    "the largest so far": (lambda x: x.cummax(-1).values, (2, 3000)),
    "one line": (lambda x: (1 + x / 50).cumprod(0), (9000,)),
    "f64, and the last of each line": (lambda x: x.double().cumsum(1), (2, 1500)),
}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
@pytest.mark.parametrize("name", LONG)
def test_lines_of_several_warps(name, is_open):
    """Few long lines have a block each, of several turns; other lengths, those of no whole turn too."""
    function, shape = LONG[name]
    torch.manual_seed(0)
    longest = max(range(len(shape)), key=lambda d: shape[d])
    shapes = (({longest: torch.export.Dim("length", min=2, max=100_000)},),) if is_open else None
    compiled = kitsune_mlir.compile(Function(function), (torch.randn(shape),), target="sm_90a", dynamic_shapes=shapes)
    (scan,) = [launch for launch in compiled.plan["launches"] if "scan" in launch["computes"]]
    assert scan["threads"] > 128
    for length in (shape[longest], 4100, 129, 3) if is_open else (shape[longest],):
        x = torch.randn([length if d == longest else size for d, size in enumerate(shape)])
        found, wanted = torch.as_tensor(Simulation(compiled, seed=1)(x)), function(x.double())
        torch.testing.assert_close(found.double(), wanted.double(), rtol=2e-4, atol=2e-4)
