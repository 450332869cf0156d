"""Elementwise kernels of 16 bits, whose functions take their short forms, in the simulator: as near as a rounding, at
the ends of the numbers too."""

import pytest
import torch
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

INF = float("inf")
ENDS = torch.tensor([0.0, -0.0, INF, -INF, float("nan"), 1e-8, 88.0, -88.0, 100.0, -100.0, 20.0, 3e38, -3e38, 1e-38])
BITS = {torch.bfloat16: 8, torch.float16: 11}


class Function(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


FUNCTIONS = {
    "all of one kind": lambda x: (x.exp(), x.expm1(), x.log(), x.log1p(), x.sqrt(), x.rsqrt(), x.exp2(), x.log2()),
    "circular": lambda x: (x.sin(), x.cos(), x.tanh(), x.erf(), x.reciprocal(), x.sigmoid(), x.atan()),
    "activations": lambda x: (F.silu(x), F.mish(x), F.softplus(x), F.elu(x), F.logsigmoid(x), F.hardswish(x)),
    "of whole numbers": lambda x: (torch.floor(x / 3), torch.round(x * 0.5), torch.trunc(x / 0.25), torch.frac(x)),
    "one after another": lambda x: (torch.sigmoid(3 * x) * x + torch.tanh(x) / (1 + x * x), x.clamp(max=3).exp()),
}


@pytest.mark.parametrize("dtype", BITS, ids=["bf16", "f16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_is_as_near_as_a_rounding(name, dtype, gpu_of):
    generator = torch.Generator().manual_seed(0)
    x = torch.cat([ENDS, 3 * torch.randn(370, generator=generator), 30 * torch.randn(128, generator=generator)]).to(
        dtype
    )
    model = Function(FUNCTIONS[name])
    found = Simulation(kitsune_mlir.compile(model, (x,), target=gpu_of(4)), seed=1)(x)
    for value, own, exact in zip(found, model(x), model(x.double()), strict=True):
        value, exact = torch.as_tensor(value), exact.to(dtype)
        finite = torch.isfinite(own)
        assert torch.equal(value.isnan()[~finite], own.isnan()[~finite])
        assert torch.equal(value[own.isinf()], own[own.isinf()])
        both = finite & torch.isfinite(exact)
        bound = 2.0 ** (1 - BITS[dtype]) * exact.double().abs()[both] + 1e-5
        off, torch_off = (((x.double() - exact.double()).abs()[both] / bound).max() for x in (value, own))
        assert off <= max(1.05, 2 * float(torch_off)), (float(off), float(torch_off))
