"""Systems of equations, inverses, determinants, Cholesky's factors and those of QR, of matrices of known sizes. Those
of a few rows go column after column, each by elementwise operators of the whole batch, which are one kernel with what
stands around them (passes/thread_rows.py). Larger ones are operators of ours (codegen/gpu_systems.py), up to as many
rows as registers hold; Cholesky's factors and triangles of more are made of such blocks, and of products. Where torch
raises an error, or says that it failed, for a matrix that has no inverse or is not positive definite, results are
infinite or no numbers. Exponentials of matrices are sums of powers. Vectors' products are made of their parts."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from kitsune_mlir.planning.systems import most_rows

from .own_operators import CHOLESKY, PIVOTS, SOLVE, SUBSTITUTE, UNFACTORED

aten = torch.ops.aten

FEW, VOLUME = 4, 3  # rows of matrices that are worked on by elementwise operators, and whose determinants are
BLOCKS = 16  # of the largest numbers of rows
LARGEST = 32  # rows of what is factored by reflections, for each is some operators of its own

TERMS = 18  # of an exponential's sum, beside the first; three at a time
SUMMED = {torch.float32: 3.0, torch.float64: 1.0}  # norms up to which so many terms are exact, as torch has it
SQUARED = 12  # times at most, which is enough for norms of thousands


def _rows(x: Tensor) -> int:
    """Those of square matrices of a known size and of a type that is worked on, or 0."""
    rows = x.shape[-1]
    return rows if x.dtype in (torch.float32, torch.float64) and isinstance(rows, int) else 0


def _most(x: Tensor) -> int:
    """The rows of the largest matrices that are one operator."""
    return most_rows(4 if x.dtype == torch.float32 else 8)


def _alike(matrix: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Matrices and right sides with the same dimensions in front."""
    batch = torch.broadcast_shapes(matrix.shape[:-2], right.shape[:-2])
    return matrix.expand(*batch, -1, -1), right.expand(*batch, -1, -1)


def _solve(matrix: Tensor, right: Tensor) -> Tensor:
    """Elimination above and below each column's largest number, whose row changes places with the column's."""
    count = matrix.shape[-1]
    matrix, right = _alike(matrix, right)
    if count > FEW:
        return SOLVE(right, matrix)
    rows = _rows_of(torch.cat([matrix, right], -1))
    for k in range(count):
        _bring_largest(rows, k)
        row = rows[k] / rows[k][..., k : k + 1]
        rows = [row if i == k else each - each[..., k : k + 1] * row for i, each in enumerate(rows)]
    return torch.cat([row[..., count:] for row in rows], -2)


def _rows_of(x: Tensor) -> list[Tensor]:
    """The rows of a matrix, each as a matrix of one."""
    return [x[..., i : i + 1, :] for i in range(x.shape[-2])]


def _bring_largest(rows: list[Tensor], k: int) -> None:
    """Has the row, from k on, whose number in column k is the largest change places with row k."""
    for i in range(k + 1, len(rows)):
        changes = rows[i][..., k : k + 1].abs() > rows[k][..., k : k + 1].abs()
        rows[k], rows[i] = torch.where(changes, rows[i], rows[k]), torch.where(changes, rows[k], rows[i])


def _inverse(x: Tensor) -> Any:
    if not 0 < _rows(x) <= _most(x):
        return NotImplemented
    return _solve(x, torch.eye(x.shape[-1], dtype=x.dtype, device=x.device))


def _solution(matrix: Tensor, right: Tensor, *, left: bool = True) -> Any:
    if not 0 < _rows(matrix) <= _most(matrix):
        return NotImplemented
    if right.dim() == 1 or (right.dim() == matrix.dim() - 1 and right.shape == matrix.shape[:-1]):  # as torch has it
        return _solve(matrix, right.unsqueeze(-1)).squeeze(-1) if left else NotImplemented
    return _solve(matrix, right) if left else _solve(matrix.mT, right.mT).mT


def _determinant(x: Tensor) -> Any:
    """The product of the pivots; of three rows at most the volume that they span."""
    rows = _rows(x)
    if not 0 < rows <= _most(x):
        return NotImplemented
    if rows > VOLUME:
        return PIVOTS(x).prod(-1)
    a = [[x[..., i, j] for j in range(rows)] for i in range(rows)]
    if rows == 1:
        return a[0][0]
    if rows == 2:
        return a[0][0] * a[1][1] - a[0][1] * a[1][0]
    found = [a[0][i] * (a[1][j] * a[2][k] - a[1][k] * a[2][j]) for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1))]
    return found[0] + found[1] + found[2]


def _log_determinant(x: Tensor) -> Any:
    """The sign of the determinant and the logarithm of its size, of each pivot's."""
    if not 0 < _rows(x) <= _most(x):
        return NotImplemented
    pivots = PIVOTS(x)
    return pivots.sign().prod(-1), pivots.abs().log().sum(-1)


def _with_factors(rule: Any) -> Any:
    """A rule for the form that also gives the triangles of a matrix, or, where it lies row by row, of its transpose, by
    which torch's backward pass solves: the matrix itself, by `solve_of_whole`."""

    def found(x: Tensor) -> Any:
        result = rule(x)
        if result is NotImplemented:
            return result
        results = result if isinstance(result, tuple) else (result,)
        return *results, x.mT if x.is_contiguous() else x, UNFACTORED(x)

    return found


def _solution_with_factors(matrix: Tensor, right: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    found = _solution(matrix, right, left=left)
    failed = torch.zeros(matrix.shape[:-2], dtype=torch.int32, device=matrix.device)
    return found if found is NotImplemented else (found, matrix, UNFACTORED(matrix), failed)


def solve_of_whole(matrix: Tensor, pivots: Tensor, right: Tensor, *, left: bool = True, adjoint: bool = False) -> Any:
    """What a matrix's triangles are to solve, by the matrix, which stands where these would."""
    return _solution(matrix.mT if adjoint else matrix, right, left=left)


def _solve_by_factors(
    factors: Tensor, pivots: Tensor, right: Tensor, *, left: bool = True, adjoint: bool = False
) -> Any:
    """Solutions by both triangles of a matrix whose rows changed places, one after the other, as LAPACK says."""
    rows = _rows(factors)
    if not 0 < rows <= BLOCKS * _most(factors):
        return NotImplemented
    if not left:
        return _solve_by_factors(factors, pivots, right.mT, adjoint=not adjoint).mT
    places = torch.arange(rows, device=pivots.device)
    order = places.expand(pivots.shape)
    for k in range(rows):
        other = pivots[..., k, None].long() - 1
        here, there = order[..., k, None], order.gather(-1, other)
        order = torch.where(places == other, here, order)
        order = torch.where(places == k, there, order)
    moves = (order.unsqueeze(-1) == places).to(factors.dtype)
    if adjoint:
        half = _triangular(factors, right, upper=True, transposed=True)
        return moves.mT @ _triangular(factors, half, upper=False, unitriangular=True, transposed=True)
    half = _triangular(factors, moves @ right, upper=False, unitriangular=True)
    return _triangular(factors, half, upper=True)


def _cholesky(x: Tensor, *, upper: bool = False) -> Any:
    rows, most = _rows(x), _most(x)
    if not 0 < rows <= BLOCKS * most:
        return NotImplemented
    if rows > FEW:
        found = CHOLESKY(x) if rows <= most else _of_blocks(x, most)
        return found.mT if upper else found
    numbers, columns = torch.arange(rows, device=x.device), []
    for k in range(rows):
        column = torch.where(numbers >= k, x[..., k] * x[..., k, k, None].rsqrt(), 0.0)
        columns.append(column)
        x = x - column.unsqueeze(-1) * column.unsqueeze(-2)
    return torch.stack(columns, -2 if upper else -1)


def _of_blocks(x: Tensor, most: int) -> Tensor:
    """Cholesky's factor, so many columns at a time: of a block on the diagonal, of what is below it, which the block's
    factor divides, and of what is left of the rest."""
    first, below, rest = x[..., :most, :most], x[..., most:, :most], x[..., most:, most:]
    factor = CHOLESKY(first)
    across = SUBSTITUTE(below.mT, factor, False, False, False)
    left = _cholesky(rest - across.mT @ across)
    above = x.new_zeros(()).expand(*x.shape[:-2], most, x.shape[-1] - most)
    return torch.cat([torch.cat([factor, above], -1), torch.cat([across.mT, left], -1)], -2)


def _triangular(
    matrix: Tensor,
    right: Tensor,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
    transposed: bool = False,
) -> Any:
    """Solutions for a triangle of a matrix, or, `transposed`, for the transpose of that."""
    rows, most = _rows(matrix), _most(matrix)
    if not 0 < rows <= BLOCKS * most:
        return NotImplemented
    if not left:
        return _triangular(matrix, right.mT, upper=upper, unitriangular=unitriangular, transposed=True).mT
    if rows > FEW:
        matrix, right = _alike(matrix, right)
        return _substituted(matrix, right, most, upper, transposed, unitriangular)
    if transposed:
        matrix, upper = matrix.mT, not upper
    places = range(rows)
    found: dict[int, Tensor] = {}
    for k in reversed(places) if upper else places:
        row = right[..., k : k + 1, :]
        found[k] = row if unitriangular else row / matrix[..., k : k + 1, k : k + 1]
        right = right - matrix[..., k : k + 1] * found[k]
    return torch.cat([found[k] for k in places], -2)


def _substituted(matrix: Tensor, right: Tensor, most: int, upper: bool, transposed: bool, unit: bool) -> Tensor:
    """The same of so many rows at a time: what is solved is taken off the rows that are left."""
    rows, found = matrix.shape[-1], dict[int, Tensor]()
    backwards = upper != transposed
    starts = range(0, rows, most)
    for first in reversed(starts) if backwards else starts:
        own = slice(first, min(rows, first + most))
        rest = slice(0, first) if backwards else slice(own.stop, rows)
        here = right[..., -(own.stop - first) :, :] if backwards else right[..., : own.stop - first, :]
        found[first] = SUBSTITUTE(here, matrix[..., own, own], upper, transposed, unit)
        if rest.start < rest.stop:
            across = matrix[..., own, rest].mT if transposed else matrix[..., rest, own]
            kept = right[..., : rest.stop, :] if backwards else right[..., own.stop - first :, :]
            right = kept - across @ found[first]
    return torch.cat([found[first] for first in starts], -2) if len(found) > 1 else found[0]


def _triangular_solve(
    right: Tensor, matrix: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    """The form that gives the matrix, too."""
    options = {"upper": upper, "transposed": transpose, "unitriangular": unitriangular}
    found = _triangular(matrix, right, **options)
    return found if found is NotImplemented else (found, matrix.clone())


def _cholesky_solve(right: Tensor, factor: Tensor, upper: bool = False) -> Any:
    half = _triangular(factor, right, upper=upper, transposed=upper)
    return half if half is NotImplemented else _triangular(factor, half, upper=upper, transposed=not upper)


def _cholesky_inverse(factor: Tensor, upper: bool = False) -> Any:
    one = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    return _cholesky_solve(one, factor, upper)


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
    aten._linalg_solve_ex.default: _solution_with_factors,
    aten.linalg_lu_solve.default: _solve_by_factors,
    aten.linalg_cholesky_ex.default: _checked(_cholesky),
    aten.linalg_inv.default: _inverse,
    aten.inverse.default: _inverse,
    aten.linalg_solve.default: _solution,
    aten.linalg_cholesky.default: _cholesky,
    aten.cholesky.default: lambda x, upper=False: _cholesky(x, upper=upper),
    aten.linalg_solve_triangular.default: _triangular,
    aten.triangular_solve.default: _triangular_solve,
    aten.cholesky_solve.default: _cholesky_solve,
    aten.cholesky_inverse.default: _cholesky_inverse,
    aten.linalg_matrix_exp.default: _exponential,
}
