"""What placement decides is accepted by the proof and by code generation, for networks of any widths and forms."""

import dataclasses
import re

import gpu_steps
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from kitsune_mlir.bench import draw_nets, random_nets
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.errors import UserError
from kitsune_mlir.frontend import import_model
from kitsune_mlir.passes.schedule_chains import ScheduleChains
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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "f32"])
def test_no_cluster_exchanges_a_single_column(dtype):
    """A CTA would have a part of it, which is no column."""
    model = nn.Sequential(nn.Linear(64, 64), nn.Mish(), nn.Linear(64, 1), nn.Linear(1, 64)).to(dtype)
    program = import_model(model, (torch.empty(ROWS, 64, dtype=dtype),))
    options = {"cut-pipelines": "whole=true", "place-stages": "shape=chained cluster=2"}
    with pytest.raises(UserError, match="a cluster does not exchange tiles of one column"):
        gpu_steps.place(program.module, "sm_90a", options)


@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 24), dtype=st.sampled_from([*random_nets.DTYPES]), tokens=st.sampled_from([0, 1, 4]))
def test_every_chain_of_a_net_is_scheduled(seed, dtype, tokens):
    """What placement takes for a chain has a kernel at the schedule level, but for sums over the rows."""
    net = draw_nets.draw(seed, 300)
    if any(step.kind == "gather" for step in net.steps):
        tokens = 0
    rows = max(tokens, net.rows // tokens * tokens) if tokens else net.rows
    net = dataclasses.replace(net, dtype=dtype, tokens=tokens, rows=rows)
    model, args = random_nets.build(net, seed)
    program = import_model(model, args)
    give(program.module, net.precision)
    gpu_steps.place(program.module, "sm_90a")
    ScheduleChains().run(program.module)
    left = [one for one in kitsune.pipelines(program.module) if not any(stage.accumulates for stage in one.stages)]
    assert "chained" not in {one.shape for one in left}, str(net)
