"""Products whose sum over k the CTAs of a cluster share, on the stand-in device: right numbers."""

import pytest
import torch
import torch.nn.functional as F
from test_gpu_scheduled import drawn, run

from kitsune_mlir.passes import priced_product

pytestmark = pytest.mark.usefixtures("unassembled")

BF16, F16 = torch.bfloat16, torch.float16


@pytest.fixture
def checked(small_gpu, monkeypatch):
    """Runs a function whose product is shared by so many CTAs, in tiles of so many columns. Gives what was launched."""

    def check(ctas, columns, function, args, launches=1):
        every = priced_product.choose.__wrapped__
        asked = {"clusters": (ctas,), "most_split": 1, "widths": (columns,)}
        monkeypatch.setattr(priced_product, "choose", lambda *args, **given: every(*args, **given | asked))
        device = run(function, args, small_gpu, launches=launches)
        launch = device.described[0]
        assert launch["cluster"] == ctas
        return launch

    return check


@pytest.mark.parametrize(
    "rows, inputs, outputs, columns, ctas, dtype",
    [
        (40, 256, 64, 64, 2, BF16),
        (150, 520, 200, 64, 2, BF16),
        (70, 1000, 72, 32, 4, F16),
        (24, 1024, 136, 64, 8, BF16),
    ],
    ids=str,
)
def test_products(rows, inputs, outputs, columns, ctas, dtype, checked):
    """Parts of k that are not whole, tiles after one another, rows and columns that threads store."""
    args = drawn((rows, inputs), (outputs, inputs), (outputs,), dtype=dtype)
    checked(ctas, columns, F.linear, args, 2)


def test_other_rows_beside(checked):
    args = (*drawn((200, 400), (120, 400), (120,)), torch.randn(200, 120))
    checked(2, 64, lambda x, w, b, z: torch.relu(F.linear(x, w, b)).float() + z, args)


def test_few_rows(small_gpu):
    """Boxes are as high as the rows; what products read behind them was cleared."""
    device = run(lambda *args: F.linear(*args), drawn((20, 1048), (1024, 1048), (1024,)), small_gpu, launches=2)
    assert [64, 24] in [map_["box"] for map_ in device.described[0]["maps"]]
