"""Products whose sum over k the CTAs of a cluster share, on the stand-in device: right numbers."""

import pytest
import torch
import torch.nn.functional as F
from functions import Function
from test_gpu_scheduled import drawn, run

import kitsune_mlir
from kitsune_mlir.passes import priced_product
from kitsune_mlir.tools.gpusim import Simulation

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


def test_parts_that_are_spread_over_images():
    """Each reader adds up both parts, also where loops over an image are made one: it reads the second one, too."""

    def spread(x, y, mask):
        found = (x @ y).view(32, 512, 1, 1).expand(32, 512, 3, 3)
        return torch.where(mask, 0.0, found.float())

    args = torch.randn(32, 1000).to(BF16), torch.randn(1000, 512).to(BF16), torch.rand(32, 512, 3, 3) > 0.5
    compiled = kitsune_mlir.compile(Function(spread), args, target="sm_90a")
    assert "2x32x512" in compiled.plan["launches"][0]["computes"]
    wanted = spread(args[0].double(), args[1].double(), args[2])
    found = Simulation(compiled)(*args)
    assert (found.double() - wanted).norm() < 4e-3 * wanted.norm()
