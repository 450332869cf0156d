"""`as_strided`, which reads memory as torch has it laid out."""

import pytest
import torch
from functions import Function

import kitsune_mlir
from kitsune_mlir.errors import UnsupportedError


def halves_that_overlap(x):
    """Of a tensor that lies otherwise than row by row, as Longformer makes chunks of queries that are turned."""
    turned = (x * 2).transpose(0, 1).transpose(1, 2).reshape(8, 16, 8).view(8, 4, 4, 8)
    chunks = turned.as_strided((8, 7, 4, 8), (8, 128, 64, 1))
    return chunks, x[1].as_strided((2, 2), (8, 1)), x[2:].as_strided((3, 4), (2, 5), x[2:].storage_offset() + 3)


def test_of_memory_in_any_order():
    model, x, other = Function(halves_that_overlap), torch.randn(16, 2, 4, 8), torch.randn(16, 2, 4, 8)
    for found, wanted in zip(kitsune_mlir.compile(model, (x,))(other), model(other), strict=True):
        torch.testing.assert_close(found, wanted)


def test_memory_beside_the_tensor_is_refused():
    with pytest.raises(UnsupportedError, match="beyond the tensor that it is given"):
        kitsune_mlir.compile(Function(lambda x: x[:2].as_strided((4, 3), (3, 1)) + 1), (torch.randn(4, 3),))
