"""Sums over rows of open images that are made of what others of them read."""

import torch
from torch import nn
from torch.export import Dim

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation


class ChannelNorm(nn.Module):
    """A norm over the channels of images as ConvNeXt's models write it, of what elementwise operators gave."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(x) * 2
        apart = x - x.mean(1, keepdim=True)
        return apart * torch.rsqrt(apart.square().mean(1, keepdim=True) + 1e-6)


def test_channels_of_open_images_are_normalised():
    args = (torch.randn(16, 152, 30, 63, dtype=torch.bfloat16),)
    compiled = kitsune_mlir.compile(ChannelNorm(), args, target="sm_90a", dynamic_shapes=({0: Dim("batch")},))
    x = torch.randn(1, 152, 30, 63, dtype=torch.bfloat16)
    y = Simulation(compiled)(x)
    assert (y.double() - ChannelNorm()(x.double())).abs().max() < 0.05
