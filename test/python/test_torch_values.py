"""What the CPU target computes is what torch computes, where torch-mlir's own way would be wrong or refused."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

import kitsune_mlir


class Function(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def check(function, *args, tolerance=0.0, calls=(), **options):
    """Compiles once, and compares the results of a call with the example arguments, and with each of `calls`."""
    model = Function(function)
    compiled = kitsune_mlir.compile(model, args, **options)
    for call in [args, *calls]:
        found, wanted = (torch.utils._pytree.tree_leaves(result) for result in (compiled(*call), model(*call)))
        assert len(found) == len(wanted)
        for value, expected in zip(found, wanted, strict=True):
            torch.testing.assert_close(value, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def test_adaptive_max_pooling():
    sizes = [((5, 8), (2, 3)), ((6, 3), (4, 5)), ((8, 9), (4, 3))]
    images = [torch.randn(1, 2, *size) for size, _ in sizes]

    def pools(line, block, *images):
        flat = [F.adaptive_max_pool2d(x, out, return_indices=True) for x, (_, out) in zip(images, sizes, strict=True)]
        return flat, F.adaptive_max_pool1d(line, 3), F.adaptive_max_pool3d(block, (3, 2, 5))

    line = torch.tensor([[1.0, torch.nan, 2, 3, 4, 5, -torch.inf, -torch.inf]])
    check(pools, line, torch.randn(1, 7, 5, 3), *images)
