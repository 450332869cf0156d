"""Norms along the channels of images, of open batches, which several sums over a dimension in front read."""

import torch
from functions import on_both
from torch import nn
from torch.export import Dim


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
