"""Models of tensors without elements."""

import pytest
import torch
from torch import nn

import kitsune_mlir

MODELS = {
    "no rows through a normalisation": (nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU()), (0, 8)),
    "no columns in a product": (lambda x: x @ torch.ones(0, 5) + 1, (4, 0)),
    "a view of nothing": (lambda x: torch.cat([x.flatten(0, -2).view(2, 0, 3), torch.ones(2, 4, 3)], 1), (2, 0, 3)),
    "a sum of nothing": (lambda x: x.sum(0), (0, 5)),
    "writes of nothing": (
        lambda x: torch.ones(2, 4).index_put((x[..., 0].long(), x[..., 0].long()), x[..., 0], accumulate=True),
        (0, 5, 2),
    ),
    "sums by no numbers": (lambda x: torch.ones(2, 4).index_add(0, x[:, 0].long(), x), (0, 4)),
    "parts of no numbers": (
        lambda x: torch.ones(2, 4).scatter_reduce(1, x.long(), x, "amax") + torch.zeros(2, 4).scatter(1, x.long(), 1.0),
        (2, 0),
    ),
    "views at the end": (lambda x: (x * 2).view(0, 4), (2, 0, 2)),
}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
def test_models(name, target):
    body, shape = MODELS[name]
    model = body.eval() if isinstance(body, nn.Module) else _Of(body)
    x = torch.randn(shape)
    compiled = kitsune_mlir.compile(model, (x,), target=target)
    if target == "cpu":
        torch.testing.assert_close(compiled(x), model(x).detach())


class _Of(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return self.body(x)


def test_no_columns_of_an_open_number_of_rows():
    """A loop over columns that begins before the first takes such slices."""
    model, rows = (
        _Of(lambda x: x[:, 2] - torch.einsum("bik,bk->bi", x[:, 1:, :0], x[:, 0, :0])),
        torch.export.Dim("rows"),
    )
    compiled = kitsune_mlir.compile(model, (torch.randn(3, 4, 3),), dynamic_shapes=({0: rows},))
    x = torch.randn(5, 4, 3)
    torch.testing.assert_close(compiled(x), model(x))


@pytest.mark.parametrize("tokens", [0, 2])
def test_no_tokens_of_an_open_number_of_images(tokens):
    """A parameter of no rows is repeated for each image: the size comes to it as a number."""
    registers, images = nn.Parameter(torch.randn(1, tokens, 3)), torch.export.Dim("images")
    model = _Of(lambda x: torch.cat([registers.expand(x.shape[0], -1, -1), x * 2], 1))
    compiled = kitsune_mlir.compile(model, (torch.randn(3, 4, 3),), dynamic_shapes=({0: images},))
    x = torch.randn(5, 4, 3)
    torch.testing.assert_close(compiled(x), model(x).detach())
