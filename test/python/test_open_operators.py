"""Operators whose results, places or numbers depend on sizes that are open until the call."""

import math

import pytest
import torch
from functions import Function
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")


def counted(x):
    count, numbers = x.shape[1], torch.arange(5)
    longest = max(count, 10)
    sizes = math.ceil(count / 3), math.floor(count / 2), longest, min(count, 8)
    taken = count - x, count // (numbers + 1), numbers % count, torch.div(numbers, count, rounding_mode="trunc")
    return *taken, *(x.sum(1) * size for size in sizes), x.new_ones(longest), F.pad(x, (0, longest - count))


def picked(x, i):
    """Places of dimensions that do not lie side by side."""
    image = x[:3].view(3, 2, 2, -1)
    return image[i, :, i % 2], image[i[:, None], :, i[None] % 2], image[:, i % 2, :, 0]


def pooled(x):
    """Pools that leave a dimension as long as it is, and parts of open sizes."""
    image = torch.stack([x, x * 2])
    rows, columns = F.adaptive_avg_pool2d(image, (None, 1)), F.adaptive_avg_pool2d(image, (1, None))
    return torch.split(torch.cat([rows, columns.mT], 1), [x.shape[0], x.shape[1]], 1)


def transformed(x):
    return torch.fft.rfft(x[:, :8]).abs(), torch.view_as_real(torch.fft.fft2(x[:2, :4].view(1, 2, 4) * x[:, None, :1]))


def spectrum(x):
    return torch.stft(x, 8, 4, window=torch.ones(8), return_complex=True).abs()


class Padded(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(F.pad(x, (4, 0)))


ROWS, COLUMNS = torch.export.Dim("rows", min=4, max=9), 4 * torch.export.Dim("quarter", min=2, max=9)


@pytest.mark.parametrize("function", [counted, picked, pooled, transformed, spectrum])
def test_open_sizes(function):
    torch.manual_seed(0)

    def arguments(rows, columns, places):
        return (torch.randn(rows, columns), torch.randint(-2, 3, (places,)))[: 1 + (function is picked)]

    shapes = ({0: ROWS, 1: COLUMNS}, {0: torch.export.Dim("places", min=2)})
    shapes = shapes[: 1 + (function is picked)]
    compiled = kitsune_mlir.compile(Function(function), arguments(6, 12, 4), dynamic_shapes=(shapes,))
    for sizes in ((6, 12, 4), (4, 8, 7), (9, 20, 2)):
        args = arguments(*sizes)
        torch.testing.assert_close(compiled(*args), function(*args), rtol=1e-5, atol=1e-5)


def test_numbers_between_two():
    def function(x):
        rows, columns = x.shape[2:]
        grid = torch.meshgrid(torch.linspace(-1, 1, rows), torch.linspace(-1, 1, steps=columns), indexing="ij")
        return torch.linspace(3, 1, columns, dtype=torch.float64), F.grid_sample(
            x, torch.stack(grid, -1)[None].sin(), align_corners=True
        )

    shapes = (({2: torch.export.Dim("h", min=2, max=9), 3: torch.export.Dim("w", min=2, max=9)},),)
    compiled = kitsune_mlir.compile(Function(function), (torch.randn(1, 3, 6, 5),), dynamic_shapes=shapes)
    for size in ((6, 5), (2, 9), (7, 3)):
        x = torch.randn(1, 3, *size)
        for found, wanted in zip(compiled(x), function(x), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_filters_of_each_image_of_any_number():
    """As many groups as images, forward and transposed, which an open batch has in one dimension with the channels."""

    def function(x, w):
        images = x.flatten(0, 1).unsqueeze(0)
        direct = F.conv2d(images, w.flatten(0, 1), stride=(2, 1), padding=(1, 0), groups=x.shape[0])
        other = F.conv_transpose2d(images, w.transpose(1, 2).flatten(0, 1), None, 2, 1, 1, groups=x.shape[0])
        return direct.unflatten(1, (x.shape[0], -1)), other.unflatten(1, (x.shape[0], -1))

    batch = torch.export.Dim("batch", min=2, max=9)
    args = torch.randn(3, 4, 6, 5), torch.randn(3, 2, 4, 3, 3)
    compiled = kitsune_mlir.compile(Function(function), args, target="cpu", dynamic_shapes=(({0: batch}, {0: batch}),))
    for count in (3, 5):
        args = torch.randn(count, 4, 6, 5), torch.randn(count, 2, 4, 3, 3)
        for found, wanted in zip(compiled(*args), function(*args), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_averages_of_images_with_channels_last():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.AdaptiveAvgPool2d(1)).to(
        memory_format=torch.channels_last
    )
    x = torch.randn(3, 3, 8, 8).to(memory_format=torch.channels_last)
    with torch.no_grad():
        shapes = ({0: torch.export.Dim("batch", min=1, max=9)},)
        compiled = kitsune_mlir.compile(model, (x,), target="cpu", dynamic_shapes=shapes)
        torch.testing.assert_close(compiled(x[:2]), model(x[:2]), rtol=1e-5, atol=1e-6)


def test_channels_that_are_joined_beside_open_sizes(gpu_of):
    """Convolutions of few channels, of any number of images of any length, are products of windows."""
    layer = torch.nn.Conv1d(4, 8, 3, dilation=2).bfloat16()
    shapes = ({0: torch.export.Dim("images", min=2), 2: torch.export.Dim("length", min=8, max=99)},)
    x = torch.randn(2, 4, 20).bfloat16()
    with torch.no_grad():
        compiled = kitsune_mlir.compile(Padded(layer), (x,), target=gpu_of(4), dynamic_shapes=shapes)
        for size in ((2, 4, 20), (3, 4, 33)):
            x = torch.randn(size).bfloat16()
            torch.testing.assert_close(Simulation(compiled)(x), Padded(layer)(x), rtol=2e-2, atol=2e-2)


def test_convolutions_of_images_of_open_sizes(gpu_of):
    """A linear layer of what each filter sees, in one kernel on tensor cores; a single filter is summed by threads."""
    layers = torch.nn.Conv2d(8, 16, 3, (2, 1), (1, 2), (1, 2)), torch.nn.Conv2d(16, 1, 3)
    model = torch.nn.Sequential(*layers).bfloat16().eval()
    shapes = ({2: torch.export.Dim("height", min=6, max=99), 3: torch.export.Dim("width", min=6, max=99)},)
    x = torch.randn(2, 8, 12, 10).bfloat16()
    with torch.no_grad():
        compiled = kitsune_mlir.compile(model, (x,), target=gpu_of(4), dynamic_shapes=shapes)
        forms = [launch["form"] for launch in compiled.plan["launches"]]
        assert sum("scheduled" in form for form in forms) == 1, forms
        for size in ((2, 8, 12, 10), (2, 8, 7, 13)):
            x = torch.randn(size).bfloat16()
            torch.testing.assert_close(Simulation(compiled)(x), model(x), rtol=2e-2, atol=2e-2)


def test_patches_of_an_open_number_of_rows(gpu_of):
    """Sizes behind the open one are put together otherwise."""

    def function(x):
        cut = F.pad(x, (0, 0, 0, -x.shape[1] % 4)).reshape(x.shape[0], -1, 4 * 6)
        return (cut * cut.mean(1, keepdim=True)).reshape(x.shape[0], -1, 6)[:, : x.shape[1]]

    shapes = (({0: torch.export.Dim("batch", min=2, max=9)},),)
    compiled = kitsune_mlir.compile(
        Function(function), (torch.randn(3, 10, 6),), target=gpu_of(4), dynamic_shapes=shapes
    )
    for count in (3, 5):
        x = torch.randn(count, 10, 6)
        torch.testing.assert_close(torch.as_tensor(Simulation(compiled)(x)), function(x))


def test_computed_heads_that_lines_of_an_open_length_are_copied_from(small_gpu):
    """What computes the left operand of a product for each head writes lines that tensor copies take: no copy of it."""

    class Difference(torch.nn.Module):
        def forward(self, maps, values):
            batch, heads, tokens, _ = maps.shape
            pairs = maps.view(batch, heads // 2, 2, tokens, tokens)
            return (pairs[:, :, 0] - 0.5 * pairs[:, :, 1]) @ values

    def example(batch, tokens):
        shapes = (batch, 4, tokens, tokens), (batch, 2, tokens, 128)
        return [torch.randn(shape).bfloat16() for shape in shapes]

    batch, tokens = torch.export.Dim("batch"), torch.export.Dim("tokens", min=2)
    shapes = {0: batch, 2: tokens, 3: tokens}, {0: batch, 2: tokens}
    compiled = kitsune_mlir.compile(Difference(), tuple(example(2, 100)), target=small_gpu, dynamic_shapes=shapes)
    assert [launch["kernel"][:7] for launch in compiled.plan["launches"]] == ["element", "product"]
    maps, values = example(3, 37)
    wanted = Difference()(maps.double(), values.double())
    torch.testing.assert_close(
        torch.as_tensor(Simulation(compiled, seed=1)(maps, values)).double(), wanted, rtol=2e-2, atol=1e-1
    )
