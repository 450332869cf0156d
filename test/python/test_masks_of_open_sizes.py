"""Masks of open sizes have those of what they select of: of the example, of others, and where a call has none."""

import copy

import pytest
import torch
from torch import nn
from torch.export import Dim

import kitsune_mlir
from kitsune_mlir.errors import UserError

pytestmark = pytest.mark.usefixtures("unassembled")


class Masked(nn.Module):
    """Sets to one vector what a mask of the first dimensions, or of the second alone, selects."""

    def __init__(self, first: int):
        super().__init__()
        self.first = first
        self.vector = nn.Parameter(torch.arange(4.0))

    def forward(self, x, mask):
        x = x.clone()
        if self.first:
            x[:, mask] = self.vector
        else:
            x[mask] = self.vector
        return x * 2


class Taken(nn.Module):
    def forward(self, x, mask):
        return x[mask].sum()


def _args(first: int, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, columns, 4), torch.rand(rows, columns)[0 if first else slice(None)] < 0.5


@pytest.mark.parametrize("module, first", [(Masked(0), 0), (Masked(1), 1), (Taken(), 0)])
@pytest.mark.parametrize("named", [False, True])
def test_masks_have_the_sizes_of_what_they_select_of(module, first, named):
    """However the sizes are named: torch asks only of tensors whether a mask's are those of what is set."""
    rows, columns = (Dim("rows"), Dim("columns")) if named else (Dim.AUTO, Dim.AUTO)
    shapes = ({0: rows, 1: columns}, {0: columns} if first else {0: rows, 1: columns})
    compiled = kitsune_mlir.compile(module, _args(first, 3, 5), target="cpu", dynamic_shapes=shapes)
    for sizes in ((3, 5), (7, 1), (1, 9)):
        args = _args(first, *sizes)
        torch.testing.assert_close(compiled(*args), module(*copy.deepcopy(args)))
    x, mask = _args(first, 4, 7)
    with pytest.raises(UserError, match="must agree in size"):
        compiled(x, mask[:3])
