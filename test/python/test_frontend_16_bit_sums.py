"""Whatever sums or multiplies 16-bit numbers does so in f32 and rounds once, as torch does; and the norms of f32."""

import math

import pytest
import torch
from decomposed_functions import TARGETS, check_error, error, results
from torch.nn import functional as F

import kitsune_mlir

pytestmark = pytest.mark.usefixtures("unassembled")

NARROW = [torch.bfloat16, torch.float16]


def normal(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


ROWS, COLUMNS, SQUARES = normal(4, 1000), normal(64, 1000), normal(3, 20, 50)
NEAR_ONE = 1 + torch.randint(-8, 9, (4, 1000), generator=torch.Generator().manual_seed(0)) / 128

SUMS = {
    "norm": (lambda x: x.norm(dim=-1), ROWS),
    "norm of columns": (lambda x: x.norm(dim=0, keepdim=True), COLUMNS),
    "norm of all": (lambda x: x.norm(), ROWS),
    "sum of sizes": (lambda x: x.norm(p=1, dim=-1), ROWS),
    "cubes": (lambda x: x.norm(p=3, dim=-1), ROWS),
    "roots": (lambda x: torch.linalg.vector_norm(x * 1e-3, 0.5, dim=-1), ROWS),
    "count": (lambda x: torch.linalg.vector_norm(x, 0, dim=-1), ROWS),
    "of one matrix": (lambda x: torch.linalg.norm(x, dim=(0, 1)), SQUARES),
    "of matrices": (lambda x: torch.linalg.matrix_norm(x), SQUARES),
    "normalized": (lambda x: F.normalize(x, dim=-1), ROWS),
    "cosine": (lambda x: F.cosine_similarity(x, x.roll(1, -1), dim=-1), ROWS),
    "distance of pairs": (lambda x: F.pairwise_distance(x, x.roll(1, -1)), ROWS),
    "distance": (lambda x: torch.dist(x, x.roll(1, -1)), ROWS),
    "margins": (lambda x: F.triplet_margin_loss(x, x.roll(1, -1), x.roll(2, -1), 50, reduction="none"), ROWS),
    "mean of a variance": (lambda x: torch.var_mean(x, 0, keepdim=True)[1] * 2, COLUMNS + 4),
    "standardized": (lambda x: (lambda v, m: (x - m) / v)(*torch.var_mean(x, 0, keepdim=True)), COLUMNS),
    "running logarithm": (lambda x: x.logcumsumexp(-1), ROWS),
    "product": (lambda x: x.prod(-1), NEAR_ONE),
    "product of all": (lambda x: x.prod(), NEAR_ONE[:, :100]),
}


# Of f16, whose range is short: sums of powers, sums that are long, products, exponents.
OF_F16 = ("norm", "sum of sizes", "cubes", "roots", "standardized", "running logarithm", "product of all")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "name, dtype",
    [(name, dtype) for name in SUMS for dtype in NARROW if dtype == torch.bfloat16 or name in OF_F16],
    ids=str,
)
def test_16_bit_sums(name, dtype, target):
    function, x = SUMS[name]
    check_error(function, x.to(dtype), target=target)


ORDERS = (0, 0.5, 1, 2, 3, -1, math.inf, -math.inf)
NORMS = {
    **{str(p): lambda x, p=p: torch.linalg.vector_norm(x, p, (0, 2)) for p in ORDERS},
    "all": lambda x: torch.linalg.norm(x),
    "of two": lambda x: torch.linalg.norm(x, dim=(0, 1)),
    "of rows": lambda x: torch.linalg.norm(x, 3, 1, keepdim=True),
    "of matrices": lambda x: torch.linalg.norm(x, -1, (0, 2), keepdim=True),
    "of Frobenius": lambda x: torch.linalg.norm(x, "fro", (1, 2)),
    "in f64": lambda x: torch.linalg.vector_norm(x, dtype=torch.float64),
}


@pytest.mark.parametrize("name", NORMS)
def test_norms_of_f32(name):
    check_error(NORMS[name], SQUARES, target="cpu", least=2e-7)


def side_by_side(*tensors):
    return torch.cat([x.flatten() for x in tensors])


VARIANCES = {
    "of rows": lambda x: side_by_side(x.var(-1), x.std(-1, keepdim=True), x.std(2, unbiased=False)),
    "of all": lambda x: side_by_side(x.var(), x.std(), torch.std(x, correction=3), x.var(unbiased=False)),
    "of two": lambda x: side_by_side(torch.var(x, (0, -1), correction=2), *torch.std_mean(x, (0, 1), keepdim=True)),
    "with means": lambda x: side_by_side(*torch.var_mean(x, 1), *torch.var_mean(x), *torch.std_mean(x, correction=0)),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", VARIANCES)
def test_variances(name, target):
    """In f32: those of 16-bit numbers are rounded once, the standard deviation like them."""
    check_error(VARIANCES[name], SQUARES + 2, target=target, least=3e-7)
    if target == "cpu":
        check_error(VARIANCES[name], (SQUARES + 2).bfloat16(), target=target)
        check_error(VARIANCES[name], (SQUARES + 2).double(), target=target, least=1e-15)


def test_variances_stand_behind_products(small_gpu):
    """A dimension that is taken away and given back does not part them, nor do numbers of 64 bits."""

    class Standardized(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(32, 48)

        def forward(self, x):
            y = self.layer(x)
            return (y - y.mean(-1).unsqueeze(-1)) / (y.std(-1)[:, None] + 1e-3)

    compiled = kitsune_mlir.compile(Standardized().bfloat16(), (torch.randn(2048, 32).bfloat16(),), target=small_gpu)
    assert [launch["form"] for launch in compiled.plan["launches"]] == ["scheduled chain"]


def test_norms_of_nan_and_infinity():
    x = torch.ones(3, 5)
    x[0, 1], x[1, 2] = math.nan, -math.inf
    for p in (1, 2, 3, math.inf):
        function = lambda x, p=p: torch.linalg.vector_norm(x, p, -1)  # noqa: E731
        torch.testing.assert_close(results(function, x, target="cpu")[0], function(x), equal_nan=True)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_of_as_many_rows_as_there_are(dtype):
    class Model(torch.nn.Module):
        def forward(self, x):
            return x.mean(0), torch.var_mean(x, 0)[1], x.norm(dim=0), x.prod(0), x.logcumsumexp(0)

    x = (1 + COLUMNS[:, :40] / 64).to(dtype)
    model = torch.export.export(Model(), (x[:48],), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), strict=False)
    for found, torchs, exact in zip(kitsune_mlir.compile(model, target="cpu")(x), Model()(x), Model()(x.double())):
        assert error(found, exact) <= 2 * error(torchs, exact)
