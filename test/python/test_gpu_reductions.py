"""Reductions across memory in the simulator: shared by warps and blocks, of 16 bits too."""

import pytest
import torch

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation


class Reduced(torch.nn.Module):
    def __init__(self, function, dim):
        super().__init__()
        self.function, self.dim = function, dim

    def forward(self, x):
        return self.function(x, self.dim)


def launches_of(module, x, target):
    """The kernels of a model, whose result is what torch's is, bit by bit but for the kind of NaN."""
    compiled = kitsune_mlir.compile(module, (x,), target=target)
    found, wanted = torch.as_tensor(Simulation(compiled, seed=1)(x)), module(x)
    assert torch.equal(found.isnan(), wanted.isnan())
    assert torch.equal(found[~found.isnan()], wanted[~wanted.isnan()])
    return [(launch["kernel"], launch["ctas"]) for launch in compiled.plan["launches"]]


@pytest.mark.parametrize(
    ("function", "dtype"), [(torch.amax, torch.bfloat16), (torch.amin, torch.float16)], ids=["max", "min"]
)
def test_the_largest_of_16_bits(function, dtype, gpu_of):
    """It is shared by the warps of a block, long ones by blocks, as sums of f32 are. NaN and infinities come out."""
    torch.manual_seed(0)
    blocks = {(2, 300, 70): [("reduce_0", 5)], (5000, 20): [("reduce_0", 15), ("reduce_1", 1)]}
    for shape, wanted in blocks.items():
        x = torch.randn(shape).to(dtype)
        x[0], x[1, 1] = float("-inf"), float("nan")
        assert launches_of(Reduced(function, len(shape) - 2), x, gpu_of(4)) == wanted


def test_sums_of_what_is_long_to_compute_have_more_parts(gpu_of):
    parts = []
    for function in (torch.sum, lambda x, dim: torch.nn.functional.softplus(x).sum(dim)):
        compiled = kitsune_mlir.compile(Reduced(function, 0), (torch.randn(1000, 64),), target=gpu_of(4))
        parts.append([launch["ctas"] for launch in compiled.plan["launches"] if "reduce" in launch["kernel"]])
    plain, long = parts
    assert plain == [2] and len(long) == 2 and long[0] > 8
