"""Operands whose rows are no multiple of 16 bytes, and tiles narrower than a product, on the stand-in device."""

import pytest
import torch
from test_gpu_chained import mlp, run
from test_gpu_pipelines import small_gpu  # noqa: F401  (a fixture)
from torch import nn

import kitsune_mlir


@pytest.mark.parametrize("widths, rows", [((363, 40), 130), ((61, 136, 8), 70), ((130, 512), 300)], ids=str)
def test_rows_of_any_length(widths, rows, small_gpu):  # noqa: F811
    args = (torch.randn(rows, widths[0], dtype=torch.bfloat16),)
    run(mlp(torch.bfloat16, widths, nn.ReLU), args, small_gpu, 2e-2)


def test_rows_are_made_longer_by_one_launch():
    """Of an input, and of the tile between two pipelines; the weights are laid out before."""
    model = mlp(torch.bfloat16, (358, 716, 358), nn.ReLU).eval()
    compiled = kitsune_mlir.compile(model, (torch.randn(20000, 358, dtype=torch.bfloat16),), target="sm_90a")
    forms = [launch["form"] for launch in compiled.plan["launches"]]
    assert forms.count("chained") == 2
    assert len(forms) == 4
