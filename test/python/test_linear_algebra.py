"""Systems of a few equations, inverses, Cholesky factors, what is computed with them, and exponentials."""

import pytest
import torch
from decomposed_functions import TARGETS, check_error
from functions import Function
from torch.distributions import MultivariateNormal

import kitsune_mlir
from kitsune_mlir.errors import UnsupportedError

pytestmark = pytest.mark.usefixtures("unassembled")


def definite(x):
    return x @ x.mT + torch.eye(x.shape[-1], dtype=x.dtype)


def flat(*results):
    return torch.cat([result.flatten() for result in results])


def systems(x, y):
    """Matrices whose largest numbers are far from the diagonal, so that rows change places."""
    matrix, solve = definite(x).flip(-1), torch.linalg.solve
    vector = solve(matrix[0], y[0, :, 0])
    return flat(solve(matrix, y), solve(matrix, y[0].mT, left=False), vector, matrix.inverse())


def factors(x, y):
    lower, upper = torch.linalg.cholesky(definite(x)), torch.linalg.cholesky(definite(x), upper=True)
    triangular = torch.linalg.solve_triangular
    solved = triangular(lower, y, upper=False), triangular(upper, y, upper=True), torch.cholesky_solve(y, lower)
    return flat(lower, upper, *solved, triangular(lower, y.mT, upper=False, left=False))


def orthogonal(x, y):
    """A high and a wide matrix have such factors, and a column of zeros needs no turn."""
    every = torch.linalg.qr(y, mode="complete"), torch.linalg.qr(torch.cat([y * 0, y], 2)[:, :2])
    return flat(*(factor for factors in every for factor in factors), torch.linalg.inv_ex(definite(x[:, :2, :2]))[0])


def determinants(x, y):
    """Of a matrix whose rows change places, of one without an inverse, and of one number."""
    sign, size = torch.linalg.slogdet(x)
    singular = torch.cat([y, y[:, :, :1] * 0], 2)
    return flat(
        torch.linalg.det(x.flip(-2)), sign, size, torch.linalg.det(singular), x[:, :1, :1].det(), definite(x).logdet()
    )


def likelihood(x, y):
    mean = torch.zeros(x.shape[-1], dtype=x.dtype)
    return MultivariateNormal(mean, covariance_matrix=definite(x[0]), validate_args=False).log_prob(y.mT)


def exponentials(x, y):
    """Of matrices that are small, and of some that are halved a few times."""
    return flat(torch.matrix_exp(x * 0.1), torch.matrix_exp((x - x.mT) * 10))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("function", [systems, factors, orthogonal, determinants, likelihood, exponentials])
def test_as_exact_as_torchs(function, target):
    torch.manual_seed(1)
    check_error(function, torch.randn(2, 4, 4), torch.randn(2, 4, 3), target=target, least=1e-6)


def test_matrices_of_many_rows():
    with pytest.raises(UnsupportedError, match="linalg"):
        kitsune_mlir.compile(Function(torch.linalg.inv), (torch.eye(200),))


def test_systems_within_vmap():
    """torch keeps the checks of their results in order there, which no program has."""

    def step(x, y):
        matrix = torch.func.jacrev(lambda p: p.sin() + 2 * p)(x)
        return torch.linalg.solve(matrix, y), torch.linalg.inv(matrix), torch.linalg.cholesky(matrix @ matrix.mT)

    model = Function(lambda x, y: torch.func.vmap(step)(x, y))
    compiled = kitsune_mlir.compile(model, (torch.randn(2, 3), torch.randn(2, 3)))
    args = torch.randn(2, 3), torch.randn(2, 3)
    for found, wanted in zip(compiled(*args), model(*args), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
