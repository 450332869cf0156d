"""Debug kernels: every wait has a budget (codegen/pipeline/watch.py)."""

import torch

import kitsune_mlir
from examples.models import SMALL


def compiled(options):
    model, args = SMALL["mlp"](torch.bfloat16)[:2]
    return kitsune_mlir.compile(model, args, target="sm_90a", options={"place-stages": "shape=spatial"} | options)


def test_each_wait_of_a_debug_kernel_can_end_it():
    plain, debug = compiled({}), compiled({"convert-kitsune-to-gpu": "wait-budget=1000"})
    waits = plain.ptx.count("ld.acquire.gpu")
    assert waits == 4  # two queues, each waited for at both ends
    assert "exit;" not in plain.ptx
    assert debug.ptx.count("exit;") == waits
    assert debug.ptx.count("cas.b32") == waits


def test_the_runtime_knows_the_queues_of_a_debug_kernel():
    section = compiled({"convert-kitsune-to-gpu": "wait-budget=1000"})._content.sections["sm_90a"]
    launch = section.manifest["pipelines"]["pipeline0"]["launch"]
    assert [queue["name"] for queue in launch["watched"]] == ["q0", "q1"]
    assert all("mlp.py" in queue["location"] for queue in launch["watched"])
