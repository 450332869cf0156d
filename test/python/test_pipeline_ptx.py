"""The pipelines of sample models become PTX that assembles, with hardly a spill, for every GPU described."""

import math

import gpu_steps
import pytest
import torch
from sample_models import imported

from kitsune_mlir import mlir
from kitsune_mlir.codegen import gpu, ptx, ptxas
from kitsune_mlir.mlir import ir
from kitsune_mlir.planning import target

MODELS = ("mlp", "nerf", "transformer", "meshgraphnets", "llama-prefill")
MOST_SPILLED = 64  # bytes a thread: a few values at the register limit of a launch of 1024 threads


def assembled(name: str, dtype: torch.dtype, chip: str) -> dict[str, ptxas.KernelInfo]:
    """The kernels of the model's pipelines, none of which may be declined; those of equal form share one."""
    _, _, program = imported(name, dtype)
    gpu_steps.place(program.module, chip)
    names = {op.opview.label for op in mlir.walk(program.module, "kitsune.pipeline")}
    assert names and not gpu_steps.convert(program.module, chip)
    machine = target.load(chip)
    kernels: dict[str, ptxas.KernelInfo] = {}
    for kernel in gpu_steps.kernels(program.module):
        if ir.StringAttr(kernel.attributes[gpu.PIPELINE]).value not in names:
            continue
        text = ptx.to_ptx(kernel, machine)
        assert f".target {chip}" in text
        if chip != "sm_90a":
            assert "mma.sync" in text and "wgmma" not in text
        kernels |= ptxas.assemble(text, machine).kernels
    assert kernels
    return kernels


@pytest.fixture(autouse=True)
def needs_ptxas():
    if ptxas.find() is None:
        pytest.skip("there is no ptxas")


@pytest.fixture(autouse=True)
def no_operator_by_itself(monkeypatch):
    monkeypatch.setattr("kitsune_mlir.planning.cut._apart_us", lambda *stage: math.inf)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_assembles(name, dtype):
    for label, kernel in assembled(name, dtype, "sm_90a").items():
        assert 0 < kernel.registers <= 255
        assert kernel.spill_stores <= MOST_SPILLED, f"{label} spills {kernel.spill_stores} bytes"


CHIPS = ["sm_80", "sm_86", "sm_89", "sm_100a", "sm_120"]


@pytest.mark.parametrize(
    "name, chip", [("transformer", "sm_80"), ("transformer", "sm_120"), *(("nerf", chip) for chip in CHIPS)]
)
def test_assembles_for_other_gpus(name, chip):
    for label, kernel in assembled(name, torch.bfloat16, chip).items():
        assert kernel.spill_stores <= MOST_SPILLED, f"{label} spills {kernel.spill_stores} bytes"
