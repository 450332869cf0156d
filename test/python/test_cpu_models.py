"""Every sample model runs on the CPU and agrees with torch: pipelined in both data types, and without pipelines."""

import itertools

import numpy as np
import pytest
import torch
from cpu_case import runner
from sample_models import imported

from examples.models import SMALL
from kitsune_mlir.codegen import cpu
from kitsune_mlir.passes import find
from kitsune_mlir.planning import target

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2}


def array(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach().contiguous()
    return tensor.view(torch.uint16).numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()


PLAIN = ("prepare-linalg",)
PIPELINED = (*PLAIN, "partition-dataflow", "design-pipeline", "place-stages", "convert-kitsune-to-cpu")


@pytest.mark.parametrize("name, dtype", list(zip(SMALL, itertools.cycle(TOLERANCE))), ids=str)
def test_plain(name, dtype):
    section = check(name, dtype, PLAIN)
    assert section.manifest["pipelines"] == []


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", SMALL)
def test_pipelined(name, dtype):
    section = check(name, dtype, PIPELINED)
    assert section.manifest["pipelines"] or name == "resblock"  # all convolutions


def check(name, dtype, passes):
    model, args, program = imported(name, dtype)
    with program.module.context:
        for one in passes:
            find(one)().run(program.module)
    section = cpu.build(program.module, target.load("cpu"), opt_level=0)
    inputs = [array(leaf) for leaf in torch.utils._pytree.tree_leaves(args)]
    kept = [value.copy() for value in inputs]
    found = runner(section, [argument.value for argument in program.arguments]).run(inputs)
    with torch.no_grad():
        wanted = torch.utils._pytree.tree_leaves(model(*args))
    for result, expected in zip(found[-len(wanted) :], wanted, strict=True):
        result = torch.from_numpy(result)
        result = result.view(torch.bfloat16) if expected.dtype == torch.bfloat16 else result
        error = (result.double() - expected.double()).norm() / expected.double().norm()
        assert error < TOLERANCE[dtype]
    assert all((a == b).all() for a, b in zip(inputs, kept, strict=True))
    return section
