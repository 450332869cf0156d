"""Systems of a few equations, inverses, determinants, Cholesky's factors and those of QR, of matrices of known sizes:
column after column, each by elementwise operators of the whole batch. Where torch raises an error, or says that it
failed, for a matrix that has no inverse or is not positive definite, results are infinite or no numbers. Exponentials
of matrices are sums of powers. Vectors' products are made of their parts."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

LARGEST = 32  # rows, for each is some operators of its own

TERMS = 18  # of an exponential's sum, beside the first; three at a time
SUMMED = {torch.float32: 3.0, torch.float64: 1.0}  # norms up to which so many terms are exact, as torch has it
SQUARED = 12  # times at most, which is enough for norms of thousands


def _is_taken(x: Tensor) -> bool:
    return x.is_floating_point() and isinstance(x.shape[-1], int) and 0 < x.shape[-1] <= LARGEST


def _solve(matrix: Tensor, right: Tensor) -> Tensor:
    """Elimination above and below each column's largest number, whose row changes places with the column's."""
    rows = matrix.shape[-1]
    batch = torch.broadcast_shapes(matrix.shape[:-2], right.shape[:-2])
    both = torch.cat([matrix.expand(*batch, -1, -1), right.expand(*batch, -1, -1)], -1)
    numbers = torch.arange(rows, device=matrix.device)
    for k in range(rows):
        best = both[..., k:, k].abs().argmax(-1, keepdim=True) + k
        order = torch.where(numbers == k, best, torch.where(numbers == best, k, numbers))
        both = both.gather(-2, order.unsqueeze(-1).expand(both.shape))
        row = both[..., k : k + 1, :] / both[..., k : k + 1, k : k + 1]
        here = (numbers == k).unsqueeze(-1)
        both = torch.where(here, row, both - both[..., k : k + 1] * row)
    return both[..., rows:]


def _inverse(x: Tensor) -> Any:
    return _solve(x, torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)) if _is_taken(x) else NotImplemented


def _solution(matrix: Tensor, right: Tensor, *, left: bool = True) -> Any:
    if not _is_taken(matrix):
        return NotImplemented
    if right.dim() == 1 or (right.dim() == matrix.dim() - 1 and right.shape == matrix.shape[:-1]):  # as torch has it
        return _solve(matrix, right.unsqueeze(-1)).squeeze(-1) if left else NotImplemented
    return _solve(matrix, right) if left else _solve(matrix.mT, right.mT).mT


def _pivots(x: Tensor) -> tuple[Tensor, Tensor]:
    """What elimination divides by, column after column, and the sign (a number) that rows changing places give."""
    rows = x.shape[-1]
    numbers, found, sign = torch.arange(rows, device=x.device), [], torch.ones_like(x[..., 0, 0])
    for k in range(rows):
        best = x[..., k:, k].abs().argmax(-1, keepdim=True) + k
        order = torch.where(numbers == k, best, torch.where(numbers == best, k, numbers))
        x = x.gather(-2, order.unsqueeze(-1).expand(x.shape))
        pivot = x[..., k, k]
        found.append(pivot)
        sign = torch.where(best.squeeze(-1) == k, sign, -sign)
        share = x[..., k] / torch.where(pivot == 0, 1.0, pivot).unsqueeze(-1)  # of zeros, where there is no pivot
        x = x - torch.where(numbers > k, share, 0.0).unsqueeze(-1) * x[..., k : k + 1, :]
    return torch.stack(found, -1), sign


def _determinant(x: Tensor) -> Any:
    if not _is_taken(x):
        return NotImplemented
    pivots, found = _pivots(x)
    for k in range(x.shape[-1]):
        found = found * pivots[..., k]
    return found


def _log_determinant(x: Tensor) -> Any:
    """The sign of the determinant and the logarithm of its size, of each pivot's."""
    if not _is_taken(x):
        return NotImplemented
    pivots, sign = _pivots(x)
    for k in range(x.shape[-1]):
        sign = sign * pivots[..., k].sign()
    return sign, pivots.abs().log().sum(-1)


def _with_factors(rule: Any) -> Any:
    """A rule for the form that also gives what serves torch's backward pass, which is not computed."""

    def found(x: Tensor) -> Any:
        result = rule(x)
        if result is NotImplemented:
            return result
        results = result if isinstance(result, tuple) else (result,)
        return *results, x, torch.zeros(x.shape[:-1], dtype=torch.int32, device=x.device)

    return found


def _cholesky(x: Tensor, *, upper: bool = False) -> Any:
    if not _is_taken(x):
        return NotImplemented
    numbers, columns = torch.arange(x.shape[-1], device=x.device), []
    for k in range(x.shape[-1]):
        column = torch.where(numbers >= k, x[..., k] * x[..., k, k, None].rsqrt(), 0.0)
        columns.append(column)
        x = x - column.unsqueeze(-1) * column.unsqueeze(-2)
    return torch.stack(columns, -2 if upper else -1)


def _triangular(matrix: Tensor, right: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    if not _is_taken(matrix):
        return NotImplemented
    if not left:
        found = _triangular(matrix.mT, right.mT, upper=not upper, unitriangular=unitriangular)
        return found if found is NotImplemented else found.mT
    places = range(matrix.shape[-1])
    found: dict[int, Tensor] = {}
    for k in reversed(places) if upper else places:
        row = right[..., k : k + 1, :]
        found[k] = row if unitriangular else row / matrix[..., k : k + 1, k : k + 1]
        right = right - matrix[..., k : k + 1] * found[k]
    return torch.cat([found[k] for k in places], -2)


def _cholesky_solve(right: Tensor, factor: Tensor, upper: bool = False) -> Any:
    if not _is_taken(factor):
        return NotImplemented
    lower = factor.mT if upper else factor
    return _triangular(lower.mT, _triangular(lower, right, upper=False), upper=True)


def _factors(x: Tensor, mode: str = "reduced") -> Any:
    """Q and R by reflections, as LAPACK has them: each turns what is left of a column into its first number, of the
    other sign."""
    rows, columns = x.shape[-2:]
    if not (x.is_floating_point() and isinstance(rows, int) and isinstance(columns, int) and 0 < rows <= LARGEST):
        return NotImplemented
    numbers = torch.arange(rows, device=x.device)
    q = torch.eye(rows, dtype=x.dtype, device=x.device).expand(*x.shape[:-2], rows, rows)
    for k in range(min(rows - 1, columns)):
        below = torch.where(numbers > k, x[..., k], 0.0)
        first, rest = x[..., k, k, None], below.square().sum(-1, keepdim=True)
        largest = x[..., k].abs().amax(-1, keepdim=True)
        scaled = torch.where(numbers >= k, x[..., k], 0.0) / torch.where(largest == 0, 1.0, largest)
        size = scaled.square().sum(-1, keepdim=True).sqrt() * largest
        new = torch.where(rest == 0, first, torch.where(first < 0, size, -size))
        share = torch.where(rest == 0, 0.0, (new - first) / torch.where(new == 0, 1.0, new))
        vector = below / torch.where(rest == 0, 1.0, first - new).expand_as(below)
        vector = torch.where(numbers == k, 1.0, vector).unsqueeze(-1)
        scaled_row = share.unsqueeze(-1) * vector.mT
        x, q = x - vector * (scaled_row @ x), q - (q @ vector) * scaled_row
    kept = rows if mode == "complete" else min(rows, columns)
    r = x[..., :kept, :].triu()
    return (x.new_zeros(0) if mode == "r" else q[..., :kept]), r


def _exponential(x: Tensor) -> Any:
    """The sum of a matrix that is halved until it is small, squared as often. Each matrix of a batch is halved as often
    as it needs. What is too large for that is no number."""
    if x.dtype not in SUMMED:
        return NotImplemented
    norm = x.abs().sum(-2, keepdim=True).amax(-1, keepdim=True)
    halved = (norm / SUMMED[x.dtype]).clamp(min=1.0).log2().ceil()
    y = x * torch.where(halved > SQUARED, torch.nan, (-halved).exp2())
    one = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    square = y @ y
    cube = square @ y
    found = one * (1 / math.factorial(TERMS))
    for k in range(TERMS - 3, -1, -3):
        first, second, third = (1 / math.factorial(k + i) for i in range(3))
        found = cube @ found.expand_as(cube) + (one * first + y * second + square * third)
    for k in range(SQUARED):
        found = torch.where(halved > k, found @ found, found)
    return found


def _checked(rule: Any) -> Any:
    """A rule for the form that says whether it failed; it never does."""

    def found(x: Tensor, *args: Any, check_errors: bool = False, **options: Any) -> Any:
        result = rule(x, *args, **options)
        failed = torch.zeros(x.shape[:-2], dtype=torch.int32, device=x.device)
        return result if result is NotImplemented else (result, failed)

    return found


def _cross(a: Tensor, b: Tensor, *, dim: int = -1) -> Tensor:
    """Products of vectors of three numbers, by their parts; torch's own rule reads these by number."""
    dim = dim % max(a.dim(), b.dim()) - max(a.dim(), b.dim())
    (ax, ay, az), (bx, by, bz) = a.unbind(dim), b.unbind(dim)
    return torch.stack((ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx), dim)


LINEAR_ALGEBRA = {
    aten.linalg_cross.default: _cross,
    aten._linalg_det.default: _with_factors(_determinant),
    aten._linalg_slogdet.default: _with_factors(_log_determinant),
    aten.linalg_det.default: _determinant,
    aten.linalg_slogdet.default: _log_determinant,
    aten.linalg_qr.default: _factors,
    aten.linalg_inv_ex.default: _checked(_inverse),
    aten.linalg_solve_ex.default: _checked(_solution),
    aten.linalg_cholesky_ex.default: _checked(_cholesky),
    aten.linalg_inv.default: _inverse,
    aten.inverse.default: _inverse,
    aten.linalg_solve.default: _solution,
    aten.linalg_cholesky.default: _cholesky,
    aten.cholesky.default: lambda x, upper=False: _cholesky(x, upper=upper),
    aten.linalg_solve_triangular.default: _triangular,
    aten.cholesky_solve.default: _cholesky_solve,
    aten.linalg_matrix_exp.default: _exponential,
}
