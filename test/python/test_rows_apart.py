"""Row groups whose rows operands cut: along which dimension of them tiles lie."""

import pytest
import torch
from functions import Function
from test_gpu_rows import drawn, run

import kitsune_mlir
from kitsune_mlir.mlir import walk


def heads(x, weight, scale):
    """What differs from head to head cuts the rows, of which only the few heads are neighbours."""
    return (x * weight).sum(-1), torch.softmax(x * scale[:, None], -1)


@pytest.mark.parametrize("shape", [(300, 2, 32), (600, 3, 40), (5, 70, 24), (3, 4, 17)], ids=str)
def test_tiles_along_the_longer_side(shape, small_gpu):
    """Tiles have rows of many nodes and one head, where a node has few of these."""
    nodes, count, columns = shape
    args = drawn(shape, (count, columns), (count,))
    rows = torch.export.Dim("rows", min=1, max=100_000)
    for shapes in (None, (({0: rows}, None, None),)):
        calls = [drawn((n, count, columns), (count, columns), (count,)) for n in (1, 129)] if shapes else ()
        device = run(heads, args, small_gpu, shapes, calls)
        assert (device.pipeline_launches, device.launches) == (1 + len(calls), 0)
    compiled = kitsune_mlir.compile(Function(heads), args, target=small_gpu)
    (tile,) = (list(op.opview.sizes) for op in walk(compiled.module("small:schedule-rows"), "kitsune.tiles"))
    assert (tile[0] > 1) == (nodes > count)
