"""Convolutions of images whose sizes are open until the call read their windows from the images."""

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")
BATCH, HEIGHT, WIDTH = Dim("b", min=2, max=99), Dim("h", min=4, max=999), Dim("w", min=4, max=999)
ALL = {0: BATCH, 2: HEIGHT, 3: WIDTH}
SIZES = [(3, 4, 7), (2, 17, 6)]
MADE = '"kitsune.windows"'


class Residual(nn.Module):
    """Two convolutions, of which the second one's kernel adds what it sees."""

    def __init__(self, channels, outputs, kernel=3, **form):
        super().__init__()
        self.first = nn.Conv2d(channels, outputs, kernel, **({"padding": 1} | form))
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)

    def forward(self, x):
        y = F.relu(self.first(x))
        return self.second(y) + y


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv1d(64, 64, 5, padding=2), nn.Conv1d(64, 32, 3, dilation=2)

    def forward(self, x):
        return self.second(F.relu(self.first(x)))


CASES = {
    "images": (lambda: Residual(64, 64), 2),
    "a step apart, split sums": (lambda: Residual(96, 32, stride=2), 2),
    "short chunks": (lambda: Residual(48, 48, padding=2, dilation=2), 2),
    "rows and columns": (lambda: Residual(32, 64, (5, 3), padding=(2, 0), stride=(2, 1)), 2),
    "nothing around": (lambda: Residual(16, 24, padding=0), 1),
}


def check(module, example, shapes, sizes, count, dtype=torch.float16):
    torch.manual_seed(0)
    module = module.to(dtype)
    compiled = kitsune_mlir.compile(module, (example.to(dtype),), target="sm_90a", dynamic_shapes=(shapes,))
    assert compiled.mlir("sm_90a:convolutions-to-products").count(MADE) == count
    run = Simulation(compiled, seed=1)
    for size in sizes:
        x = torch.randn(size).to(dtype)
        with torch.no_grad():
            wanted = module.double()(x.double()).to(dtype)
        module.to(dtype)
        tolerance = 2e-2 if dtype is torch.bfloat16 else 3e-3
        torch.testing.assert_close(torch.as_tensor(run(x)), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CASES)
def test_windows_are_not_written(name):
    module, count = CASES[name]
    module = module()
    channels = module.first.in_channels
    sizes = [(batch, channels, height, width) for batch, height, width in SIZES]
    dtype = torch.bfloat16 if name == "rows and columns" else torch.float16
    check(module, torch.randn(2, channels, 9, 11), ALL, sizes, count, dtype)


@pytest.mark.parametrize("precision", ["highest", "high"])
def test_wide_numbers(precision):
    """Of f32 it is the images that are cut into pieces, or rounded to tf32, not each window."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        sizes = [(batch, 64, height, width) for batch, height, width in SIZES]
        check(Residual(64, 64), torch.randn(2, 64, 9, 11), ALL, sizes, 2, torch.float32)
    finally:
        torch.set_float32_matmul_precision(before)


def test_one_open_size():
    check(Residual(32, 32), torch.randn(1, 32, 8, 11), {3: WIDTH}, [(1, 32, 8, 11), (1, 32, 8, 6)], 2)


def test_lines():
    shapes = {0: BATCH, 2: Dim("l", min=5, max=999)}
    check(Line(), torch.randn(2, 64, 15), shapes, [(2, 64, 15), (3, 64, 11), (2, 64, 40)], 2)


def test_other_channels_are_written():
    """Of 20 channels no chunk is of one element of the filter."""
    check(Residual(20, 20), torch.randn(2, 20, 9, 11), ALL, [(2, 20, 9, 11), (3, 20, 4, 5)], 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_many_images_of_few_places(dtype):
    """Rows of a layer, whatever their number: a convolution's tile would have one image's."""
    model = nn.Sequential(nn.Conv1d(16, 32, 3, dilation=2), nn.ReLU(), nn.Unflatten(2, (2, 4))).append(
        nn.Conv2d(32, 48, (2, 3), padding=(0, 1), stride=(1, 2))
    )
    model, size = model.to(dtype), {0: torch.export.Dim("images")}
    compiled = kitsune_mlir.compile(
        model, (torch.randn(4096, 16, 12, dtype=dtype),), target="sm_90a", dynamic_shapes=(size,)
    )
    assert "linalg.conv" not in compiled.mlir("linalg")
    x = torch.randn(5, 16, 12, dtype=dtype)
    found = torch.as_tensor(Simulation(compiled, seed=1)(x)).double()
    bound = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(found, model.double()(x.double()).detach(), rtol=bound, atol=bound)
