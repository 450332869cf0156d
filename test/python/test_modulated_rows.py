"""Norms of tokens by numbers of their image, which are columns of one product: blocks of diffusion transformers."""

import pytest
import torch
from functions import on_both
from torch import nn
from torch.export import Dim

pytestmark = pytest.mark.usefixtures("unassembled")


class Block(nn.Module):
    """A layer behind a norm that is scaled and shifted, and is added by a gate; all three are of an image."""

    def __init__(self):
        super().__init__()
        self.numbers, self.layer = nn.Linear(32, 6 * 64), nn.Linear(64, 64)
        self.norm, self.out = nn.LayerNorm(64, elementwise_affine=False), nn.Linear(64, 64)

    def forward(self, x, image):
        shift, scale, gate, shift2, scale2, gate2 = self.numbers(image.relu()).chunk(6, -1)
        x = x + gate[:, None] * self.layer(self.norm(x) * (1 + scale[:, None]) + shift[:, None])
        return x + gate2[:, None] * self.out(self.norm(x) * (1 + scale2[:, None]) + shift2[:, None])


def test_images_and_tokens_of_any_number():
    torch.manual_seed(0)
    model, sizes = Block().eval(), ({0: Dim.AUTO, 1: Dim.AUTO}, {0: Dim.AUTO})
    for call in on_both(model, (torch.randn(2, 20, 64), torch.randn(2, 32)), dynamic_shapes=sizes):
        for images, tokens in ((2, 20), (3, 33)):
            args = torch.randn(images, tokens, 64), torch.randn(images, 32)
            torch.testing.assert_close(torch.as_tensor(call(*args)), model(*args).detach(), rtol=1e-4, atol=1e-4)
