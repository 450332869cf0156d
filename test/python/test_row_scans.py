"""Running sums in kernels of rows, with what stands before and behind them, beside torch's in f64."""

import pytest
import torch
from functions import Function, computed

import kitsune_mlir
from kitsune_mlir.mlir import walk
from kitsune_mlir.schedule import run as interpret
from kitsune_mlir.tools.gpusim import Simulation

BATCH, LENGTH = torch.export.Dim("batch", min=1), torch.export.Dim("length", min=2)


def paths(x):
    """What stands before a scan, two behind it, and reductions of all."""
    y = (0.1 * x - 0.05).cumsum(1).exp()
    return y, y.mean(1), y.amax(1), (y - x).sum(1)


def returns(x):
    """Products, and a scan of what another one gives with all of its row."""
    wealth = (1 + 0.1 * x.tanh()).cumprod(-1)
    return (wealth / wealth.sum(-1, keepdim=True)).cumsum(-1), wealth * 2


def logarithms(x):
    return torch.logcumsumexp(3 * x, -1) - x.cumsum(-1)


def whole(x):
    return (x.mul(3).int().cumsum(-1, dtype=torch.int32) * 2,)


def backwards(x):
    """Sums from each element to the end, as returns are, with a norm behind them."""
    found = (x * 0.5).flip(1).cumsum(1).flip(1)
    return (found - found.mean(1, keepdim=True)), found


def before(x):
    """Products of what stands before each element, as light that gets so far."""
    alpha = torch.sigmoid(x)
    ones = torch.ones_like(alpha[:, :1])
    through = torch.cumprod(torch.cat([ones, 1 - alpha + 1e-6], 1), 1)[:, :-1]
    other = torch.cat([torch.zeros_like(ones), alpha.cumsum(1)[:, :-1]], 1)
    return alpha * through, (alpha * through * x).sum(1), other - x


def columns(x):
    """The last of a sum, and some others, without the sum."""
    y = (x * 0.1).cumsum(1).exp()
    return y.amax(1), y[:, -1], y[:, 5], (x - x.amax(1, keepdim=True))[:, :1]


def extrema(x):
    best = torch.cummax(x + 0.5, 1).values
    return best - x, (best - torch.cummin(x, 1).values).amax(1)


def check(compiled, function, x):
    found, wanted = Simulation(compiled, seed=1)(x), function(x.double())
    found, wanted = (each if isinstance(each, tuple) else (each,) for each in (found, wanted))
    for own, exact in zip(found, wanted, strict=True):
        torch.testing.assert_close(torch.as_tensor(own).double(), exact.double(), rtol=2e-4, atol=2e-5)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("function", [paths, returns, logarithms, whole, backwards, before, columns, extrema])
@pytest.mark.parametrize("shape", [(9, 18), (70, 33), (5, 4, 252), (3, 1000), (2, 1100)])
def test_rows(function, shape, small_gpu):
    """One kernel of rows, of lengths that are no words, of one lane's and of many."""
    torch.manual_seed(0)
    x = torch.randn(*([1] * (shape[0] == 1)), *shape)
    of = (lambda y: function(y.flatten(0, -2))) if len(shape) > 2 else function
    compiled = kitsune_mlir.compile(Function(of), (x,), target=small_gpu)
    check(compiled, of, x)


@pytest.mark.usefixtures("unassembled")
def test_a_vector(small_gpu):
    """Two scans of what is read as columns alone, as that of a loss along all elements."""

    def function(x):
        return x.cumsum(0), (x.sum() - x.cumsum(0)) / (1 + x.sum() + (1 - x).cumsum(0))

    x = torch.rand(60)
    check(kitsune_mlir.compile(Function(function), (x,), target=small_gpu), function, x)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("function", [paths, returns, logarithms, backwards, before, columns, extrema])
def test_open_batches(function, small_gpu):
    example = torch.randn(40, 100)
    compiled = kitsune_mlir.compile(Function(function), (example,), target=small_gpu, dynamic_shapes=(({0: BATCH},),))
    assert len(compiled.plan["launches"]) == 1 and "scan" not in computed(compiled)
    for count in (1, 7, 333):
        check(compiled, function, torch.randn(count, 100))


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("function", [returns, backwards, before])
def test_in_the_interpreter(function, small_gpu):
    x = torch.randn(37, 100)
    compiled = kitsune_mlir.compile(Function(lambda x: function(x)[0]), (x,), target=small_gpu)
    module = compiled.module("small:schedule-rows")
    (kernel,) = walk(module, "kitsune.kernel")
    (found,) = interpret(kernel.opview, [x.numpy()], ctas=2, seed=1)
    torch.testing.assert_close(torch.from_numpy(found).double(), function(x.double())[0], rtol=2e-4, atol=2e-5)


@pytest.mark.usefixtures("unassembled")
def test_rows_that_are_not_held(small_gpu):
    """Rows of an open length, and long ones, have a scan's own kernel, and reductions beside it theirs."""

    def function(x):
        return torch.softmax(x, 1).cumsum(1) * 2

    for length, shapes in ((90, (({1: LENGTH},),)), (5000, None)):
        x = torch.randn(6, length)
        compiled = kitsune_mlir.compile(Function(function), (x,), target=small_gpu, dynamic_shapes=shapes)
        check(compiled, function, x)
        if shapes is not None:
            assert "scan" in computed(compiled)
            check(compiled, function, torch.randn(6, 391))


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("length", [40, 6000])
def test_forms_alone(length, small_gpu):
    """A scan that goes backwards, or leaves each element out, is one kernel where a warp holds a row; else it is what
    the model said."""

    def turned(x):
        return x.flip(1).cumsum(1).flip(1)

    def left_out(x):
        return torch.cat([torch.zeros_like(x[:, :1]), x.cumsum(1)[:, :-1]], 1)

    x = torch.randn(3000 if length == 40 else 20, length)
    for function in (turned, left_out):
        compiled = kitsune_mlir.compile(Function(function), (x,), target=small_gpu)
        assert (len(compiled.plan["launches"]) == 1) == (length == 40)
        check(compiled, function, x)


def test_code(gpu_of):
    """It is assembled without a spill."""
    compiled = kitsune_mlir.compile(Function(returns), (torch.randn(4096, 1000),), target=gpu_of(132))
    assert [kernel["spill_stores"] for kernel in compiled.plan["kernels"]] == [0]
