"""Windows of images as columns: what reads them reads the image."""

import pytest
import torch
from functions import Function, computed
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

FORMS = {
    "padded": {"kernel_size": 3, "padding": 1},
    "apart": {"kernel_size": (2, 3), "stride": (2, 1)},
    "dilated": {"kernel_size": 2, "dilation": (3, 2), "padding": (2, 0), "stride": 2},
    "patches": {"kernel_size": 4, "stride": 4},
}


@pytest.mark.parametrize("name", FORMS)
def test_elements(name):
    torch.manual_seed(0)
    for shape in ((2, 3, 8, 12), (3, 8, 12)):
        x = torch.randn(shape)
        compiled = kitsune_mlir.compile(Function(lambda x: F.unfold(x, **FORMS[name])), (x,), target="cpu")
        torch.testing.assert_close(compiled(x), F.unfold(x, **FORMS[name]), rtol=0, atol=0)


FOLDS = {
    "overlapping": {"output_size": (6, 8), "kernel_size": 3, "padding": 1},
    "strides": {"output_size": (9, 11), "kernel_size": (5, 4), "stride": (2, 3), "padding": (1, 0)},
    "elements of no window": {"output_size": (8, 8), "kernel_size": 3, "stride": 2},
    "dilated": {"output_size": (12, 12), "kernel_size": 3, "dilation": (2, 3), "padding": 2},
    "patches": {"output_size": (8, 12), "kernel_size": 4, "stride": 4},
}


@pytest.mark.parametrize("name", FOLDS)
def test_windows_added_up(name):
    torch.manual_seed(0)
    form = FOLDS[name]
    size, rest = form["output_size"], {key: value for key, value in form.items() if key != "output_size"}
    windows = torch.randn_like(F.unfold(torch.randn(2, 3, *size), **rest))
    for x in (windows, windows[0]):
        compiled = kitsune_mlir.compile(Function(lambda x: F.fold(x, **form)), (x,), target="cpu")
        assert "scatter" not in compiled.mlir("prepare-linalg")
        torch.testing.assert_close(compiled(x), F.fold(x, **form))


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_windows_that_are_weighed_are_written_nowhere(dtype, is_open):
    """An involution: a weight for each place and element of the window, which the channels of a group share."""

    class Involution(torch.nn.Module):
        def forward(self, x, weights):
            windows = F.unfold(x, 3, padding=1).view(x.shape[0], 2, 3, 9, 6, 8)
            return (weights.unsqueeze(2) * windows).sum(3).reshape(x.shape[0], 6, 6, 8)

    torch.manual_seed(0)
    x, weights = torch.randn(2, 6, 6, 8).to(dtype), torch.randn(2, 2, 9, 6, 8).to(dtype)
    batch = {0: torch.export.Dim("b")}
    shapes = (batch, batch) if is_open else None
    compiled = kitsune_mlir.compile(Involution(), (x, weights), target="sm_90a", dynamic_shapes=shapes)
    assert computed(compiled) == ["windows"]
    found = torch.as_tensor(Simulation(compiled, seed=1)(x, weights))
    wanted = Involution()(x.double(), weights.double()).to(dtype)
    tolerance = 1e-5 if dtype == torch.float32 else 4e-2  # of nine products that are rounded
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "fold, size",
    [
        (lambda y: F.fold(y, (9, 10), (2, 2), dilation=2, padding=1, stride=2), (2, 12, 25)),
        (lambda y: F.fold(y, (12, 12), 9), (2, 162, 16)),
    ],
)
def test_other_folds_are_torchs(fold, size) -> None:
    """Steps of several elements with gaps between a window's, and windows of many elements."""
    y = torch.randn(size)
    compiled = kitsune_mlir.compile(Function(fold), (y,), target="cpu")
    torch.testing.assert_close(torch.as_tensor(compiled(y)), fold(y), rtol=1e-5, atol=1e-5)


def test_windows_of_an_open_height() -> None:
    x, shapes = torch.randn(2, 3, 8, 9), {"args": ({2: torch.export.Dim("height", min=4)},)}
    compiled = kitsune_mlir.compile(Function(lambda x: F.unfold(x, 3)), (x,), target="cpu", dynamic_shapes=shapes)
    for height in (8, 4, 11):
        x = torch.randn(2, 3, height, 9)
        torch.testing.assert_close(torch.as_tensor(compiled(x)), F.unfold(x, 3))


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("form", [dict(kernel_size=3, padding=1), dict(kernel_size=(2, 3), stride=(1, 2))])
def test_windows_of_open_images(form):
    """No numbers of elements are written."""
    function = Function(lambda x: F.unfold(x.sin(), **form).sum(1))
    sizes = {2: torch.export.Dim("h", min=5, max=99), 3: torch.export.Dim("w", min=7, max=99)}
    compiled = kitsune_mlir.compile(function, (torch.randn(2, 3, 7, 9),), target="sm_90a", dynamic_shapes=((sizes,),))
    assert "gather" not in computed(compiled)
    x = torch.randn(2, 3, 6, 11)
    torch.testing.assert_close(torch.as_tensor(Simulation(compiled, seed=1)(x)), function(x))
