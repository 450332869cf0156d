"""Operators of complex numbers that are others of these, or of their parts."""

import warnings

import pytest
import torch
from functions import Function

import kitsune_mlir
from kitsune_mlir.errors import InternalError
from kitsune_mlir.frontend import decompositions
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")


def spread(z):
    variance, mean = torch.var_mean(z, -1)
    return z.var(), z.std(0), z.var(-1, correction=0, keepdim=True), variance, mean.abs()


def products(z):
    return torch.view_as_real(z.prod(-1)), z.cumsum(0).abs(), z[:, :0].prod(1).real, z[:, :1].prod(1, keepdim=True).imag


def powers(z):
    return torch.view_as_real(2**z), (z ** z.conj()).abs(), (z.real.abs() ** z).real, z.real**2


def solved(z):
    """Solves for a vector, for columns and from the right, and inverts."""
    matrix = z[:, :3, None] * z[:, None, :3].conj() + 3 * torch.eye(3)
    found = torch.linalg.solve(matrix, z[:, :3]), torch.linalg.solve(matrix, z[:, :3, None].expand(-1, -1, 2))
    found += torch.linalg.solve(matrix, z[:, None, :3], left=False), torch.linalg.inv(matrix)
    return tuple(torch.view_as_real(one.resolve_conj()) for one in found)


def not_numbers(z):
    holes = torch.where(z.real > 0, z, float("nan"))
    return holes.isnan(), (z / 0).isinf(), torch.fft.fftshift(z, 0).real


@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
@pytest.mark.parametrize("function", [spread, products, powers, solved, not_numbers])
def test_as_torch_computes_them(function, target):
    rows = torch.export.Dim.AUTO
    model = Function(lambda re, im: function(torch.complex(re, im)))
    args = torch.randn(3, 5), torch.randn(3, 5)
    compiled = kitsune_mlir.compile(model, args, target=target, dynamic_shapes=(({0: rows}, {0: rows}),))
    args = torch.randn(4, 5), torch.randn(4, 5)
    found = (compiled if target == "cpu" else Simulation(compiled))(*args)
    for one, wanted in zip(found, model(*args), strict=True):
        torch.testing.assert_close(torch.as_tensor(one), wanted, rtol=1e-4, atol=1e-4)


def test_products_of_open_rows():
    model = Function(lambda re, im: (torch.complex(re, im) @ torch.complex(re, im).mH).abs())
    rows = torch.export.Dim.AUTO
    compiled = kitsune_mlir.compile(
        model, (torch.randn(5, 6), torch.randn(5, 6)), dynamic_shapes=(({0: rows}, {0: rows}),)
    )
    args = torch.randn(7, 6), torch.randn(7, 6)
    torch.testing.assert_close(compiled(*args), model(*args), rtol=1e-4, atol=1e-4)


def test_a_rule_that_fails_says_where(monkeypatch):
    def fails(x):
        raise TypeError("no such number")

    table = decompositions.table() | {torch.ops.aten.sinc.default: fails}
    monkeypatch.setattr("kitsune_mlir.frontend.torch_program.table", lambda: table)
    with pytest.raises(InternalError, match=r"TypeError: no such number \(at .*functions.py:"):
        kitsune_mlir.compile(Function(lambda x: torch.sinc(x)), (torch.randn(3),))


def test_open_sizes_are_asked_of_complex_numbers():
    """A graph of both passes keeps no size beside the numbers that have it."""

    def turned(x, at):
        z = torch.polar(x.exp().expand(at.shape[0], 3), at[:, None].float()).cumsum(0)
        return z.abs()

    torch._dynamo.reset()
    compiled = torch.compile(turned, backend="kitsune", dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for count in (5, 7):
            at, given = torch.randint(0, 9, (count,)), torch.randn(3)
            inputs = [given.clone().requires_grad_() for _ in range(2)]
            found, wanted = (call(x, at) for call, x in zip((compiled, turned), inputs, strict=True))
            torch.testing.assert_close(found, wanted)
            for result in (found, wanted):
                result.square().sum().backward()
            torch.testing.assert_close(inputs[0].grad, inputs[1].grad, rtol=1e-4, atol=1e-4)
