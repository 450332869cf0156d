"""Systems of equations by kitsune.cholesky, substitute, solve and pivots: one kernel each, of all sizes, beside f64."""

from __future__ import annotations

import pytest
import torch
from functions import Function, computed, on_both
from hypothesis import given
from hypothesis import strategies as st

import kitsune_mlir
from kitsune_mlir.planning.systems import MOST, Squares
from kitsune_mlir.tools.gpusim import Simulation

unassembled = pytest.mark.usefixtures("unassembled")
BATCH, COLUMNS = torch.export.Dim("batch", min=1), torch.export.Dim("columns", min=1)


@given(st.integers(1, 128), st.sampled_from([4, 8]), st.integers(1, 5000), st.integers(0, 700))
def test_squares_have_all_elements(rows: int, width: int, matrices: int, columns: int) -> None:
    rows = min(rows, MOST[width])
    own = Squares.of(rows, width, matrices, columns)
    assert own.tiles * own.side >= rows > (own.tiles - 1) * own.side and own.size * own.matrices <= 256
    assert own.columns % own.side == 0 and (own.columns > 0) == (columns > 0)
    assert own.tiles * (own.tiles + own.column_tiles) * width // 4 <= 128


def definite(batch: int, n: int, kind: torch.dtype = torch.float32) -> torch.Tensor:
    a = torch.randn(batch, n, n, dtype=kind)
    return a @ a.mT / n + torch.eye(n, dtype=kind)


def every(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """All that is done with definite matrices and right sides."""
    linalg = torch.linalg
    lower, upper = linalg.cholesky(a), linalg.cholesky(a, upper=True)
    triangles = [linalg.solve_triangular(x, b, upper=side, unitriangular=unit) for x, side, unit in (
        (lower, False, False), (upper, True, False), (a * 0.1, False, True), (a * 0.1, True, True))]  # fmt: skip
    right = linalg.solve_triangular(lower, b.mT, upper=False, left=False)
    whole = torch.cholesky_solve(b, lower), torch.cholesky_solve(b, upper, upper=True), torch.cholesky_inverse(lower)
    turned = a.flip(-1)  # rows change places
    solved = linalg.solve(turned, b), linalg.solve(turned, b.mT, left=False), linalg.inv(turned)
    sign, size = linalg.slogdet(turned)
    return lower, upper, *triangles, right, *whole, *solved, linalg.det(turned), sign, size


def check(function, args, others=(), **options) -> None:
    """The results on both targets, of other arguments too, are about as near to those in f64 as torch's own."""
    runs = on_both(Function(function), args, **options)
    for own in (args, *others):
        exact, torchs = function(*(x.double() for x in own)), function(*own)
        for run in runs:
            for result, wanted, near in zip(run(*own), exact, torchs, strict=True):
                result = torch.as_tensor(result)
                assert result.dtype == near.dtype and result.shape == near.shape
                error, allowed = ((x.double() - wanted).norm() / wanted.norm() for x in (result, near))
                assert error <= 8 * allowed + (5e-6 if near.dtype == torch.float32 else 5e-14)


@unassembled
@pytest.mark.parametrize("n, columns", [(1, 1), (4, 2), (5, 1), (11, 30), (16, 4), (17, 3), (32, 9), (50, 70)])
def test_as_exact_as_torchs(n: int, columns: int) -> None:
    torch.manual_seed(n)
    check(every, (definite(3, n), torch.randn(3, n, columns)))


@unassembled
def test_the_largest() -> None:
    """Each of the four operations once: in other forms they are as those of fewer rows."""

    def of(a, b):
        lower, turned = torch.linalg.cholesky(a), a.flip(-1)
        back = torch.linalg.solve_triangular(lower.mT, b, upper=True)
        return lower, back, torch.linalg.solve(turned, b), torch.linalg.det(turned)

    torch.manual_seed(1)
    check(of, (definite(1, 128), torch.randn(1, 128, 3)))
    check(of, (definite(1, 70, torch.float64), torch.randn(1, 70, 3, dtype=torch.float64)))


@unassembled
@pytest.mark.parametrize("n", [6, 20])
def test_open_sizes(n: int) -> None:
    """A batch and columns that are counted at the call, one for all matrices, and batches of two dimensions."""
    shapes = (({0: BATCH}, {0: BATCH, 2: COLUMNS}),)
    others = [(definite(b, n), torch.randn(b, n, c)) for b, c in ((1, 1), (9, 37))]
    check(every, (definite(4, n), torch.randn(4, n, 5)), others, dynamic_shapes=shapes)
    given = definite(6, n).reshape(2, 3, n, n), torch.randn(3, n, 2)
    check(lambda a, b: (torch.linalg.solve(a, b), torch.linalg.solve(a[0, 0], b[0])), given)


@unassembled
def test_more_rows_are_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MOST, 4, 16)

    def of(a, b):
        lower = torch.linalg.cholesky(a)
        solved = torch.linalg.solve_triangular(lower.mT, b, upper=True)
        return lower, solved, torch.cholesky_solve(b, lower)

    check(of, (definite(2, 41), torch.randn(2, 41, 3)))


@unassembled
@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
def test_a_matrix_spoils_no_other(target: str) -> None:
    """One without an inverse, one that is not definite and one with NaN, among others."""
    a, b = definite(4, 9), torch.randn(4, 9, 2)
    a[1], a[2] = -a[1], a[2] * torch.nan
    spoilt = a.clone()
    spoilt[1, :, 3] = 0

    def of(a, spoilt, b):
        factor, _ = torch.linalg.cholesky_ex(a)
        return factor, torch.linalg.solve_ex(spoilt, b)[0], torch.linalg.det(spoilt)

    compiled = kitsune_mlir.compile(Function(of), (a, spoilt, b), target=target)
    found = (compiled if target == "cpu" else Simulation(compiled, seed=1))(a, spoilt, b)
    factor, solved, volume = map(torch.as_tensor, found)
    torch.testing.assert_close(factor[[0, 3]], torch.linalg.cholesky(a[[0, 3]]))
    torch.testing.assert_close(solved[[0, 3]], torch.linalg.solve(a[[0, 3]], b[[0, 3]]))
    torch.testing.assert_close(volume[[0, 1, 3]], torch.linalg.det(spoilt[[0, 1, 3]]))
    assert volume[1] == 0 and not any(x[1:3].isfinite().flatten(1).all(1).any() for x in (factor, solved))


@unassembled
def test_what_is_computed_in_front() -> None:
    """Numbers that nobody else reads are in no memory."""

    def of(x, b):
        return torch.linalg.solve(x * x + 20 * torch.eye(8), b.tanh())

    args = torch.randn(5, 8, 8), torch.randn(5, 8, 1)
    compiled = kitsune_mlir.compile(Function(of), args, target="sm_90a")
    assert computed(compiled) == ["solve"]
    torch.testing.assert_close(torch.as_tensor(Simulation(compiled)(*args)), of(*args), rtol=1e-4, atol=1e-5)


@unassembled
@pytest.mark.parametrize("function", [torch.linalg.solve, torch.linalg.inv, torch.linalg.det])
def test_a_few_rows_are_elementwise(function) -> None:
    args = (torch.randn(1000, 3, 3), torch.randn(1000, 3, 1))[: 1 + (function is torch.linalg.solve)]
    compiled = kitsune_mlir.compile(Function(function), args, target="sm_90a")
    assert len(compiled.plan["launches"]) == 1 and computed(compiled) != ["solve"]


@pytest.mark.parametrize("kind, n", [(torch.float32, 128), (torch.float64, 96)])
@pytest.mark.parametrize("name", ["cholesky", "solve", "det"])
def test_code(name: str, kind: torch.dtype, n: int) -> None:
    """The largest ones are assembled without a spill."""
    of = Function(lambda a, b: torch.linalg.solve(a, b) if name == "solve" else getattr(torch.linalg, name)(a))
    compiled = kitsune_mlir.compile(
        of, (torch.ones(300, n, n, dtype=kind), torch.ones(300, n, 64, dtype=kind)), target="sm_90a"
    )
    assert [kernel["spill_stores"] for kernel in compiled.plan["kernels"]][0] == 0
