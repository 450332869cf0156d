"""Bits of numbers, their neighbours, exponents and fractions; divisors of whole numbers; derivatives of digamma."""

import math

import pytest
import torch
from functions import Function

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

X = [0.0, -0.0, 1.0, -1.0, 1.5, -3.0, math.inf, -math.inf, math.nan, 1e-40, -1e-45, 3e38, 0.1, 0.0, 2.0**-126, -5.0]
Y = [1.0, -1.0, 2.0, -2.0, 0.0, math.inf, 0.0, 0.0, 1.0, 1.0, 1.0, math.inf, math.nan, -0.0, 0.0, -5.0]


def equal(function, *args, target="cpu"):
    compiled = kitsune_mlir.compile(Function(function), args, target=target)
    found = compiled(*args) if target == "cpu" else Simulation(compiled)(*args)
    for ours, wanted in zip(*map(torch.utils._pytree.tree_leaves, (found, function(*args))), strict=True):
        torch.testing.assert_close(ours, wanted, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers(dtype):
    x, y = torch.tensor(X, dtype=dtype), torch.tensor(Y, dtype=dtype)
    whole = {torch.float32: torch.int32, torch.float64: torch.int64}[dtype]
    equal(torch.nextafter, x, y)
    equal(lambda x: tuple(torch.frexp(x)), x)
    equal(lambda x: (x.view(whole), (x.view(whole) + 1).view(dtype)), x)


def test_numbers_of_16_bits():
    x = torch.randn(5, 6).bfloat16()
    equal(lambda x: (*torch.frexp(x), x.view(torch.int16) ^ 3), x)


@pytest.mark.usefixtures("unassembled")
def test_on_a_gpu():
    x, y = torch.randn(40), torch.randn(40)
    equal(lambda x, y: (torch.nextafter(x, y), *torch.frexp(x), x.view(torch.int32) >> 23), x, y, target="sm_90a")


def test_divisors():
    x = torch.tensor([0, 0, 12, 12, 28657, -28657, 17711, -32767], dtype=torch.int16)
    y = torch.tensor([0, 7, -18, 0, 17711, 28657, -6, 32767], dtype=torch.int16)
    equal(lambda x, y: (torch.gcd(x, y), torch.lcm(x, y)), x, y)


def test_derivatives_of_digamma():
    x = torch.cat([torch.rand(50) * 20, torch.randn(20) * 3 - 3, torch.tensor([1e-3, 100.0, 1e4, 0.5, 1.0])])
    found = kitsune_mlir.compile(Function(lambda x: torch.polygamma(1, x)), (x,), target="cpu")(x)
    torch.testing.assert_close(found.double(), torch.polygamma(1, x.double()), rtol=1e-6, atol=0)
