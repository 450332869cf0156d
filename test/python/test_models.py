"""Every sample model imports, in both data types, as linalg whose arguments are the model's own weights."""

import pytest
import torch
from sample_models import imported

from examples.models import FULL, SMALL
from kitsune_mlir import mlir

DIALECTS = {"builtin", "func", "linalg", "tensor", "arith", "math", "tm_tensor", "cf"}
DTYPES = [torch.float32, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", SMALL)
def test_imports_to_linalg(name, dtype):
    module, args, program = imported(name, dtype)
    assert program.module.operation.verify()
    assert {op.name.split(".")[0] for op in mlir.walk(program.module)} <= DIALECTS
    assert len(program.inputs) == len(torch.utils._pytree.tree_leaves(args))
    weights = [argument for argument in program.arguments if argument.kind != "input"]
    addresses = {tensor.data_ptr() for tensor in module.state_dict().values()}
    assert weights and all(argument.value.ctypes.data in addresses for argument in weights)


def test_the_benchmark_sizes_are_those_of_the_paper_shapes():
    assert {"nerf-64k", "nerf-1m", "dlrm-2k", "mgn", "graphcast", "llama-tok-1", "llama-ctx"} <= set(FULL)
