"""Gradients by filters: ptxas keeps all sums in registers, of which two blocks fit a multiprocessor."""

import pytest
import torch
from functions import Function

import kitsune_mlir


@pytest.mark.parametrize(
    ("channels", "groups", "kernel", "kind"),
    [(64, 64, 7, torch.bfloat16), (64, 64, 3, torch.float32), (64, 16, 3, torch.bfloat16)],
)
def test_no_spills(channels, groups, kernel, kind):
    form = ([1, 1], [kernel // 2] * 2, [1, 1], False, [0, 0], groups)
    g, x = torch.randn(2, channels, 14, 14).to(kind), torch.randn(2, channels, 14, 14).to(kind)
    w = torch.randn(channels, channels // groups, kernel, kernel).to(kind)

    def of_filters(g, x, w):
        return torch.ops.aten.convolution_backward(g, x, w, None, *form, [False, True, False])[1]

    compiled = kitsune_mlir.compile(Function(of_filters), (g, x, w), target="sm_90a")
    found = [kernel for kernel in compiled.plan["kernels"] if "filters" in kernel["name"]]
    assert found
    for one in found:
        assert one["spill_stores"] == one["spill_loads"] == 0 and one["registers"] <= 128
