"""Single products in two sets of sums that leave in turn, on the stand-in device: right numbers."""

import pytest
import torch
from test_gpu_chained import TYPES, run
from test_gpu_pipelines import small_gpu  # noqa: F401  (a fixture)
from torch import nn

from kitsune_mlir.codegen.hopper import program

BF16, F16 = torch.bfloat16, torch.float16


class Residual(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x, z):
        return nn.functional.silu(self.linear(x)) + z


class Widened(nn.Linear):
    def forward(self, x):
        return super().forward(x).float() * 0.5


@pytest.fixture
def checked(small_gpu, monkeypatch):  # noqa: F811
    """Compiles a model, with tiles as wide as asked for where few rows would get narrow ones, and runs it."""

    def check(columns, model, args):
        monkeypatch.setattr(program, "choose_columns", lambda *_: columns)
        torch.manual_seed(11)
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.1)
        dtype = args[0].dtype
        (launch,) = run(model.to(dtype), args, small_gpu, TYPES[dtype], launches=1)
        return launch

    return check


def rows(count, width, dtype=BF16):
    return torch.randn(count, width, dtype=dtype)


@pytest.mark.parametrize("inputs", [128, 192, 320, 400, 576], ids=str)
def test_chunks(inputs, checked):
    """Two to nine of k, a part of one among them; more tiles than CTAs, the last not whole."""
    launch = checked(256, nn.Linear(inputs, 512), (rows(530, inputs),))
    assert launch["ctas"] < 10 and [64, 128] in [map_["box"] for map_ in launch["maps"]]


@pytest.mark.parametrize("dtype", [BF16, F16], ids=["bf16", "f16"])
def test_boxes_in_two_sets(dtype, checked):
    checked(192, nn.Sequential(nn.Linear(256, 392), nn.GELU()), (rows(400, 256, dtype),))


@pytest.mark.parametrize("count", [1, 127, 1100], ids=str)
def test_other_rows_beside(count, checked):
    checked(256, Residual(128, 256), (rows(count, 128), rows(count, 256)))


def test_outputs_of_f32(checked):
    launch = checked(256, Widened(192, 320), (rows(400, 192),))
    assert "f32" in [map_["element"] for map_ in launch["maps"]]
