"""Norms of vectors and matrices, and variances with means. As `sums` says, 16-bit numbers are added up in f32 and
rounded once; torch-mlir adds them up in their own type, and squares them by a power function."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .shapes import are_known
from .working import NARROW, number, working

aten = torch.ops.aten

_FEW_ROWS = 25  # of which torch takes differences


def vector_norm(
    x: Tensor, ord: float = 2, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    """The norm of numbers over some dimensions, or over all of them."""
    if not x.is_floating_point():
        return NotImplemented
    kind = dtype or x.dtype
    y = working(x.to(kind))
    dims = list(dim or range(x.dim()))
    if math.isinf(ord):
        return (y.abs().amax if ord > 0 else y.abs().amin)(dims, keepdim=keepdim).to(kind)
    if ord == 0:
        return (y != 0).to(y.dtype).sum(dims, keepdim=keepdim).to(kind)
    if ord == 1:
        return y.abs().sum(dims, keepdim=keepdim).to(kind)
    if ord == 2:
        return (y * y).sum(dims, keepdim=keepdim).sqrt().to(kind)
    return y.abs().pow(ord).sum(dims, keepdim=keepdim).pow(1 / ord).to(kind)


def norm(
    x: Tensor, p: float | None = 2, dim: Sequence[int] = (), keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    return aten.linalg_vector_norm(x, 2 if p is None else p, dim or None, keepdim, dtype=dtype)


def linalg_norm(
    x: Tensor,
    ord: float | str | None = None,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Tensor:
    """Without an order the norm of a vector, whatever the dimensions; with one that of vectors or of matrices."""
    if ord is None:
        return aten.linalg_vector_norm(x, 2, dim, keepdim, dtype=dtype)
    dims = list(range(x.dim())) if dim is None else dim
    if len(dims) == 1:
        return aten.linalg_vector_norm(x, ord, dims, keepdim, dtype=dtype)
    return torch.linalg.matrix_norm(x, ord, tuple(dims), keepdim, dtype=dtype)


def distance(x: Tensor, y: Tensor, p: float = 2) -> Tensor:
    return aten.linalg_vector_norm(x - y, p)


def distances(x: Tensor, y: Tensor, p: float, compute_mode: int | None = None) -> Tensor:
    """Those of all pairs of rows. As torch does, Euclid's by a product where there are many rows, or where one is asked
    for (mode 1), and by differences, which are exact for rows near one another, elsewhere or where that is (mode 2)."""
    if p != 2 or compute_mode == 2 or not (compute_mode == 1 or many_rows(x, y)):
        return aten.linalg_vector_norm(x.unsqueeze(-2) - y.unsqueeze(-3), p, [-1])
    squares = [(each * each).sum(-1, keepdim=True) for each in (x, y)]
    return (squares[0] - 2 * (x @ y.mT) + squares[1].mT).clamp(min=0).sqrt()


def many_rows(x: Tensor, y: Tensor) -> bool:
    """Whether torch takes distances between rows by a product."""
    return any(not isinstance(rows, int) or rows > _FEW_ROWS for rows in (x.shape[-2], y.shape[-2]))


def _variances(wanted: Callable[[Tensor, Tensor], Any], mean_too: bool) -> dict[str, Callable[..., Any]]:
    """The rule of an operator that gives what `wanted` makes of a variance and a mean, for each of its overloads.
    torch-mlir computes variances in f64, which few GPUs are fast at, and means of 16-bit numbers in 16 bits. Variances
    over sizes that are open it computes still."""

    def corrected(x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
        dims = [d % x.dim() for d in dim or range(x.dim())]
        sizes = [x.shape[d] for d in dims]
        if not x.is_floating_point() or not dims:
            return NotImplemented
        if are_known(sizes):
            left = math.prod(sizes) - (1 if correction is None else correction)
            return wanted(*_variance_and_mean(x, dims, max(left, 0), keepdim))
        if not mean_too or x.dtype not in NARROW:
            return NotImplemented
        variance = aten.var.correction(x, dim, correction=correction, keepdim=keepdim)
        return wanted(variance, aten.mean.dim(x, dim, keepdim))

    def of_dims(x: Tensor, dim: Any, unbiased: bool = True, keepdim: bool = False) -> Any:
        return corrected(x, dim, correction=int(unbiased), keepdim=keepdim)

    def of_all(x: Tensor, unbiased: bool = True) -> Any:
        return corrected(x, correction=int(unbiased))

    return {"correction": corrected, "dim": of_dims, "default": of_all}


def _variance_and_mean(x: Tensor, dims: list[int], left: float, keepdim: bool) -> tuple[Tensor, Tensor]:
    """The sum of squares of what differs from the mean, over `left`, and the mean."""
    y = working(x)
    mean = y.mean(dims, keepdim=True)
    variance = (y - mean).square().sum(dims, keepdim=keepdim) / number(left, y)
    return variance.to(x.dtype), (mean if keepdim else mean.squeeze(dims)).to(x.dtype)


def distances_of_pairs(x: Tensor, p: float = 2.0) -> Any:
    """How far each row is from all those behind it, one pair after the other."""
    if not isinstance(x.shape[0], int):
        return NotImplemented
    first, second = torch.triu_indices(x.shape[0], x.shape[0], 1, device=x.device)
    return torch.linalg.vector_norm(x.index_select(0, first) - x.index_select(0, second), p, -1)


NORMS = {
    aten.linalg_vector_norm.default: vector_norm,
    aten.linalg_norm.default: linalg_norm,
    aten.linalg_norm.ord_str: linalg_norm,
    aten.norm.Scalar: norm,
    aten.norm.ScalarOpt_dim: norm,
    aten.norm.ScalarOpt_dtype: norm,
    aten.norm.ScalarOpt_dim_dtype: norm,
    aten.dist.default: distance,
    aten._cdist_forward.default: distances,
    aten._pdist_forward.default: distances_of_pairs,
} | {
    getattr(operator, overload): rule
    for operator, wanted, mean_too in (
        (aten.var, lambda variance, _: variance, False),
        (aten.std, lambda variance, _: variance.sqrt(), False),
        (aten.var_mean, lambda variance, mean: (variance, mean), True),
        (aten.std_mean, lambda variance, mean: (variance.sqrt(), mean), True),
    )
    for overload, rule in _variances(wanted, mean_too).items()
}
