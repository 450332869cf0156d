"""Operands whose rows are no multiple of 16 bytes, and tiles narrower than a product, on the stand-in device."""

import pytest
import torch
from test_gpu_chained import mlp, run
from torch import nn

import kitsune_mlir

pytestmark = pytest.mark.usefixtures("unassembled")


def test_rows_of_any_length(small_gpu):
    args = (torch.randn(70, 61, dtype=torch.bfloat16),)
    run(mlp(torch.bfloat16, (61, 136, 8), nn.ReLU), args, small_gpu, 2e-2)


@pytest.mark.parametrize(
    "widths, rows, dtype",
    [
        ((64, 16, 37), 1, torch.bfloat16),
        ((64, 16, 77), 65, torch.float16),
        ((64, 64, 133), 300, torch.bfloat16),
        ((64, 64, 269), 130, torch.bfloat16),
        ((64, 22, 358), 70, torch.float16),
        ((32, 717), 129, torch.bfloat16),
    ],
    ids=str,
)
def test_outputs_of_any_width(widths, rows, dtype, small_gpu):
    """Rows that no tensor copy stores leave through shared memory, in one pass or several."""
    run(mlp(dtype, widths, nn.ReLU), (torch.randn(rows, widths[0], dtype=dtype),), small_gpu, 2e-2)


@pytest.mark.parametrize("width, precision", [(21, "highest"), (77, "high"), (134, "highest"), (301, "high")])
def test_outputs_of_f32(width, precision, small_gpu):
    args = (torch.randn(70, 40),)
    run(mlp(torch.float32, (40, width), nn.ReLU), args, small_gpu, 2e-3, precision=precision)


class Several(nn.Module):
    """Outputs that leave in both ways, one after another, and are read by what follows."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in ((48, 77), (77, 64), (64, 90), (90, 9)))

    def forward(self, x):
        found = []
        for layer in self.layers:
            x = torch.relu(layer(x))
            found.append(x)
        return tuple(found)


def test_outputs_in_turns(gpu_of):
    torch.manual_seed(3)
    args = (torch.randn(600, 48, dtype=torch.bfloat16),)
    run(Several().bfloat16(), args, gpu_of(4), 2e-2)


def test_rows_are_made_longer_by_one_launch():
    """An input's rows; those of the tile between are written longer, and the weights laid out before."""
    model = mlp(torch.bfloat16, (358, 716, 358), nn.ReLU).eval()
    compiled = kitsune_mlir.compile(model, (torch.randn(20000, 358, dtype=torch.bfloat16),), target="sm_90a")
    forms = [launch["form"] for launch in compiled.plan["launches"]]
    assert forms == ["operator", "scheduled product", "scheduled product"]
