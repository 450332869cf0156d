"""Single products in two sets of sums that leave in turn, on the stand-in device: right numbers."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from test_gpu_scheduled import drawn, run

from kitsune_mlir.passes import priced_product

pytestmark = pytest.mark.usefixtures("unassembled")

BF16, F16 = torch.bfloat16, torch.float16


@pytest.fixture
def checked(gpu_of, monkeypatch):
    """Runs a function, in tiles as wide as asked for where few rows would get narrow ones. Gives what was launched."""

    def check(columns, function, args, precision="highest"):
        every = priced_product.choose.__wrapped__
        asked = partial(every, widths=(columns,))
        monkeypatch.setattr(priced_product, "choose", asked)
        device = run(function, args, gpu_of(4), launches=1, precision=precision)
        (launch,) = device.described
        return launch

    return check


@pytest.mark.parametrize("inputs", [128, 192, 320, 400, 576], ids=str)
def test_chunks(inputs, checked):
    """Two to nine of k, a part of one among them; more tiles than CTAs, the last not whole."""
    launch = checked(256, F.linear, drawn((280, inputs), (512, inputs), (512,)))
    assert launch["ctas"] < 6 and [64, 128] in [map_["box"] for map_ in launch["maps"]]


@pytest.mark.parametrize("dtype", [BF16, F16], ids=["bf16", "f16"])
def test_sets_of_other_widths(dtype, checked):
    args = drawn((280, 256), (392, 256), (392,), dtype=dtype)
    launch = checked(192, lambda *args: F.gelu(F.linear(*args)), args)
    assert [64, 64] in [map_["box"] for map_ in launch["maps"]]


@pytest.mark.parametrize("count", [40, 127, 600], ids=str)
def test_other_rows_beside(count, checked):
    args = drawn((count, 128), (256, 128), (256,), (count, 256))
    checked(256, lambda x, w, b, z: F.silu(F.linear(x, w, b)) + z, args)


def test_outputs_of_f32(checked):
    launch = checked(256, lambda *args: F.linear(*args).float() * 0.5, drawn((280, 192), (320, 192), (320,)))
    assert "f32" in [map_["element"] for map_ in launch["maps"]]


@pytest.mark.parametrize("inputs, columns", [(64, 256), (212, 256), (256, 192)], ids=str)
def test_f32_in_tf32(inputs, columns, checked):
    """Chunks have 32 numbers of each row, which copies round."""
    shapes = (280, inputs), (320, inputs), (320,)
    launch = checked(columns, F.linear, drawn(*shapes, dtype=torch.float32), "high")
    assert [map_["element"] for map_ in launch["maps"]].count("tf32") >= 2


def test_weights_across(checked):
    """Columns that are neighbours in memory come in boxes of 64."""
    checked(256, lambda x, w: torch.relu(x @ w), drawn((300, 320), (320, 264)))
