"""Running sums along a dimension that is open until the call, in the simulator of GPUs: a warp a line, a lane, or a
block, where lines are few and long."""

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


LONG = {  # of few lines: a function, and how wrong it may be
    "sums": (lambda x: x.cumsum(-1), 1e-3),
    "integers": (lambda x: (x > 0).cumsum(-1), 0),
    "exponentials": (lambda x: x.logcumsumexp(-1), 1e-5),
    "f64": (lambda x: x.double().cumsum(-1), 1e-9),
    "what stands before": (lambda x: (x.softmax(-1).cumsum(-1) < 0.5).sum(-1), 0),
}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("name", LONG)
def test_long_lines_have_a_block_each(name):
    function, bound = LONG[name]
    torch.manual_seed(0)
    x = torch.randn(3, 4500)
    lines = {0: torch.export.Dim("lines", min=2, max=4096)}
    compiled = kitsune_mlir.compile(Function(function), (x,), target="sm_90a", dynamic_shapes=((lines,),))
    (scan,) = (launch for launch in compiled.plan["launches"] if launch["kernel"] == "scan_0")
    assert scan["predicted_us"] < 12  # 18 and more, with a warp each
    for count in (3, 2, 5):
        x = torch.randn(count, 4500)
        found, wanted = torch.as_tensor(Simulation(compiled, seed=1)(x)), function(x.double())
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
