"""Sums of all elements where a size is open until the call: along rows first, in the kernel of what stands before."""

import pytest
import torch
from functions import Function
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

BATCH = torch.export.Dim("batch", min=1, max=4096)


def focal(x, y):
    p = torch.sigmoid(x)
    loss = F.binary_cross_entropy_with_logits(x, y, reduction="none")
    return ((0.25 * y + 0.75 * (1 - y)) * loss * (1 - p * y - (1 - p) * (1 - y)) ** 2).mean()


def dice(x, y):
    p = torch.sigmoid(x)
    return 1 - (2 * (p * y).sum() + 1) / (p.sum() + y.sum() + 1)


def soft_targets(x, y):
    return F.cross_entropy(x, y, reduction="sum"), (x * y).amax()


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("function", [focal, dice, soft_targets])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_one_kernel_reads_the_inputs(function, dtype, small_gpu):
    """Threads that went through elements one by one read them, and what sums share was written to memory."""
    torch.manual_seed(0)

    def inputs(batch):
        return torch.randn(batch, 128).to(dtype), torch.rand(batch, 128).to(dtype)

    shapes = ({0: BATCH}, {0: BATCH})
    compiled = kitsune_mlir.compile(Function(function), inputs(67), target=small_gpu, dynamic_shapes=(shapes,))
    assert [launch["kernel"] for launch in compiled.plan["launches"]][0] == "rows0"
    simulated = Simulation(compiled)
    for batch in (1, 2, 31, 67):
        x, y = inputs(batch)
        tolerance = {"rtol": 2e-6, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 1.6e-2, "atol": 1e-2}
        for found, wanted in zip(_all(simulated(x, y)), _all(function(x.double(), y.double())), strict=True):
            torch.testing.assert_close(torch.as_tensor(found).double(), wanted, **tolerance)


def _all(found):
    return found if isinstance(found, list | tuple) else [found]
