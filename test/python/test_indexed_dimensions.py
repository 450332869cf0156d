"""x[:, places]: elements of one dimension by number, behind others (frontend/indexing.py)."""

import pytest
import torch
from functions import Function

import kitsune_mlir
from kitsune_mlir.errors import UserError

CASES = {
    "a line": (lambda x, i: x[:, i], torch.tensor([0, -1, 3, -5])),
    "a matrix": (lambda x, i: x[:, :, i], torch.tensor([[0, -1], [3, -7]])),
    "the last": (lambda x, i: x[..., i], torch.tensor([0, -1, 3])),
    "narrow numbers": (lambda x, i: x[:, i], torch.tensor([0, -1], dtype=torch.int32)),
    "one": (lambda x, i: x[:, i], torch.tensor(-2)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("is_open", [False, True])
def test_places(name, is_open):
    """No table holds the numbers of the other dimensions."""
    function, places = CASES[name]
    x, batch = torch.randn(3, 5, 7, 4), torch.export.Dim("batch", min=2)
    shapes = {"args": ({0: batch}, None)} if is_open else None
    compiled = kitsune_mlir.compile(Function(function), (x, places), dynamic_shapes=shapes)
    assert ": index to i64" not in compiled.mlir("linalg")
    x = torch.randn(4, 5, 7, 4) if is_open else x
    torch.testing.assert_close(torch.as_tensor(compiled(x, places)), function(x, places), rtol=0, atol=0)


@pytest.mark.parametrize("place", [5, -6])
def test_places_out_of_range(place):
    x, function = torch.randn(3, 5, 7, 4), CASES["a line"][0]
    compiled = kitsune_mlir.compile(Function(function), (x, torch.tensor([0, 1])))
    with pytest.raises(UserError, match="out of range"):
        compiled(x, torch.tensor([0, place]))
