"""Transposed convolutions of strides above 1: convolutions of the image as it is, with several results an element."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.frontend import convolutions
from kitsune_mlir.tools.gpusim import Simulation

TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


@pytest.mark.parametrize("stride", [2, 3, 4])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_the_rule_is_the_transpose(size, stride):
    x, weight, bias = torch.randn(2, 3, 5).double(), torch.randn(3, 4, size).double(), torch.randn(4).double()
    for padding, more in itertools.product(range(size), range(stride)):
        if 4 * stride - 2 * padding + size + more < 1:
            continue
        wanted = F.conv_transpose1d(x, weight, bias, stride, padding, more)
        found = convolutions.convolution(x, weight, bias, [stride], [padding], [1], True, [more], 1)
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("rank", [2, 3])
def test_more_dimensions(rank):
    sizes = [3, 4, 2], [2, 3, 1], [1, 0, 0], [1, 0, 0]
    filter_, stride, padding, more = (each[:rank] for each in sizes)
    x, weight = torch.randn(2, 3, *[4, 5, 3][:rank]).double(), torch.randn(3, 2, *filter_).double()
    wanted = TRANSPOSED[rank](x, weight, None, stride, padding, more)
    found = convolutions.convolution(x, weight, None, stride, padding, [1] * rank, True, more, 1)
    torch.testing.assert_close(found, wanted)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("size, padding", [(2, 0), (4, 1)])
def test_no_zeros_lie_between_elements(size, padding, small_gpu):
    model = nn.ConvTranspose2d(16, 24, size, 2, padding).bfloat16().requires_grad_(False)
    x = torch.randn(3, 16, 6, 5).bfloat16()
    compiled = kitsune_mlir.compile(model, (x,), target=small_gpu, dynamic_shapes=({0: torch.export.Dim("batch")},))
    kernels = [launch["kernel"].split("_")[0] for launch in compiled.plan["launches"]]
    assert kernels.count("product0") == 1 and not set(kernels) & {"fill", "copy", "windows"}
    wanted = model.double()(x.double())
    found = torch.as_tensor(Simulation(compiled)(x)).double()
    assert (found - wanted).norm() <= 1e-2 * wanted.norm()
