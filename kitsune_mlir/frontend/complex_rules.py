"""Operators of complex numbers that are others of these, or of their parts: rules for the decomposition, behind which
complex_numbers.py parts what is left.

    %y = linalg_solve(%a, %b)        =>    %y = linalg_solve([[re a, -im a], [im a, re a]], [re b; im b])
    %p = prod(%x, 1)                 =>    products of both halves along the dimension, again and again
"""

from __future__ import annotations

import cmath
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _parts(x: Tensor) -> tuple[Tensor, Tensor]:
    return (x.real, x.imag) if x.is_complex() else (x, torch.zeros_like(x))


def _variance(op: Callable[..., Tensor], is_root: bool) -> Callable[..., Any]:
    """That of both parts together, a real number; `op` is torch's of real numbers."""

    def rule(x: Tensor, *args: Any, **options: Any) -> Any:
        if not x.is_complex():
            return NotImplemented
        found = op(x.real, *args, **options) + op(x.imag, *args, **options)
        return found.sqrt() if is_root else found

    return rule


def _variance_and_mean(x: Tensor, *args: Any, **options: Any) -> Any:
    if not x.is_complex():
        return NotImplemented
    (re, first), (im, second) = (torch.var_mean(part, *args, **options) for part in (x.real, x.imag))
    return re + im, torch.complex(first, second)


def _either(op: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    return lambda x: op(x.real) | op(x.imag) if x.is_complex() else NotImplemented


def _product(x: Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    """Along a dimension of known size."""
    count = x.shape[dim]
    if not (x.is_complex() or (dtype is not None and dtype.is_complex)) or not isinstance(count, int):
        return NotImplemented
    x = x if dtype is None else x.to(dtype)
    if count == 0:
        return torch.ones_like(x.sum(dim, keepdim))
    while count > 1:
        half = count // 2
        found = x.narrow(dim, 0, half) * x.narrow(dim, half, half)
        x = torch.cat([found, x.narrow(dim, count - 1, 1)], dim) if count % 2 else found
        count = half + count % 2
    return x if keepdim else x.squeeze(dim)


def _product_of_all(x: Tensor, *, dtype: torch.dtype | None = None) -> Any:
    return _product(x.reshape(-1), 0, dtype=dtype) if x.is_complex() and isinstance(x.numel(), int) else NotImplemented


def _power(x: Any, exponent: Tensor) -> Any:
    """e^(exponent log x); of a number that is not zero."""
    if not exponent.is_complex() and not (isinstance(x, Tensor) and x.is_complex()):
        return NotImplemented
    if isinstance(x, Tensor):
        kind = torch.result_type(x, exponent)
        return (exponent.to(kind) * x.to(kind).log()).exp()
    return NotImplemented if x == 0 else (exponent * cmath.log(x)).exp()


def _block(x: Tensor) -> Tensor:
    """The real matrix that does to both parts of a vector, one below the other, what a complex one does."""
    re, im = _parts(x)
    return torch.cat([torch.cat([re, -im], -1), torch.cat([im, re], -1)], -2)


def _solution(matrix: Tensor, right: Tensor, *, left: bool = True) -> Any:
    if not matrix.is_complex() and not right.is_complex():
        return NotImplemented
    if not left:
        found = _solution(matrix.mT, right.mT)
        return found.mT
    is_vector = right.dim() == 1 or (right.dim() == matrix.dim() - 1 and right.shape == matrix.shape[:-1])
    columns = right.unsqueeze(-1) if is_vector else right
    found = torch.linalg.solve(_block(matrix), torch.cat(_parts(columns), -2))
    re, im = found.chunk(2, -2)
    found = torch.complex(re.contiguous(), im.contiguous())
    return found.squeeze(-1) if is_vector else found


def _inverse(matrix: Tensor) -> Any:
    if not matrix.is_complex():
        return NotImplemented
    re, im = torch.linalg.inv(_block(matrix))[..., : matrix.shape[-1]].chunk(2, -2)
    return torch.complex(re.contiguous(), im.contiguous())


COMPLEX_RULES = {
    aten.var.default: _variance(torch.var, False),
    aten.var.dim: _variance(torch.var, False),
    aten.var.correction: _variance(torch.var, False),
    aten.std.default: _variance(torch.var, True),
    aten.std.dim: _variance(torch.var, True),
    aten.std.correction: _variance(torch.var, True),
    aten.var_mean.default: _variance_and_mean,
    aten.var_mean.dim: _variance_and_mean,
    aten.var_mean.correction: _variance_and_mean,
    aten.isnan.default: _either(torch.isnan),
    aten.isinf.default: _either(torch.isinf),
    aten.prod.default: _product_of_all,
    aten.prod.dim_int: _product,
    aten.pow.Scalar: _power,
    aten.pow.Tensor_Tensor: _power,
    aten.linalg_solve.default: _solution,
    aten.linalg_inv.default: _inverse,
    aten.inverse.default: _inverse,
}
