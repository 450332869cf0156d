"""Decompositions of arithmetic that torch-mlir lowers to something else than torch computes, or not at all.

- An integer floor division is exact: torch-mlir's goes through f64. That of real numbers is torch's, which is a
  remainder taken off, not a quotient rounded down.
- `x == x` is false for NaN: torch-mlir folds it to true. It folds `torch.ones(n) == 1`, a real number and an integer,
  to false.
- An open size is divided, and is what something is taken from, as a tensor.
- Integers are raised to powers by squaring, and bounded by real numbers as real numbers.
- Bits are combined with numbers, and shifted by and of them, as with tensors.
- `fmin` and `fmax` take the number beside a NaN; the angle of a real number is 0 or pi.
- The sign of a zero is read off its reciprocal; that of NaN is not seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

Number = bool | int | float

_STEPS = {torch.int16: 24, torch.int32: 47, torch.int64: 92}  # of remainders until there is a greatest divisor

_torch_rsub = torch._decomp.decomposition_table[aten.rsub.Scalar]


def _wide(x: Any, kind: torch.dtype) -> Any:
    """An operand in the type that real numbers of type `kind` are computed in: at least f32. Numbers stay numbers."""
    kind = torch.float32 if kind in (torch.bfloat16, torch.float16) else kind
    return x.to(kind) if isinstance(x, Tensor) else float(x)


def _as_tensor(x: Any) -> Any:
    """An open size as a tensor; others as they are."""
    return torch.full((), x, dtype=torch.int64) if isinstance(x, torch.SymInt) else x


def divide(x: Any, y: Any, *, rounding_mode: str | None) -> Any:
    """x / y of tensors or one tensor and a number, rounded as told."""
    if isinstance(x, torch.SymInt) or (isinstance(y, torch.SymInt) and rounding_mode is not None):
        return aten.div.Tensor_mode(_as_tensor(x), _as_tensor(y), rounding_mode=rounding_mode)
    kind = torch.result_type(x, y)
    if rounding_mode is None:
        return torch.true_divide(x, y)
    if kind.is_floating_point:
        x, y = _wide(x, kind), _wide(y, kind)
        if not isinstance(x, Tensor):
            x = torch.full((), x, dtype=y.dtype, device=y.device)
        if rounding_mode == "trunc" or (not isinstance(y, Tensor) and y == 0):
            return (x / y).trunc().to(kind)
        rest = torch.fmod(x, y)
        whole = ((x - rest) / y).round() - ((rest != 0) & ((rest < 0) != (y < 0))).to(kind)
        return (torch.where(y == 0, x / y, whole) if isinstance(y, Tensor) else whole).to(kind)
    if rounding_mode == "trunc":
        return NotImplemented
    if kind == torch.uint8 and isinstance(y, int):
        y %= 256  # as torch rounds the number to the type
    quotient = aten.div.Tensor_mode(x, y, rounding_mode="trunc")
    rest = x - quotient * y
    other_sign = (rest < 0) != (y < 0) if isinstance(y, Tensor) else rest > 0 if y < 0 else rest < 0
    return torch.where((rest != 0) & other_sign, quotient - 1, quotient)


def zeros(size: Sequence[Any], *, dtype: torch.dtype | None = None, device: Any = None, **_: Any) -> Tensor:
    """Those that torch writes down without elements, as gradients that are nowhere."""
    return torch.full(size, 0, dtype=dtype or torch.get_default_dtype(), device=device)


def fmod(x: Tensor, y: Any) -> Tensor:
    """The remainder with the sign of x."""
    kind = torch.result_type(x, y)
    if not kind.is_floating_point:
        return x - aten.div.Tensor_mode(x, y, rounding_mode="trunc") * y
    wide = _wide(x, kind)
    rest = torch.remainder(wide.abs(), abs(_wide(y, kind)))
    return torch.where(wide < 0, -rest, rest).to(kind)


def add_integer_product(x: Tensor, left: Tensor, right: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Any:
    """torch-mlir adds to products of real numbers only."""
    if x.is_floating_point() or x.is_complex():
        return NotImplemented
    return x * beta + (left @ right) * alpha


def subtract_from(x: Tensor, y: Any, alpha: Any = 1) -> Any:
    return torch.sub(_as_tensor(y), x, alpha=alpha) if isinstance(y, torch.SymInt) else _torch_rsub(x, y, alpha)


def remainder_of_number(x: Number, y: Tensor) -> Tensor:
    kind = torch.result_type(x, y)
    return torch.remainder(torch.full((), x, dtype=kind), y.to(kind))


def equal(x: Tensor, y: Tensor) -> Any:
    return torch.logical_not(torch.ne(x, y)) if torch.result_type(x, y).is_floating_point else NotImplemented


def compare(name: str) -> Callable[[Tensor, Any], Any]:
    """The comparison of a tensor with a number of its own kind. With one of another torch-mlir gives something else, or
    dies, where the tensor is a constant; with any real number it compares in f64, where torch rounds the number."""
    operator = getattr(aten, name)

    def of(x: Tensor, y: Any) -> Any:
        if not isinstance(y, Number):
            return NotImplemented  # one that is read from a tensor, or a size
        kind = torch.result_type(x, y)
        if kind.is_floating_point:
            return operator.Tensor(x.to(kind), torch.full((), float(y), dtype=kind, device=x.device))
        kind = torch.int64 if kind == torch.bool else kind
        return NotImplemented if kind == x.dtype and type(y) is int else operator.Scalar(x.to(kind), int(y))

    return of


def is_finite(x: Tensor) -> Tensor:
    return x.abs() < math.inf if x.is_floating_point() else torch.ones_like(x, dtype=torch.bool)


def nan_to_number(x: Tensor, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Any:
    """Infinite numbers that become the largest finite ones are clamped: torch's own rule compares with each of them."""
    if not x.is_floating_point():
        return x.clone()
    if posinf is not None or neginf is not None:
        return NotImplemented
    limits = torch.finfo(x.dtype)
    return torch.where(x != x, 0.0 if nan is None else nan, torch.clamp(x, limits.min, limits.max))


def is_close(x: Tensor, y: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    close = x == y
    if not x.is_floating_point():
        x, y = x.double(), y.double()
    elif equal_nan:
        close = close | (torch.isnan(x) & torch.isnan(y))
    error = (x - y).abs()
    return close | (is_finite(error) & (error <= atol + (rtol * y).abs()))


def sign_bit(x: Tensor) -> Tensor:
    return torch.where(x == 0, x.reciprocal() < 0, x < 0) if x.is_floating_point() else x < 0


def copy_sign(x: Tensor, y: Any) -> Tensor:
    kind = torch.result_type(x, y)
    kind = kind if kind.is_floating_point else torch.get_default_dtype()
    size = x.to(kind).abs()
    if isinstance(y, Tensor):
        return torch.where(sign_bit(y), -size, size)
    return -size if math.copysign(1, y) < 0 else size


def clamp(x: Tensor, low: Any = None, high: Any = None) -> Any:
    """Clamps integers between real numbers (or tensors of them), and booleans, of which torch-mlir takes true for the
    lesser."""
    kinds = {bound.dtype if isinstance(bound, Tensor) else type(bound) for bound in (low, high) if bound is not None}
    if x.dtype == torch.bool and kinds == {torch.bool}:
        x = x if low is None else x | low
        return x if high is None else x & high
    kind = x.dtype
    for bound in (low, high):
        kind = kind if bound is None else torch.promote_types(kind, torch.result_type(x, bound))
    if kind == x.dtype:
        return NotImplemented
    low, high = (bound.to(kind) if isinstance(bound, Tensor) else bound for bound in (low, high))
    return torch.clamp(x.to(kind), low, high)


def extremum_beside_nan(operator: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """The smaller, or the larger, of two numbers; beside a NaN the other one."""

    def of(x: Tensor, y: Tensor) -> Tensor:
        kind = torch.result_type(x, y)
        x, y = x.to(kind), y.to(kind)
        if not kind.is_floating_point:
            return operator(x, y)
        return torch.where(torch.isnan(x), y, torch.where(torch.isnan(y), x, operator(x, y)))

    return of


def angle(x: Tensor) -> Any:
    if x.is_complex():
        return NotImplemented
    y = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    found = torch.where(y < 0, torch.full((), math.pi, dtype=y.dtype, device=y.device), 0)
    return torch.where(torch.isnan(y), y, found)


def over_dims(operator: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Whether all, or any, of the elements along several dimensions are true: along one after the other."""

    def of(x: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
        dims = range(x.dim()) if dim is None else sorted(d % x.dim() for d in dim)
        for each in reversed(dims):
            x = operator(x, each, keepdim)
        return x.bool() if x.dtype != torch.uint8 else x

    return of


def integer_power(x: Tensor, exponent: int) -> Tensor:
    result, square = None, x
    while exponent:
        if exponent & 1:
            result = square if result is None else result * square
        exponent >>= 1
        square = square * square if exponent else square
    return torch.ones_like(x) if result is None else result


def power_of_tensors(x: Any, exponent: Tensor) -> Any:
    """Powers of integers, which wrap where they fit no integer."""
    kind = torch.result_type(x, exponent)
    if kind.is_floating_point:
        if isinstance(x, Tensor) and not (x.is_floating_point() and exponent.is_floating_point()):
            return torch.pow(x.to(kind), exponent.to(kind))
        return NotImplemented
    square = x.to(kind) if isinstance(x, Tensor) else torch.full_like(exponent, x, dtype=kind)
    base, exponent = square, exponent.to(kind)
    result = torch.ones_like(exponent)
    bits = torch.iinfo(kind).max.bit_length()
    for bit in range(bits):
        result = torch.where((exponent & (1 << bit)) != 0, result * square, result)
        square = square * square if bit + 1 < bits else square
    inverse = torch.where(base == 1, 1, torch.where(base == -1, 1 - 2 * (exponent & 1), 0))
    return torch.where(exponent < 0, inverse, result).to(kind)


def threshold(x: Tensor, threshold: Number, value: Number) -> Tensor:
    """In the type of x: torch's own rule makes integers real numbers."""
    return torch.where(x <= threshold, torch.full((), value, dtype=x.dtype, device=x.device), x)


def threshold_backward(gradient: Tensor, x: Tensor, threshold: Number) -> Tensor:
    return torch.where(x <= threshold, 0, gradient).to(torch.result_type(gradient, x))


def bitwise(operator: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Any, Any], Tensor]:
    """The operator of two tensors, for a tensor and a number in either order."""

    def of(x: Any, y: Any) -> Tensor:
        kind = torch.result_type(x, y)
        device = next(each.device for each in (x, y) if isinstance(each, Tensor))
        both = (
            each.to(kind) if isinstance(each, Tensor) else torch.full((), each, dtype=kind, device=device)
            for each in (x, y)
        )
        return operator(*both)

    return of


def negative(x: Tensor) -> Any:
    """Of integers a difference: torch-mlir's own negates them as numbers of f32."""
    return NotImplemented if x.is_floating_point() or x.is_complex() else 0 - x


def greatest_divisor(x: Tensor, y: Tensor) -> Any:
    """Of whole numbers, by remainders: as many as neighbours among Fibonacci's numbers of so many bits take."""
    kind = torch.result_type(x, y)
    if kind not in _STEPS:
        return NotImplemented
    larger, smaller = torch.broadcast_tensors(x.to(kind).abs(), y.to(kind).abs())
    for _ in range(_STEPS[kind]):
        ends = smaller == 0
        rest = aten.fmod(larger, torch.where(ends, 1, smaller))
        larger, smaller = torch.where(ends, larger, smaller), torch.where(ends, 0, rest)
    return larger


def least_multiple(x: Tensor, y: Tensor) -> Any:
    divisor = greatest_divisor(x, y)
    if divisor is NotImplemented:
        return divisor
    kind = torch.int32 if divisor.dtype == torch.int16 else divisor.dtype  # as C++ multiplies
    parts = aten.div.Tensor_mode(x.to(kind), torch.where(divisor == 0, 1, divisor).to(kind), rounding_mode="trunc")
    return torch.where(divisor == 0, 0, (parts * y).abs()).to(divisor.dtype)


def of_torchs_compiler() -> dict[Any, Any]:
    """Rules for operators that torch's own compiler brings, where it has been imported, as optimizers do."""
    known = hasattr(torch.ops.prims, "fma")
    return {torch.ops.prims.fma.default: _product_and_sum} if known else {}


def _product_and_sum(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """One function in every table: tables are compared by their functions (composite_operators.py)."""
    return x * y + z


ARITHMETIC = {
    aten.neg.default: negative,
    aten._efficientzerotensor.default: zeros,
    aten.div.Tensor_mode: divide,
    aten.div.Scalar_mode: divide,
    aten.floor_divide.default: lambda x, y: aten.div.Tensor_mode(x, y, rounding_mode="floor"),
    aten.floor_divide.Scalar: lambda x, y: aten.div.Tensor_mode(x, y, rounding_mode="floor"),
    aten.gcd.default: greatest_divisor,
    aten.lcm.default: least_multiple,
    aten.fmod.Scalar: fmod,
    aten.fmod.Tensor: fmod,
    aten.addmm.default: add_integer_product,
    aten.baddbmm.default: add_integer_product,
    aten.rsub.Scalar: subtract_from,
    aten.remainder.Scalar_Tensor: remainder_of_number,
    aten.eq.Tensor: equal,
    **{getattr(aten, name).Scalar: compare(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    aten.isfinite.default: is_finite,
    aten.isclose.default: is_close,
    aten.nan_to_num.default: nan_to_number,
    aten.signbit.default: sign_bit,
    aten.copysign.Tensor: copy_sign,
    aten.copysign.Scalar: copy_sign,
    aten.fmin.default: extremum_beside_nan(torch.minimum),
    aten.fmax.default: extremum_beside_nan(torch.maximum),
    aten.angle.default: angle,
    aten.all.dims: over_dims(aten.all.dim),
    aten.clamp.default: clamp,
    aten.clamp.Tensor: clamp,
    aten.pow.Tensor_Tensor: power_of_tensors,
    aten.pow.Scalar: power_of_tensors,
    aten.threshold.default: threshold,
    aten.threshold_backward.default: threshold_backward,
    aten.bitwise_or.Scalar: bitwise(aten.bitwise_or.Tensor),
    aten.bitwise_or.Scalar_Tensor: bitwise(aten.bitwise_or.Tensor),
    aten.bitwise_xor.Scalar: bitwise(aten.bitwise_xor.Tensor),
    aten.bitwise_xor.Scalar_Tensor: bitwise(aten.bitwise_xor.Tensor),
    aten.__lshift__.Tensor: bitwise(aten.bitwise_left_shift.Tensor),
    aten.__rshift__.Tensor: bitwise(aten.bitwise_right_shift.Tensor),
    aten.bitwise_left_shift.Tensor_Scalar: bitwise(aten.bitwise_left_shift.Tensor),
    aten.bitwise_right_shift.Tensor_Scalar: bitwise(aten.bitwise_right_shift.Tensor),
    aten.bitwise_left_shift.Scalar_Tensor: bitwise(aten.bitwise_left_shift.Tensor),
    aten.bitwise_right_shift.Scalar_Tensor: bitwise(aten.bitwise_right_shift.Tensor),
}
