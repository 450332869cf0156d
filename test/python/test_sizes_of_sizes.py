"""Sizes of inputs that are computed of others': calls whose sizes are not so are refused, and read nothing beyond."""

import pytest
import torch
from torch import nn
from torch.export import Dim

import kitsune_mlir
from kitsune_mlir.errors import UserError
from kitsune_mlir.program import terms_of_symbol

pytestmark = pytest.mark.usefixtures("unassembled")


class Pairs(nn.Module):
    def forward(self, x, y):
        return x.view(-1, 2, 4).sum(1) + y


class Steps(nn.Module):
    def forward(self, x, y):
        return x[:-1] + y


def test_terms_of_symbols():
    assert terms_of_symbol("s7:5:") == ("s7", 1, 0)
    assert terms_of_symbol("2*s7+-1:5:9") == ("s7", 2, -1)
    assert terms_of_symbol("0*s7+1") == ("0*s7+1", 1, 0)  # none of ours


rows = Dim("rows", max=64)


@pytest.mark.parametrize(
    "model, shapes, right, wrong",
    [
        (Pairs(), ({0: 2 * rows}, {0: rows}), ((6, 3), (2, 1), (18, 9)), ((6, 2), (6, 5), (7, 3))),
        (Steps(), ({0: rows + 1}, {0: rows}), ((6, 5), (2, 1), (18, 17)), ((6, 4), (6, 6))),
        (Steps(), ({0: Dim.AUTO}, {0: Dim.AUTO}), ((6, 5), (2, 1), (18, 17)), ((6, 4), (6, 6))),
    ],
)
def test_sizes_must_be_computed_so(model, shapes, right, wrong):
    x, y = torch.randn(20, 4), torch.randn(20, 4)
    m, n = right[0]
    compiled = kitsune_mlir.compile(model, (x[:m], y[:n]), target="cpu", dynamic_shapes=shapes)
    for m, n in right:
        torch.testing.assert_close(compiled(x[:m], y[:n]), model(x[:m], y[:n]))
    for m, n in wrong:
        with pytest.raises(UserError, match="must agree in size|must be 2 times a number"):
            compiled(x[:m], y[:n])
