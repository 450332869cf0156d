"""Gradients of maxima of drawn windows, on both targets: as torch's, of indices that are computed or given."""

import random

import pytest
import torch
from functions import Function, on_both
from torch.nn import functional as F

import kitsune_mlir

pytestmark = pytest.mark.usefixtures("unassembled")
aten = torch.ops.aten


def drawn(seed):
    """The image's sizes, and a pool's kernel, stride, padding, dilation and whether it has windows that are no whole
    ones."""
    draw = random.Random(seed)
    kernel, stride = ([draw.choice(sizes) for _ in range(2)] for sizes in ([2, 3, 3, 5], [1, 2, 2, 3]))
    dilation = [draw.choice([1, 1, 2]) for _ in range(2)]
    sizes = [d * (k - 1) + 1 + draw.randint(0, 9) for k, d in zip(kernel, dilation)]
    return sizes, kernel, stride, [draw.randint(0, k // 2) for k in kernel], dilation, draw.random() < 0.3


@pytest.mark.parametrize("seed", range(6))
def test_drawn_windows(seed, small_gpu):
    torch.manual_seed(seed)
    (height, width), *form = drawn(seed)
    x = torch.randn(2, 3, height, width).bfloat16()
    x[0, 0] = -torch.inf  # the first element in the image is the largest
    y, indices = F.max_pool2d(x, *form, return_indices=True)
    g = torch.randn_like(y)

    def of_both(g, x):
        return aten.max_pool2d_with_indices_backward(g, x, *form, aten.max_pool2d_with_indices(x, *form)[1])

    def of_given(g, x, indices):
        return aten.max_pool2d_with_indices_backward(g, x, *form, indices)

    wanted = of_given(g.double(), x.double(), indices)
    for function, args in ((of_both, (g, x)), (of_given, (g, x, indices))):
        for run in on_both(Function(function), args, small_gpu):
            found = torch.as_tensor(run(*args))
            assert (found - wanted).abs().max() <= 8e-3 * wanted.abs().max()


@pytest.mark.parametrize("kernel", [2, 3])
def test_one_kernel(kernel):
    """Gradients are read where they lie, also those that are not there, beside the image."""
    x = torch.randn(4, 8, 32, 32).bfloat16()
    form = ([kernel] * 2, [2, 2], [kernel // 3] * 2, [1, 1], False)
    y, indices = F.max_pool2d(x, *form, return_indices=True)
    function = Function(lambda g, x, indices: aten.max_pool2d_with_indices_backward(g, x, *form, indices))
    compiled = kitsune_mlir.compile(function, (y, x, indices), target="sm_90a")
    assert len(compiled.plan["launches"]) == 1
