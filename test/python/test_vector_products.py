"""Batches of products with a vector each, as einsum makes them of matrices that it turns, on a CPU and in the
simulator."""

import pytest
import torch
from functions import Function

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")


def weighed(x, w):
    return torch.einsum("btd,bt->bd", x, w)


def of_heads(x, w):
    return torch.einsum("nhd,hd->nh", x, w)


def of_heads_last(x, w):
    return torch.einsum("nhd,dn->hn", x, w) * 2


BATCH, LENGTH = torch.export.Dim("batch", min=2, max=4096), torch.export.Dim("length", min=2, max=4096)
CASES = {
    "weighed": (weighed, (5, 9, 12), (5, 9), None),
    "weighed-open": (weighed, (5, 9, 12), (5, 9), ({0: BATCH, 1: LENGTH}, {0: BATCH, 1: LENGTH})),
    "heads": (of_heads, (7, 3, 20), (3, 20), None),
    "heads-open": (of_heads, (7, 3, 20), (3, 20), ({0: BATCH}, None)),
    "heads-last": (of_heads_last, (6, 5, 8), (8, 6), ({1: LENGTH}, None)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
@pytest.mark.parametrize("name", CASES)
def test_as_torch(name, target, dtype):
    torch.manual_seed(0)
    function, *sizes, shapes = CASES[name]
    model, args = Function(function), [torch.randn(size).to(dtype) for size in sizes]
    made = kitsune_mlir.compile(model, tuple(args), target=target, dynamic_shapes=shapes and (shapes,))
    if shapes is not None:
        args = [x.repeat_interleave(3, dim) for x, dims in zip(args, shapes, strict=True) for dim in [min(dims or [0])]]
        args = [x if dims else x[: sizes[i][0]] for i, (x, dims) in enumerate(zip(args, shapes, strict=True))]
    got = made(*args) if target == "cpu" else Simulation(made, seed=1)(*args)
    want = function(*(x.double() for x in args))
    bound = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(torch.as_tensor(got).double(), want, rtol=bound, atol=bound)


def test_matrices_are_read_where_they_lie():
    args, rows = (torch.randn(2048, 32, 64), torch.randn(32, 64)), {0: BATCH}
    made = kitsune_mlir.compile(Function(of_heads), args, target="sm_90a", dynamic_shapes=((rows, None),))
    assert [launch["form"] for launch in made.plan["launches"]] == ["scheduled rows"]
