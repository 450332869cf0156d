"""Decibels below the loudest of all, as spectrograms have them: one number beside operands in another order."""

import pytest
import torch
from functions import on_both
from torch import nn
from torch.export import Dim

pytestmark = pytest.mark.usefixtures("unassembled")


class Cepstrum(nn.Module):
    """Powers at the bands of a scale, in decibels, and their cosine transform, as torchaudio computes them."""

    def __init__(self):
        super().__init__()
        self.bands, self.cosines = (nn.Parameter(torch.rand(shape)) for shape in ((9, 16), (16, 8)))

    def forward(self, x):
        found = torch.log10((x.transpose(1, 2) @ self.bands).transpose(1, 2).clamp(min=1e-5))
        shape = found.size()
        found = found.reshape(-1, shape[-3], shape[-2], shape[-1])
        found = torch.max(found, (found.amax((-3, -2, -1)) - 1).view(-1, 1, 1, 1)).reshape(shape)
        return (found.transpose(-1, -2) @ self.cosines).transpose(-1, -2)


def test_one_number_beside_turned_operands():
    torch.manual_seed(0)
    model = Cepstrum().eval()
    for call in on_both(model, (torch.rand(2, 9, 40),), dynamic_shapes=({0: Dim.AUTO, 2: Dim.AUTO},)):
        for batch, length in ((2, 40), (3, 13)):
            x = torch.rand(batch, 9, length)
            torch.testing.assert_close(torch.as_tensor(call(x)), model(x).detach(), rtol=1e-4, atol=1e-4)
