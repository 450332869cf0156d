"""What operators give is written to: where torch gives a copy the operand stays as it is, and where it gives the
operand itself that changes."""

import pytest
import torch
from functions import OfOne
from torch.export import Dim
from torch.nn import functional as F

import kitsune_mlir

COPIES = {
    "nearest": lambda x: F.interpolate(x, scale_factor=1.0),
    "linear": lambda x: F.interpolate(x, scale_factor=1.0, mode="linear"),
    "repeat": lambda x: x[:1].repeat(x.shape[0], 1, 1),  # as kornia begins matrices with ones of an open batch
    "repeat once": lambda x: x.repeat(1, 1, 1),
    "pad": lambda x: F.pad(x, (0, 0)),
}
ITSELF = {"dropout": lambda x: F.dropout(x, 0.5, False), "none is dropped": lambda x: torch.dropout(x, 0.0, True)}


@pytest.mark.parametrize("name", [*COPIES, *ITSELF])
@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
def test_what_is_written_to(name, is_open):
    function = (COPIES | ITSELF)[name]

    def written(x):
        x = x * 1.5
        y = function(x)
        y += 1
        y[:, :2] *= 3
        return x, y

    x = torch.randn(2, 4, 5)
    shapes = {"x": {0: Dim("batch", min=2, max=99)}} if is_open else None
    compiled = kitsune_mlir.compile(OfOne(written), (x,), target="cpu", dynamic_shapes=shapes)
    x = torch.randn(3 if is_open else 2, 4, 5)
    for found, wanted in zip(compiled(x), written(x), strict=True):
        torch.testing.assert_close(found, wanted)
