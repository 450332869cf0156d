"""Rows that a kernel does not come back to pass by L1 (PTX ISA, ld and st: .L1::no_allocate); weights stay."""

import re

import pytest
import torch
from functions import Function
from torch.nn import functional as F

import kitsune_mlir


def norm(x, weight, bias):
    return F.layer_norm(x, weight.shape, weight, bias)


def operands(rows, columns, dtype=torch.float32):
    return tuple(torch.randn(shape).to(dtype) for shape in ((rows, columns), (columns,), (columns,)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_rows_pass_by(dtype, gpu_of):
    code = str(kitsune_mlir.compile(Function(norm), operands(4096, 1024, dtype), target=gpu_of(132)).ptx)
    passing = [len(re.findall(rf"{access}\.global\.L1::no_allocate\.v4\.b32", code)) for access in ("ld", "st")]
    assert passing[0] == passing[1] > 0 and len(re.findall(r"ld\.global\.v4", code)) == 2 * passing[0]


def test_rows_that_are_read_again_stay(gpu_of):
    """Rows whose length is open until the call are gone through again, and are kept in L1."""
    shapes = (({1: torch.export.Dim("columns", min=2, max=1 << 20)},),)
    args = operands(4096, 3000)[:1]
    model = Function(lambda x: x.softmax(-1))
    compiled = kitsune_mlir.compile(model, args, target=gpu_of(132), dynamic_shapes=shapes)
    assert [launch["kernel"] for launch in compiled.plan["launches"]] == ["rows0"]
    assert "L1::no_allocate" not in str(compiled.ptx)
