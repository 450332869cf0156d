"""Reductions of stacked tensors, which are elementwise, in the simulator of GPUs and on a CPU beside f64."""

import pytest
import torch
from functions import Function

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

ROWS = torch.export.Dim("rows", min=2, max=4096)
CASES = {
    "means": lambda x, y: torch.stack([x.relu(), y, x * y]).mean(0),
    "products of the last": lambda x, y: torch.stack([x.relu(), y.tanh()], -1).prod(-1),
    "the largest, between": lambda x, y: torch.stack([x, y, x * y], 1).amax(1),
    "concatenated": lambda x, y: torch.cat([x[:, None], y[:, None]], 1).sum(1, keepdim=True),
    "16 bits": lambda x, y: torch.stack([x.bfloat16(), y.bfloat16(), y.bfloat16()]).sum(0),
}


def outputs(found):
    return [torch.as_tensor(each) for each in (found if isinstance(found, tuple | list) else [found])]


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("is_open", [False, True], ids=["", "open"])
@pytest.mark.parametrize("name", CASES)
def test_one_kernel(name, is_open):
    function, given = CASES[name], {"dynamic_shapes": (({0: ROWS}, {0: ROWS}),)} if is_open else {}
    torch.manual_seed(0)
    args = torch.randn(12, 20), torch.randn(12, 20)
    cpu, gpu = (kitsune_mlir.compile(Function(function), args, target=each, **given) for each in ("cpu", "sm_90a"))
    assert len(gpu.plan["launches"]) == 1 and "concat" not in gpu.mlir("prepare-linalg")
    for count in (12, 31) if is_open else (12,):
        args = torch.randn(count, 20), torch.randn(count, 20)
        for found in (cpu(*args), Simulation(gpu, seed=1)(*args)):
            for own, wanted in zip(outputs(found), outputs(function(*args)), strict=True):
                bound = 2e-2 if wanted.dtype == torch.bfloat16 else 1e-5  # roundings between operators are left out
                torch.testing.assert_close(own.to(wanted.dtype), wanted, rtol=bound, atol=bound)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("function", [lambda x, y: torch.cat([x, y]).view(2, -1, 20).sum(0)])
def test_what_is_cut_elsewhere_is_no_stack(function):
    """Two tensors of different numbers of rows, seen as two of as many."""
    args = torch.randn(5, 20), torch.randn(3, 20)
    compiled = kitsune_mlir.compile(Function(function), args, target="sm_90a")
    torch.testing.assert_close(torch.as_tensor(Simulation(compiled)(*args)), function(*args))
