"""Transposed convolutions as convolutions of as many times as many channels, which are put between one another."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.frontend.convolutions import convolution
from kitsune_mlir.tools.gpusim import Simulation

SAME = [F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d]


@st.composite
def forms(draw):
    """The sizes of an image, and kernel, stride, padding and output padding of each of its dimensions."""
    of = st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 4), st.integers(0, 4), st.integers(0, 3))
    return draw(st.lists(of, min_size=1, max_size=3))


@given(forms(), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.booleans())
@settings(max_examples=150, deadline=None)
def test_the_rule_is_torchs(sizes, groups, inputs, outputs, biased):
    image, kernel, stride, padding, more = (list(own) for own in zip(*sizes, strict=True))
    assume(all(a < b for a, b in zip(more, stride, strict=True)))
    assume(all((n - 1) * s - 2 * p + k + m > 0 for n, k, s, p, m in sizes))
    make = torch.Generator().manual_seed(len(sizes))
    x = torch.randn(2, groups * inputs, *image, dtype=torch.float64, generator=make)
    weight = torch.randn(groups * inputs, outputs, *kernel, dtype=torch.float64, generator=make)
    bias = torch.randn(groups * outputs, dtype=torch.float64, generator=make) if biased else None
    found = convolution(x, weight, bias, stride, padding, [1] * len(sizes), True, more, groups)
    wanted = SAME[len(sizes) - 1](x, weight, bias, stride, padding, more, groups)
    assert found.shape == wanted.shape
    torch.testing.assert_close(found, wanted)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize(
    ("make", "shape", "dtype"),
    [
        (lambda: nn.ConvTranspose2d(16, 8, 4, 2, 1), (2, 16, 5, 6), torch.bfloat16),
        (lambda: nn.ConvTranspose2d(16, 8, 3, 2, 1, 1, groups=2), (1, 16, 5, 6), torch.float16),
        (lambda: nn.ConvTranspose1d(8, 6, 16, 8, 4), (2, 8, 9), torch.float32),
        (lambda: nn.ConvTranspose3d(8, 4, 2, 2), (1, 8, 2, 3, 4), torch.bfloat16),
    ],
    ids=["a GAN's", "of groups", "a vocoder's", "a volume's"],
)
def test_on_a_gpu(make, shape, dtype):
    """The image has no zeros between its elements, and one kernel puts the channels in their places."""
    torch.manual_seed(0)
    model = make().to(dtype).eval()
    x = torch.randn(shape, dtype=dtype)
    compiled = kitsune_mlir.compile(nn.Sequential(model, nn.ReLU()), (x,), target="sm_90a")
    computes = [launch["computes"] for launch in compiled.plan["launches"] if "fill" not in launch["computes"]]
    assert len(computes) <= 4 and computes[-1] == "elementwise"
    wanted = torch.relu(model.double()(x.double())).detach()
    bound = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}[dtype]
    torch.testing.assert_close(
        torch.as_tensor(Simulation(compiled, seed=1)(x)).double(), wanted, rtol=bound, atol=bound
    )


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize(
    ("make", "sizes"),
    [
        (lambda: nn.ConvTranspose1d(64, 16, 16, 8, 4), [(1, 64, 9), (1, 64, 2)]),
        (lambda: nn.ConvTranspose2d(8, 8, 3, 2, 1, (1, 0)), [(2, 8, 5, 6), (2, 8, 7, 3)]),
    ],
    ids=["a vocoder's", "of images"],
)
def test_of_open_sizes(make, sizes):
    """They had the zeros between the elements, and no tensor cores: a vocoder's took 291 us of 388 (predicted)."""
    torch.manual_seed(0)
    model = make().bfloat16().eval()
    names = {i: torch.export.Dim(f"n{i}", min=2, max=99) for i in range(2, len(sizes[0]))}
    args = (torch.randn(sizes[0]).bfloat16(),)
    compiled = kitsune_mlir.compile(model, args, target="sm_90a", dynamic_shapes=(names,))
    assert any("scheduled" in launch["form"] for launch in compiled.plan["launches"])
    for size in sizes:
        x = torch.randn(size).bfloat16()
        found = torch.as_tensor(Simulation(compiled, seed=1)(x))
        torch.testing.assert_close(found, model(x).detach(), rtol=2e-2, atol=2e-2)
