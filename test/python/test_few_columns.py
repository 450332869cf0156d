"""Reductions to few results beside one another, as of coordinates and colours: a warp takes all of them, its lanes
neighbouring points."""

import pytest
import torch
from functions import Function, computed
from torch.export import Dim

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")


def blended(w, x):
    return (w[..., None] * x).sum(1)


FUNCTIONS = {
    "blended": blended,
    "sum": lambda w, x: x.sum(1) + w[:, :1],
    "largest": lambda w, x: (x * w[..., None]).amax(1),
    "squares": lambda w, x: (x - x[:, :1]).square().sum(1).sqrt(),
    "product": lambda w, x: (x + w[..., None]).clamp(0.5, 1.5).prod(1),
}


def check(function, rows, points, columns, dtype=torch.float32, open_=(), sizes=(), kernels=None):
    """Compares what a function gives of weights and points, of these sizes and of others of those that are open."""

    def made(rows, points):
        x = torch.rand(rows, points), torch.rand(rows, points, columns)
        return tuple((one * 9).to(dtype) if not dtype.is_floating_point else one.to(dtype) for one in x)

    dims = {d: Dim("rp"[d], min=1, max=9999) for d in open_}
    compiled = kitsune_mlir.compile(
        Function(function), made(rows, points), target="sm_90a", dynamic_shapes=(((dims,) * 2),) if dims else None
    )
    if kernels is not None:
        assert computed(compiled) == kernels
    for size in ((rows, points), *sizes):
        given = made(*size)
        found = torch.as_tensor(Simulation(compiled, seed=3)(*given))
        wanted = function(*(x.double() if dtype.is_floating_point else x for x in given))
        torch.testing.assert_close(
            found.to(wanted.dtype), wanted, rtol=2e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-5
        )


@pytest.mark.parametrize("columns", range(2, 10))
def test_columns(columns):
    check(blended, 520, 35, columns)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_kinds(name, dtype):
    if name == "product" and dtype != torch.float32 or name == "squares" and dtype == torch.int64:
        pytest.skip("no such numbers, or factors that are rounded")
    check(FUNCTIONS[name], 515, 33, 3, dtype)


def test_one_kernel_where_rows_are_open():
    check(blended, 600, 64, 3, open_=(0, 1), sizes=[(5, 1), (1, 70), (513, 37)], kernels=["product"])


@pytest.mark.parametrize("columns", [3, 4])
def test_parts_of_long_sums(columns):
    """Rows that are few leave warps without work: each takes a part."""
    check(blended, 4, 3000, columns, open_=(0, 1), sizes=[(1, 1), (9, 257), (2, 9000)], kernels=["product"] * 2)


def test_lines_are_loaded_once():
    """Elements that stand side by side come to the SM together, for the price as well as in fact."""

    def priced(columns):
        x = torch.rand(4096, 128, columns)
        compiled = kitsune_mlir.compile(Function(lambda x: x.sum(1)), (x,), target="sm_90a")
        (launch,) = compiled.plan["launches"]
        return launch["work"]["l2_bytes"] / x.nbytes

    assert all(priced(columns) < 1.2 for columns in (2, 3, 5, 8))
