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


def windows(x):
    """Neighbourhoods of a padded image, and pairs of rows that overlap, by the strides that torch gives for these."""
    padded = torch.nn.functional.pad(x, (1, 1, 1, 1), mode="circular")
    batch, row, place = padded.stride()
    around = padded.as_strided((*x.shape, 3, 3), (batch, row, place, row, place))
    pairs = x.as_strided((x.shape[0], x.shape[1] - 1, 2, x.shape[2]), (x.stride(0), x.stride(1), x.stride(1), 1))
    return around.amax((-1, -2)), pairs * 2


def test_windows_of_open_sizes():
    model, x = Function(windows), torch.randn(2, 4, 5)
    shapes = {dim: torch.export.Dim.AUTO for dim in range(3)}
    compiled = kitsune_mlir.compile(model, (x,), dynamic_shapes=((shapes,),))
    for sizes in ((2, 4, 5), (1, 7, 3), (3, 3, 6)):
        other = torch.randn(sizes)
        for found, wanted in zip(compiled(other), model(other), strict=True):
            torch.testing.assert_close(found, wanted)


def test_memory_beside_the_tensor_is_refused():
    with pytest.raises(UnsupportedError, match="beyond the tensor that it is given"):
        kitsune_mlir.compile(Function(lambda x: x[:2].as_strided((4, 3), (3, 1)) + 1), (torch.randn(4, 3),))
