"""Functions of torch that its own trace does not get through, of open sizes or at all."""

import pytest
import torch
import torch.nn.functional as F
from decomposed_functions import TARGETS, results
from functions import Function
from torch import linalg

import kitsune_mlir
from kitsune_mlir import UserError


def of_open_sizes(x):
    rows = x[:, 0]
    return (
        torch.cdist(rows, x[:, 1]),
        torch.cdist(x, x[0], p=1.0),
        *torch.gradient(x, spacing=0.5),
        torch.gradient(x, dim=-1)[0],
        torch.take_along_dim(x, x.argsort(1), 1),
        x.take_along_dim(x.argmax(1, keepdim=True), 1),
        x.take_along_dim(x.argmax()),
        torch.kron(rows, torch.eye(2)),
        torch.vander(rows[:, 0], 3),
        linalg.vander(rows[:, 0], N=4),
        linalg.multi_dot([rows, x[0].T, x[1]]),
        F.affine_grid(x[:, :2, :3], [x.shape[0], 1, x.shape[0] + 1, 5], align_corners=False),
        F.affine_grid(x[:, :2, :3], [x.shape[0], 1, 4, x.shape[0]], align_corners=True),
        F.affine_grid(x[:2, :3], [2, 1, 4, x.shape[0], 3], align_corners=False),
    )


def of_data(x):
    rows = x[:, 0]
    return (
        torch.cov(rows),
        rows[:, 0].cov(correction=0),
        torch.corrcoef(rows.T),
        torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -8, 7),
        torch.fake_quantize_per_tensor_affine(x, torch.tensor(0.3), torch.tensor(2, dtype=torch.int32), 0, 5),
        torch.fake_quantize_per_channel_affine(x, torch.arange(1, 5) / 7, torch.arange(4, dtype=torch.int32), 2, 0, 9),
        torch.combinations(x[0, 0]),
        torch.combinations(x[0, 0], 3, with_replacement=True),
        F.gaussian_nll_loss(x, 2 * x, x.abs()),
        F.gaussian_nll_loss(x, 2 * x, x.abs()[..., 0], full=True, reduction="none"),
    )


def test_as_torch_computes_them():
    model = Function(lambda x: (*of_open_sizes(x), *of_data(x)))
    size = {0: torch.export.Dim("n", min=3)}
    compiled = kitsune_mlir.compile(model, (torch.randn(5, 6, 4),), dynamic_shapes=((size,),))
    x = torch.randn(9, 6, 4)
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", TARGETS)
def test_counts_of_a_known_number_of_bins(target):
    """Confusions of classes, and sums of weights: what has no bin is out of range."""

    def confusion(x, weights):
        counts = torch.bincount(x % 3 * 3 + x % 2, minlength=9).reshape(3, 3)
        sums = torch.bincount(x, weights, minlength=8), x.int().bincount(weights.double(), 8)
        return counts, *sums, counts.diag() / counts.sum()

    x, weights = torch.randint(0, 8, (37,)), torch.rand(37)
    for found, wanted in zip(results(confusion, x, weights, target=target), confusion(x, weights), strict=True):
        torch.testing.assert_close(found, wanted)
    if target == "cpu":
        compiled = kitsune_mlir.compile(Function(lambda x: torch.bincount(x, minlength=8)), (x,))
        with pytest.raises(UserError, match="out of range"):
            compiled(x + 8)
