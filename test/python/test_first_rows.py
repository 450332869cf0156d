"""The first rows of a computed tensor, as many as another input has: not all of its rows, whatever names its size."""

import pytest
import torch
from functions import on_both
from torch import nn
from torch.export import Dim


class Streams(nn.Module):
    """Two sequences that go through layers as one, and are taken apart again, as prophets of several words do."""

    def __init__(self, dim):
        super().__init__()
        self.dim, self.layer, self.norm = dim, nn.Linear(16, 16), nn.LayerNorm(16)

    def forward(self, x, y):
        both = self.norm(self.layer(torch.cat([x, y], self.dim)).relu())
        return both.narrow(self.dim, 0, x.shape[self.dim]), both.narrow(self.dim, x.shape[self.dim], y.shape[self.dim])


@pytest.mark.parametrize("dim", [0, 1])
def test_rows_of_another_input(dim):
    torch.manual_seed(0)
    model = Streams(dim).eval()
    sizes = ({dim: Dim.AUTO}, {dim: Dim.AUTO})

    def drawn(first, second):
        shapes = ((n, 3, 16) if dim == 0 else (3, n, 16) for n in (first, second))
        return tuple(torch.randn(shape) for shape in shapes)

    for call in on_both(model, drawn(5, 9), dynamic_shapes=sizes):
        for first, second in ((5, 9), (7, 13), (9, 5)):
            args = drawn(first, second)
            for found, wanted in zip(call(*args), model(*args), strict=True):
                torch.testing.assert_close(torch.as_tensor(found), wanted, atol=1e-5, rtol=1e-5)
