"""Where a trace takes the example's for a size that is open, or for a number that is computed of one: none is wrong."""

import math

import pytest
import torch
from functions import Function
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.errors import UnsupportedError, UserError

pytestmark = pytest.mark.usefixtures("unassembled")

AUTO = torch.export.Dim.AUTO


def _compiled(function, dim=AUTO):
    return kitsune_mlir.compile(Function(function), (torch.rand(6, 4),), target="cpu", dynamic_shapes=(({0: dim},),))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x / math.sqrt(x.shape[0]),
        lambda x: x * math.sqrt((x.shape[0] - 1) / x.shape[0]),
        lambda x: x * float(x.shape[0]) ** 0.5,
    ],
)
@pytest.mark.parametrize("dim", [AUTO, torch.export.Dim("rows")])
def test_roots_of_sizes_are_those_of_the_call(function, dim):
    compiled = _compiled(function, dim)
    for rows in (6, 1, 33):
        x = torch.rand(rows, 4)
        torch.testing.assert_close(compiled(x), function(x))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.pad(x, (1, 1), value=1 / x.shape[0]),
        lambda x: F.layer_norm(x, (4,), eps=1 / x.shape[0]),
        lambda x: F.scaled_dot_product_attention(x, x, x, scale=1 / x.shape[0]),
    ],
)
def test_numbers_that_operators_take_of_the_example_are_refused(function):
    with pytest.raises(UnsupportedError, match="as in the example; multiply a tensor by it"):
        _compiled(function)


def test_sizes_that_a_trace_fixes_are_fixed():
    """Rows of another number were written into memory that was of the example's."""
    compiled = _compiled(lambda x: x * math.log(x.shape[0]))
    x = torch.rand(6, 4)
    torch.testing.assert_close(compiled(x), x * math.log(6))
    with pytest.raises(UserError, match=r"must have the shape \[6, 4\]"):
        compiled(torch.rand(9, 4))


def test_examples_of_one_say_so():
    with pytest.raises(UnsupportedError, match="take an example of which it is 2 or more"):
        kitsune_mlir.compile(
            Function(torch.relu), (torch.rand(1, 4),), target="cpu", dynamic_shapes=(({0: torch.export.Dim("rows")},),)
        )


def test_operators_of_plain_numbers_take_those_of_open_sizes():
    """They are written out by others, which take tensors."""

    def function(x):
        part = 1 / x.shape[0]
        filled = torch.full((x.shape[0],), part)[:, None] + torch.full_like(x, part)
        clamped = x.clamp(min=part) + x.clamp(0.1, part + 0.2) + x.clamp_max(part)
        return filled + clamped, torch.add(x, x, alpha=part), F.leaky_relu(x - 0.5, part), x * 0.9 ** x.shape[0]

    compiled = _compiled(function)
    for rows in (6, 1, 33):
        x = torch.rand(rows, 4)
        torch.testing.assert_close(compiled(x), function(x))
