"""Sums of tensors that are zero outside of a slice each."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from kitsune_mlir.frontend.summed_slices import join_slices

aten = torch.ops.aten


def joined(function, *args):
    """The graph of a function, with its sums of slices joined, and the names of its operators; results stay."""
    traced = make_fx(function, tracing_mode="fake")(*args)
    join_slices(traced.graph)
    traced.graph.lint()
    traced.recompile()
    assert torch.equal(traced(*args), function(*args))
    return [node.target for node in traced.graph.nodes if node.op == "call_function"]


def inside(x, dim, start, end, size):
    shape = [*x.shape]
    shape[dim] = size
    return aten.slice_scatter(torch.zeros(shape), x, dim, start, end)


def test_parts():
    x, y, z = torch.randn(4, 2, 3), torch.randn(4, 1, 3), torch.randn(4, 5, 3)
    found = joined(lambda x, y, z: inside(z, 1, 3, 8, 8) + (inside(x, 1, 0, 2, 8) + inside(y, 1, 2, 3, 8)), x, y, z)
    assert found == [aten.cat.default]


def test_what_no_part_has_is_zero():
    x, y, whole = torch.randn(2, 3), torch.randn(1, 3), torch.randn(9, 3)
    found = joined(lambda x, y, whole: inside(x, 0, 1, 3, 9) + whole + inside(y, 0, -4, -3, 9), x, y, whole)
    assert aten.cat.default in found and aten.slice_scatter.default not in found


@pytest.mark.parametrize("start", [1, 0])
def test_parts_that_overlap_are_added(start):
    x, y = torch.randn(2, 3), torch.randn(3, 3)
    found = joined(lambda x, y: inside(x, 0, 0, 2, 5) + inside(y, 0, start, start + 3, 5), x, y)
    assert aten.cat.default not in found


def test_parts_of_other_types_stay():
    """What is written into zeros takes their type, what stands beside others need not."""
    x, y = torch.randn(2, 3), torch.randn(3, 3)

    def function(x, y):
        zeros = torch.zeros(5, 3, dtype=torch.bfloat16)
        return aten.slice_scatter(zeros, x, 0, 0, 2) + aten.slice_scatter(zeros, y, 0, 2, 5)

    assert aten.cat.default not in joined(function, x, y)


def test_places_beyond_the_ends():
    x, y, nothing = torch.randn(2, 3), torch.randn(3, 3), torch.randn(0, 3)

    def function(x, y, nothing):
        return inside(x, 0, -100, 2, 5) + inside(y, 0, -3, 100, 5) + inside(nothing, 0, -100, -90, 5)

    assert aten.cat.default in joined(function, x, y, nothing)


def test_a_sum_that_others_read_stays():
    x, y = torch.randn(2, 3), torch.randn(3, 3)

    def function(x, y):
        total = inside(x, 0, 0, 2, 5) + inside(y, 0, 2, 5, 5)
        return (total + total.relu()).reshape(-1)

    assert aten.cat.default in joined(function, x, y)


def test_parts_stand_where_views_want_them():
    """The first dimension goes in front of another, and both are one."""
    x, y = torch.randn(1, 4, 2, 6), torch.randn(1, 4, 2, 6)

    def function(x, y):
        total = inside(x, 0, 1, 2, 2) + inside(y, 0, 0, 1, 2)
        return total.permute(1, 2, 0, 3).reshape(8, 12)

    found = joined(function, x, y)
    assert found[-1] == aten.cat.default and found.count(aten.permute.default) == 2
