"""Operators that no program has, which torch computes between two programs of one graph."""

import copy
import warnings

import pytest
import torch
from torch import linalg, nn

import kitsune_mlir
from kitsune_mlir.errors import UnsupportedError

pytestmark = pytest.mark.filterwarnings("error:kitsune backend")


def positive(x):
    return x @ x.mT + torch.diag(torch.arange(6.0) + 6)


def of_singular_values(x):
    u, s, v = linalg.svd(x, full_matrices=False)
    return (u * s) @ v + s.sum()


def of_eigenvectors(x):
    values, vectors = linalg.eigh(positive(x))
    return vectors.abs() * values


def one_after_the_other(x):
    return linalg.svdvals(linalg.eigvalsh(positive(x)).diag() + x.cos()) + x


FORMS = {
    "singular values": of_singular_values,
    "eigenvectors": of_eigenvectors,
    "one after the other": one_after_the_other,
    "complex ones": lambda x: linalg.eigvals(x).abs(),
    "factors": lambda x: linalg.lu(x)[1] @ linalg.lu(x)[2],
    "solutions by factors": lambda x: linalg.lu_solve(*linalg.lu_factor(positive(x)), x),
    "least squares": lambda x: linalg.lstsq(positive(x), x).solution,
    "inverse of any matrix": linalg.pinv,
    "functions that series give": lambda x: torch.polygamma(1, x.abs() + 1) + torch.special.bessel_j0(x),
    "polynomials": lambda x: torch.special.chebyshev_polynomial_t(x.detach(), 3) + x,
    "norms": lambda x: x / linalg.matrix_norm(x, 2) + linalg.matrix_norm(x, "nuc") / linalg.cond(positive(x)),
}


class Model(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.first, self.last, self.function = nn.Linear(6, 6), nn.Linear(6, 3), function

    def forward(self, x):
        return self.last(self.function(self.first(x).relu() + x))


@pytest.mark.parametrize("name", FORMS)
def test_both_passes(name):
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Model(FORMS[name])
    own, x = copy.deepcopy(model), torch.randn(6, 6)
    compiled = torch.compile(own, backend="kitsune")
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
    found, wanted = compiled(x), model(x)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    found.square().sum().backward()
    wanted.square().sum().backward()
    for one, other in zip(own.parameters(), model.parameters()):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-3)


class Whitened(nn.Module):
    """A buffer that is changed, drawn numbers, and batches of any size."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        self.mean.lerp_(x.mean(0), 0.1)
        x = x - self.mean
        values, vectors = linalg.eigh(x.T @ x / x.shape[0] + torch.eye(4))
        return self.out(x @ vectors.abs() / values.sqrt()), linalg.svdvals(x), x.shape[0] * 2


@torch.no_grad()
def test_any_number_of_rows():
    torch._dynamo.reset()
    model = Whitened()
    own = copy.deepcopy(model)
    compiled = torch.compile(own, backend="kitsune", dynamic=True)
    for rows in (5, 7, 9):
        x = torch.randn(rows, 4)
        for one, other in zip(compiled(x), model(x), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(own.mean, model.mean)


@torch.no_grad()
def test_tokens_are_drawn_as_torch_draws_them():
    torch._dynamo.reset()
    model = Model(lambda x: x.softmax(1).multinomial(2).repeat(1, 3) + x)
    compiled, x = torch.compile(model, backend="kitsune"), torch.randn(6, 6)
    for seed in range(3):
        torch.manual_seed(seed)
        found = compiled(x)
        torch.manual_seed(seed)
        torch.testing.assert_close(found, model(x), rtol=1e-4, atol=1e-4)


def test_what_a_program_alone_is_told():
    with pytest.raises(UnsupportedError, match="_linalg_svd.*torch.compile.*backend"), warnings.catch_warnings():
        kitsune_mlir.compile(Model(linalg.svdvals), (torch.randn(6, 6),))
