"""What placement decides is accepted by the proof and by code generation, for networks of any widths and forms."""

import re

import gpu_steps
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kitsune_mlir.frontend import import_model
from kitsune_mlir.precision import give

ROWS = 8192


class Block(nn.Module):
    """`form` of layers of these (inputs, outputs)."""

    def __init__(self, form, *sizes: tuple[int, int]):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(*size, device="meta") for size in sizes)
        self.form = form

    def forward(self, x: Tensor) -> Tensor:
        return self.form(*self.layers, x)


def gated(g, u, d, x):
    h = F.rms_norm(x, x.shape[-1:])
    return x + d(F.silu(g(h)) * u(h))


def halves(f, x):
    a, b = f(x).chunk(2, -1)
    return a * torch.sigmoid(b)


def residuals(f, g, x):
    h = x + f(x)
    return h + g(h)


NETS = {
    **{f"softmax of {n}": (Block(lambda f, x: torch.softmax(f(x), -1), (64, n)), 64) for n in (320, 2048)},
    **{f"residuals of {n}": (Block(residuals, (n, n), (n, n)), n) for n in (300, 640, 1024)},
    "a gated block": (Block(gated, (1024, 2816), (1024, 2816), (2816, 1024)), 1024),
    **{f"gated halves of {n}": (Block(halves, (256, n)), 256) for n in (74, 512, 2816)},
    "an output beside a wide input": (Block(lambda f, x: torch.cat([F.silu(f(x)), x], 1), (1536, 448)), 1536),
    "a front that scales": (Block(lambda f, x: f(x * x[:, :1]), (17, 264)), 17),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "f32"])
@pytest.mark.parametrize("name", NETS)
def test_our_own_plans_are_accepted(name, dtype):
    model, width = NETS[name]
    program = import_model(model.to_empty(device="cpu").to(dtype), (torch.empty(ROWS, width, dtype=dtype),))
    give(program.module, "high")
    gpu_steps.place(program.module, "sm_90a")
    assert not gpu_steps.convert(program.module, "sm_90a")
    columns = {int(n) for n in re.findall(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k", str(program.module))}
    assert all(n % 8 == 0 and n <= 256 for n in columns)  # what an instruction has
