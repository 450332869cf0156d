"""Single products whose sum over k the CTAs of a cluster share, on the stand-in device: right numbers in any order of
warps."""

import pytest
import torch
from test_gpu_chained import TYPES, run
from test_gpu_pipelines import small_gpu  # noqa: F401  (a fixture)
from torch import nn

BF16, F16 = torch.bfloat16, torch.float16


class Residual(nn.Linear):
    def forward(self, x, z):
        return torch.relu(super().forward(x)).float() + z


def check(model, args, target, split, launches=2):
    (launch,) = run(model, args, target, TYPES[args[0].dtype], launches=launches, place=f"split-k={split}")
    assert launch["cluster"] == split
    return launch


@pytest.mark.parametrize(
    "rows, inputs, outputs, split, dtype",
    [
        (1, 256, 64, 2, BF16),
        (300, 520, 200, 2, BF16),
        (130, 1000, 72, 4, F16),
        (16, 1024, 136, 8, BF16),
    ],
    ids=str,
)
def test_products(rows, inputs, outputs, split, dtype, small_gpu):  # noqa: F811
    """Parts of k that are not whole, tiles after one another, rows and columns that threads store."""
    torch.manual_seed(rows)
    check(nn.Linear(inputs, outputs).to(dtype), (torch.randn(rows, inputs, dtype=dtype),), small_gpu, split, 4)


def test_other_rows_beside(small_gpu):  # noqa: F811
    torch.manual_seed(2)
    args = torch.randn(200, 400, dtype=BF16), torch.randn(200, 120)
    check(Residual(400, 120).to(BF16), args, small_gpu, 2)


def test_few_rows_are_split(small_gpu):  # noqa: F811
    """By the planner: one tile and eight SMs."""
    torch.manual_seed(4)
    model, args = nn.Linear(2048, 64).to(BF16), (torch.randn(20, 2048, dtype=BF16),)
    (launch,) = run(model, args, small_gpu, TYPES[BF16], launches=1)
    assert launch["cluster"] == launch["ctas"] == 8
