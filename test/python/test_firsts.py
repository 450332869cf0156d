"""The first elements of rows by kitsune.firsts: one kernel that goes through rows once, of long ones another through
what it found in pieces of them; on CPUs a sort."""

import pytest
import torch
from functions import Function

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

NAN, INF = float("nan"), float("inf")
BATCH, LENGTH = torch.export.Dim("batch", min=2), torch.export.Dim("length", min=64)


def special(*shape):
    """Numbers of which many are equal, and some are none."""
    x = (torch.randn(shape) * 3).round()
    x[..., 5::17], x[..., 7], x[..., 8::50], x[..., 9::50] = -0.0, NAN, INF, -INF
    return x


torch.manual_seed(0)
ROWS = {
    "many of long rows": (torch.randn(3, 2500), 100, True, None),
    "of a block's rows": (torch.randn(5, 1200), 20, False, None),
    "equal ones": (special(7, 300), 40, True, None),
    "equal ones, the least first": (special(7, 300), 40, False, None),
    "that ascend": (torch.arange(1500.0).expand(2, 1500).contiguous(), 33, True, None),
    "16 bits": (torch.randn(4, 1100).bfloat16(), 9, True, None),
    "whole numbers": (torch.randint(-(2**31), 2**31 - 1, (3, 1500), dtype=torch.int32), 64, True, None),
    "all of a row": (torch.randn(2, 70), 70, True, None),
    "of pieces, equal ones": (special(2, 66_000), 7, True, None),
    "of pieces that are filled up": (special(1, 65_537), 7, False, None),
    "of pieces and an open batch": (torch.randn(2, 66_000), 7, True, {0: torch.export.Dim("batch", min=2, max=2**20)}),
    "an open batch": (torch.randn(6, 100), 12, True, {0: BATCH}),
    "an open length": (torch.randn(3, 130), 12, False, {1: LENGTH}),
}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("name", ROWS)
def test_on_both_targets(name, small_gpu):
    x, count, largest, shapes = ROWS[name]
    function = Function(lambda x: x.topk(count, -1, largest))
    for target in ("cpu", small_gpu):
        dynamic = None if shapes is None else ((shapes,),)
        compiled = kitsune_mlir.compile(function, (x,), target=target, dynamic_shapes=dynamic)
        sizes = [77 if d in (shapes or {}) else size for d, size in enumerate(x.shape)]
        others = [] if shapes is None else [torch.randn(sizes) * 4 // 1]
        for given in (x, *others):
            order = torch.sort(given.double(), stable=True, dim=-1, descending=largest)
            values, places = compiled(given) if target == "cpu" else Simulation(compiled)(given)
            wanted = order.values[:, :count].to(x.dtype)
            torch.testing.assert_close(torch.as_tensor(values), wanted, rtol=0, atol=0, equal_nan=True)
            torch.testing.assert_close(torch.as_tensor(places), order.indices[:, :count])
    computes = [launch["computes"] for launch in compiled.plan["launches"]]
    assert computes == ["firsts"] if "pieces" not in name else sum(each.count("firsts") for each in computes) == 2


AROUND = {
    "before it": lambda x: (x * x - 3).topk(10, largest=False)[0],
    "behind it": lambda x: x.topk(20)[0].exp(),
    "of what it reads": lambda x: x.abs().gather(1, x.topk(16)[1]),
    "before it, and of others": lambda x: ((x * 2).topk(12)[0], (x * 2).sum(-1)),
}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("name", AROUND)
def test_what_is_computed_around(name, small_gpu):
    """Keys that nobody else reads are in no memory; what is behind is a kernel of its own."""
    torch.manual_seed(0)
    x = torch.randn(6, 1500)
    compiled = kitsune_mlir.compile(Function(AROUND[name]), (x,), target=small_gpu)
    assert len(compiled.plan["launches"]) == 1 + (name != "before it")
    found, wanted = Simulation(compiled)(x), AROUND[name](x)
    for a, b in zip(*(y if isinstance(y, tuple) else (y,) for y in (found, wanted)), strict=True):
        torch.testing.assert_close(torch.as_tensor(a), b, rtol=1e-5, atol=1e-4)


def test_code(gpu_of):
    """It is assembled without a spill, of rows that many warps share, in as many registers as it may have."""
    function = Function(lambda x: x.topk(128))
    compiled = kitsune_mlir.compile(function, (torch.randn(2, 20000),), target=gpu_of(132))
    (kernel,) = compiled.plan["kernels"]
    assert not kernel.get("spill_stores")
