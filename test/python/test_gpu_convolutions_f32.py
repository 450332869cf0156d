"""Convolutions of f32 as products, in pieces and in tf32, on the stand-in GPU, beside torch."""

import pytest
import torch
from convolution_models import BATCH, FORMS, Residual, block, ran
from test_gpu_scheduled import BOUNDS, run
from torch import nn

from kitsune_mlir import compile
from kitsune_mlir.bench import zoo
from kitsune_mlir.passes.priced_product import PricedProduct


@pytest.mark.usefixtures("unassembled")
def test_pieces_of_f32(small_gpu):
    module = nn.Sequential(nn.Conv2d(3, 64, 5, stride=2), nn.ReLU(), nn.Conv2d(64, 24, 3, padding=1))
    assert ran(module, (1, 3, 19, 21), small_gpu, torch.float32) == 2


def launched(case, precision):
    """The forms of the launches of a case of the zoo."""
    model, args, _ = zoo.make(f"zoo/{case}-small", "bf16")
    plan = compile(model, args, target="sm_90a", matmul_precision=precision).plan
    return [launch["form"].removeprefix("scheduled ") for launch in plan["launches"]]


@pytest.mark.usefixtures("unassembled")
def test_what_moves_an_image_makes_its_pieces():
    """Those of what a product computed are made by another kernel, or in the next product's."""
    first, second, *rest = launched("conv3x3-f32", "highest")
    assert (first, second, rest[-1]) == ("operator", "product", "product") and len(rest) <= 2


@pytest.mark.usefixtures("unassembled")
def test_a_product_rounds_what_another_multiplies():
    assert launched("conv3x3-f32", "high") == ["operator", "product", "product"]


WORDS = {
    "40 channels last": (
        lambda: Residual(nn.Conv2d(64, 40, 3, padding=1), nn.Conv2d(40, 64, 3, padding=1)),
        (2, 64, 9, 7),
        2,
    ),
    "channels second": (lambda: nn.Conv2d(64, 40, 3, padding=1, stride=2), (2, 64, 9, 7), 1),
    "72 channels": (lambda: nn.Conv2d(72, 40, 3), (2, 72, 9, 7), 1),
    "70 channels": (lambda: nn.Conv2d(70, 40, 3), (1, 70, 9, 7), 1),
    "folded": (lambda: nn.Conv2d(3, 40, 7, stride=2, padding=3), (2, 3, 28, 30), 1),
    "folded, channels last": (
        lambda: Residual(nn.Conv2d(3, 64, 5, padding=2), nn.Conv2d(64, 3, 3, padding=1)),
        (2, 3, 18, 16),
        2,
    ),
    "residual": (lambda: Residual(block(64, 64, 3, padding=1), block(64, 64, 3, padding=1)), (2, 64, 8, 7), 2),
    "one place": (lambda: nn.Conv2d(64, 48, 5, stride=3), (3, 64, 6, 6), 1),
    "volumes": (lambda: nn.Conv3d(64, 32, 3, padding=1), (1, 64, 4, 5, 6), 1),
}


@pytest.mark.parametrize("name", WORDS)
def test_words_of_f32(name, small_gpu, request):
    """In tf32 no numbers are put into pieces: what makes images rounds them, or registers do."""
    if name not in ("residual", "70 channels", "folded"):
        request.getfixturevalue("unassembled")
    make, shape, kernels = WORDS[name]
    device = run(make().eval(), (torch.randn(shape),), small_gpu, precision="high")
    assert device.pipeline_launches == kernels


@pytest.mark.usefixtures("unassembled")
def test_words_of_an_open_number_of_images(small_gpu):
    module = Residual(block(64, 64, 3, padding=1), block(64, 64, 3, padding=1)).eval()
    calls, shapes = [(torch.randn(count, 64, 6, 8),) for count in (1, 3)], {"args": ({0: BATCH},)}
    device = run(module, (torch.randn(2, 64, 6, 8),), small_gpu, calls=calls, dynamic_shapes=shapes, precision="high")
    assert device.pipeline_launches == 2 * 3


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("name", ["channels second", "folded", "residual"])
def test_words_are_rounded_not_cut_off(name, small_gpu, monkeypatch):
    """Of positive numbers, cut off, all sums would be too small: their means are closer where some are too large."""
    monkeypatch.setitem(BOUNDS, "high", 5e-5)
    make, (count, *sizes), _ = WORDS[name]
    model = make().eval()
    for weight in model.parameters():
        weight.data.abs_()
    x = torch.rand(count, *sizes) + 0.5
    assert run(lambda x: model(x).mean((0, 2, 3)), (x,), small_gpu, precision="high").pipeline_launches > 0


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("precision, element", [("highest", "f32"), ("high", "tf32")])
@pytest.mark.parametrize("name", ["padded", "70 channels", "strides of 3", "all different"])
def test_windows_of_f32(name, precision, element, small_gpu, monkeypatch):
    """They come as they are, or rounded: no kernel makes pieces of images before, as one of few images would."""
    if precision == "highest":
        monkeypatch.setattr(PricedProduct, "before_us", lambda _: 1e3)
    make, shape = FORMS[name]
    torch.manual_seed(sum(shape))
    device = run(make().eval(), (torch.randn(shape),), small_gpu, precision=precision)
    assert {map_["element"] for map_ in device.described[0]["maps"] if "steps" in map_} == {element}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_elements_of_a_row_that_lie_apart(dtype, small_gpu):
    """Of a few channels windows are written: of the images' own chunks most would be zeros."""
    module = nn.Sequential(nn.Conv2d(3, 64, (3, 5), dilation=(1, 2), padding=(0, 3), stride=(2, 1)), nn.ReLU())
    assert ran(module, (2, 3, 41, 45), small_gpu, dtype) == 1
