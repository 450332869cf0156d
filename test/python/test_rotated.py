"""Rotated halves of queries and keys: what reads a concatenation is computed part by part, by one kernel."""

import pytest
import torch
from functions import Function

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation


def rotated(x, cos, sin):
    """Heads side by side -> heads apart, as language models have them."""
    x = x.unflatten(-1, (4, 64)).transpose(1, 2)
    first, second = x.chunk(2, -1)
    return x * cos.unsqueeze(1) + torch.cat((-second, first), -1) * sin.unsqueeze(1)


def rotated_in_f32(x, cos, sin):
    """The same of numbers that are made f32 first, which products and slices read."""
    x = x.unflatten(-1, (4, 64)).transpose(1, 2).float()
    first, second = x.chunk(2, -1)
    return (x * cos.unsqueeze(1) + torch.cat((-second, first), -1) * sin.unsqueeze(1)).bfloat16()


def concatenated(x, y, z):
    """Three parts, of which what is computed of all takes a slice of another tensor each."""
    return torch.tanh(torch.cat((x, y * 2, x[:, :24]), 1)) + z


def short(x, y):
    """Parts of which no vectors can be made."""
    return torch.relu(torch.cat((x, y), 1))


def tensors(*shapes):
    torch.manual_seed(0)
    return tuple(torch.randn(shape, dtype=torch.bfloat16) for shape in shapes)


FORMS = {  # shapes, and how many parts one launch writes
    rotated: (((2, 35, 256), (2, 35, 64), (2, 35, 64)), 2),
    rotated_in_f32: (((2, 35, 256), (2, 35, 64), (2, 35, 64)), 2),
    concatenated: (((9, 40), (9, 16), (9, 80)), 3),
    short: (((9, 3), (9, 6)), None),
}


@pytest.mark.parametrize("function", FORMS, ids=lambda function: function.__name__)
def test_numbers(function):
    shapes, parts = FORMS[function]
    args = tensors(*shapes)
    compiled = kitsune_mlir.compile(Function(function), args, target="sm_90a")
    if parts is not None:
        assert [launch["computes"].count("elementwise") for launch in compiled.plan["launches"]] == [parts]
    found = torch.as_tensor(Simulation(compiled, seed=1)(*args))
    torch.testing.assert_close(found, function(*args), rtol=1.6e-2, atol=1e-2)


@pytest.mark.parametrize("function", [rotated, rotated_in_f32], ids=lambda function: function.__name__)
def test_tokens_that_are_open(function):
    """Strides that are open are known to be multiples of rows: threads have words, and the parts one kernel."""
    args = tensors((2, 35, 256), (2, 35, 64), (2, 35, 64))
    tokens = {1: torch.export.Dim("tokens", min=2, max=512)}
    compiled = kitsune_mlir.compile(Function(function), args, target="sm_90a", dynamic_shapes=((tokens,) * 3,))
    assert [launch["computes"].count("elementwise") for launch in compiled.plan["launches"]] == [2]
    for count in (35, 2, 70):
        args = tensors((2, count, 256), (2, count, 64), (2, count, 64))
        found = torch.as_tensor(Simulation(compiled, seed=count)(*args))
        torch.testing.assert_close(found, function(*args), rtol=1.6e-2, atol=1e-2)
