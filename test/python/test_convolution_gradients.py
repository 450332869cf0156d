"""Gradients of drawn convolutions, on both targets, against float64: any groups, strides, paddings, types."""

import random

import pytest
import torch
from functions import Function

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")
KINDS = {torch.float32: 2e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}  # errors, of the largest number


class Drawn:
    """A convolution's gradients, and what they are of; `few` channels a group."""

    def __init__(self, seed: int, few: bool):
        draw, self.generator = random.Random(seed), torch.Generator().manual_seed(seed)
        dims = draw.choice([1, 2, 2, 2, 3])
        self.transposed = draw.random() < 0.2
        most = {1: 40, 2: 7, 3: 3}[dims]
        self.kernel = [draw.randint(1, most) for _ in range(dims)]
        self.stride = [draw.choice([1, 1, 2, 3]) for _ in range(dims)]
        self.dilation = [draw.choice([1, 1, 1, 2]) for _ in range(dims)]
        self.padding = [draw.randint(0, d * (k - 1) // 2) for k, d in zip(self.kernel, self.dilation)]
        self.groups = draw.choice([2, 3, 8, 17, 40] if few else [1, 1, 2])
        self.inputs = draw.choice([1, 1, 1, 2, 3, 4] if few else [3, 16, 20])
        self.outputs = draw.choice([1, 1, 1, 2, 4] if few else [16, 24, 9])
        if dims == 3:
            self.groups = min(self.groups, 8)
        self.kind = draw.choice(list(KINDS))
        least = [d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation)]
        self.sizes = [n + draw.randint(0, {1: 60, 2: 14, 3: 5}[dims]) for n in least]
        self.batch = draw.randint(1, 3)

    def arguments(self, batch: int) -> tuple[torch.Tensor, ...]:
        """The result's gradient, the input and the filters."""
        ends = (self.groups * self.inputs, self.groups * self.outputs)
        x = self._numbers(batch, ends[1 if self.transposed else 0], *self.sizes)
        w = self._numbers(ends[1], self.inputs, *self.kernel)
        return torch.zeros_like(self._result(x, w)).copy_(self._numbers(*self._result(x, w).shape)), x, w

    def _numbers(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self.generator).to(self.kind)

    def _result(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        form = (self.stride, self.padding, self.dilation, self.transposed, [0] * len(self.kernel), self.groups)
        return torch.ops.aten.convolution(x, w, None, *form)

    def __call__(self, g: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        bias = [g.shape[1]]
        form = (self.stride, self.padding, self.dilation, self.transposed, [0] * len(self.kernel), self.groups)
        return torch.ops.aten.convolution_backward(g, x, w, bias, *form, [True, True, True])


def check(drawn: Drawn, target: str, is_open: bool) -> None:
    args = drawn.arguments(drawn.batch + 1 if is_open else drawn.batch)
    batch = torch.export.Dim("batch", min=1, max=64)
    shapes = (({0: batch}, {0: batch}, None),) if is_open else None
    compiled = kitsune_mlir.compile(Function(drawn), args, target=target, dynamic_shapes=shapes)
    run = compiled if target == "cpu" else Simulation(compiled, seed=1)
    for given in (args, drawn.arguments(5)) if is_open else (args,):
        wanted = drawn(*(arg.double() for arg in given))
        for found, true in zip(run(*given), wanted, strict=True):
            found = torch.as_tensor(found)
            assert found.shape == true.shape and found.dtype == drawn.kind
            assert (found - true).abs().max() <= KINDS[drawn.kind] * true.abs().max(), vars(drawn)


@pytest.mark.parametrize("target", ["cpu", "small"])
@pytest.mark.parametrize("seed", range(12))
def test_few_channels_a_group(seed, target, small_gpu):
    check(Drawn(seed, few=True), small_gpu if target == "small" else target, is_open=seed % 4 == 3)


@pytest.mark.parametrize("target", ["cpu", "small"])
@pytest.mark.parametrize("seed", range(6))
def test_many_channels(seed, target, small_gpu):
    check(Drawn(seed, few=False), small_gpu if target == "small" else target, is_open=seed % 3 == 2)


@pytest.mark.parametrize(
    ("kind", "channels", "kernel", "stride", "dilation", "padding"),
    [
        (torch.bfloat16, 64, [3, 3], [1, 1], [1, 1], [1, 1]),
        (torch.float16, 96, [3, 2], [1, 2], [2, 1], [0, 2]),
        (torch.float32, 64, [5], [2], [1], [2]),
    ],
)
def test_windows_are_in_no_memory(kind, channels, kernel, stride, dilation, padding, small_gpu):
    """Of whole chunks of channels, or nearly so, a product reads them from the images."""
    torch.manual_seed(0)
    form = (stride, padding, dilation, False, [0] * len(kernel), 1)
    x = torch.randn(2, channels, *[9, 11][: len(kernel)]).to(kind)
    w = torch.randn(40, channels, *kernel).to(kind)
    g = torch.randn(torch.ops.aten.convolution(x, w, None, *form).shape).to(kind)

    def of_filters(g, x, w):
        return torch.ops.aten.convolution_backward(g, x, w, None, *form, [False, True, False])[1]

    compiled = kitsune_mlir.compile(Function(of_filters), (g, x, w), target=small_gpu)
    columns = torch.Size(kernel).numel() * 64 * -(-channels // 64)
    products = [one["computes"] for one in compiled.plan["launches"] if "product" in one["form"]]
    assert len(products) == 1 and f"40x{columns}, k " in products[0]
    found, wanted = torch.as_tensor(Simulation(compiled)(g, x, w)), of_filters(g.double(), x.double(), w.double())
    assert (found - wanted).abs().max() <= KINDS[kind] * wanted.abs().max()


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32])
def test_single_elements_are_a_batch(kind, groups, small_gpu):
    """Gradients of filters of single elements are products of images as they lie, one for each, which are added up."""
    torch.manual_seed(0)
    form = ([1, 1], [0, 0], [1, 1], False, [0, 0], groups)
    g, x, w = (torch.randn(shape).to(kind) for shape in ((3, 40, 8, 13), (3, 24, 8, 13), (40, 24 // groups, 1, 1)))

    def of_filters(g, x, w):
        return torch.ops.aten.convolution_backward(g, x, w, None, *form, [False, True, False])[1]

    compiled = kitsune_mlir.compile(Function(of_filters), (g, x, w), target=small_gpu)
    if kind == torch.bfloat16:
        first = compiled.plan["launches"][0]["computes"]
        assert first.startswith(f"{3 * groups}x{40 // groups}x{24 // groups}, ")
    found, wanted = torch.as_tensor(Simulation(compiled)(g, x, w)), of_filters(g.double(), x.double(), w.double())
    assert found.shape == w.shape
    assert (found - wanted).abs().max() <= KINDS[kind] * wanted.abs().max()
