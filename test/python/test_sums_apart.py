"""Norms along the channels of images, of open batches, which several sums over a dimension in front read."""

import torch
from functions import on_both
from torch import nn
from torch.export import Dim

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation


class Dense(nn.Module):
    """A layer of a dense network: what went before is concatenated, and each pixel normed along its channels."""

    def __init__(self):
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(256), nn.Conv2d(256, 16, 1)

    def forward(self, x, y):
        both = torch.cat([x, y], 1)
        normed = self.norm(both.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return torch.cat([both, self.layer(normed)], 1)


def test_norms_of_channels_of_open_batches():
    torch.manual_seed(0)
    model, sizes = Dense().eval(), ({0: Dim.AUTO}, {0: Dim.AUTO})
    args = tuple(torch.randn(2, channels, 16, 16) for channels in (128, 128))
    for call in on_both(model, args, dynamic_shapes=sizes):
        for batch in (2, 3):
            args = tuple(torch.randn(batch, channels, 16, 16) for channels in (128, 128))
            found = torch.as_tensor(call(*args))
            torch.testing.assert_close(found, model(*args).detach(), atol=1e-5, rtol=1e-5)


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
