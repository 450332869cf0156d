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


BYTES = torch.tensor([10, 200, 255, 0, 128, 127], dtype=torch.uint8)
OTHER_BYTES = torch.tensor([3, 100, 250, 1, 7, 129], dtype=torch.uint8)


def test_uint8_has_no_sign():
    def arithmetic(x, y):
        alone = x / 2, x * 0.5, x.abs(), -x, ~x, x - 201, x // 3, x % 7, x << 1, x >> 1, x.float(), x.long()
        pairs = x + y, x * y, x // y, x % y, x > y, torch.maximum(x, y), torch.where(x < y, x, y), x + y.to(torch.int8)
        return alone, pairs, (x * 1.5).to(torch.uint8), (x.float() - 300).to(torch.uint8)

    def reductions(x, y):
        table = torch.arange(256.0)
        return (
            x.sum(),
            x.amax(),
            x.min(0),
            x.argmax(),
            x.sort(),
            x.cumsum(0),
            x.view(2, 3) @ y.view(3, 2),
            table[x.long()],
        )

    check(lambda x, y: (arithmetic(x, y), reductions(x, y)), BYTES, OTHER_BYTES)


def test_uint8_that_is_moved_is_not_widened():
    def moves(x):
        return torch.cat([x.view(2, 3).t().flip(0), x.view(3, 2)]), x[torch.tensor([1, 1, 4])], x.view(2, 3).unbind(1)

    compiled = kitsune_mlir.compile(Function(moves), (BYTES,))
    assert "extui" not in compiled.mlir("linalg")
    for found, wanted in zip(
        torch.utils._pytree.tree_leaves(compiled(BYTES)), torch.utils._pytree.tree_leaves(moves(BYTES))
    ):
        assert torch.equal(found, wanted)
