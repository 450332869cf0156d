"""What the host computes between kernels: the scalar operations of the arith and math dialects that a host program
may hold. Code generation leaves these on the host and makes kernels of others; the runtime computes them. numpy only.

A number is a Python int, float or bool that its MLIR type can hold: integers wrap, floats are rounded to their type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Number = int | float | bool

# The numpy type that computes with an MLIR type. bf16 is computed in float32, then rounded.
_KINDS = {"i1": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64"} | {
    "f16": "float16",
    "bf16": "float32",
    "f32": "float32",
    "f64": "float64",
}


def _unsigned(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function on the bits of its operands, taken for unsigned integers."""
    return lambda *operands: function(*(_bits(operand) for operand in operands))


def _bits(operand: Any) -> Any:
    return operand.astype(np.uint8) if operand.dtype == np.bool_ else operand.view(f"u{operand.dtype.name}")


def _toward_zero(a: Any, b: Any) -> Any:
    """The quotient as C rounds it."""
    quotient, rest = np.divmod(a, b)
    return quotient + ((rest != 0) & (quotient < 0))


def _ceiling(a: Any, b: Any) -> Any:
    return -(-a // b)


def _rounded_up(a: Any, b: Any) -> Any:
    """The quotient of unsigned integers, rounded up."""
    quotient, rest = np.divmod(a, b)
    return quotient + (rest != 0).astype(quotient.dtype)


def _same(value: Any) -> Any:
    return value


def _sign_extended(value: Any) -> Any:
    """The one bit of i1 is its sign."""
    return -value.astype(np.int8) if value.dtype == np.bool_ else value


def _signed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function on signed integers, i1 too."""
    return lambda *operands: function(*(_sign_extended(operand) for operand in operands))


def _away_from_zero(value: Any) -> Any:
    """The nearest whole number; of two, the one farther from zero."""
    return np.trunc(value + np.copysign(np.nextafter(value.dtype.type(0.5), value.dtype.type(0)), value))


# By the numbers of MLIR's predicates; a float comparison is ordered up to 7, then true for NaN as well.
_COMPARE = (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)
_COMPARE_FLOATS = (np.equal, np.greater, np.greater_equal, np.less, np.less_equal, np.not_equal)


def _ordered(compare: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: compare(a, b) & ~(np.isnan(a) | np.isnan(b))


def _unordered(compare: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: compare(a, b) | np.isnan(a) | np.isnan(b)


_FLOAT_PREDICATES: list[Callable[..., Any]] = [
    lambda a, b: np.False_,
    *(_ordered(compare) for compare in _COMPARE_FLOATS),
    lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    *(_unordered(compare) for compare in _COMPARE_FLOATS),
    lambda a, b: np.isnan(a) | np.isnan(b),
    lambda a, b: np.True_,
]

OPERATIONS: dict[str, Callable[..., Any]] = {
    "arith.addf": np.add,
    "arith.addi": np.add,
    "arith.andi": np.bitwise_and,
    "arith.ceildivsi": _ceiling,
    "arith.ceildivui": _unsigned(_rounded_up),
    "arith.divf": np.divide,
    "arith.divsi": _toward_zero,
    "arith.divui": _unsigned(np.floor_divide),
    "arith.extf": _same,
    "arith.extsi": _sign_extended,
    "arith.extui": _unsigned(_same),
    "arith.floordivsi": np.floor_divide,
    "arith.fptosi": np.trunc,
    "arith.fptoui": np.trunc,
    "arith.index_cast": _sign_extended,
    "arith.index_castui": _unsigned(_same),
    "arith.maximumf": np.maximum,
    "arith.maxnumf": np.fmax,
    "arith.maxsi": np.maximum,
    "arith.maxui": _unsigned(np.maximum),
    "arith.minimumf": np.minimum,
    "arith.minnumf": np.fmin,
    "arith.minsi": np.minimum,
    "arith.minui": _unsigned(np.minimum),
    "arith.mulf": np.multiply,
    "arith.muli": np.multiply,
    "arith.negf": np.negative,
    "arith.ori": np.bitwise_or,
    "arith.remf": np.fmod,
    "arith.remsi": np.fmod,
    "arith.remui": _unsigned(np.remainder),
    "arith.select": lambda condition, a, b: a if condition else b,
    "arith.shli": np.left_shift,
    "arith.shrsi": np.right_shift,
    "arith.shrui": _unsigned(np.right_shift),
    "arith.sitofp": _sign_extended,
    "arith.subf": np.subtract,
    "arith.subi": np.subtract,
    "arith.truncf": _same,
    "arith.trunci": _same,
    "arith.uitofp": _unsigned(_same),
    "arith.xori": np.bitwise_xor,
    "math.absf": np.abs,
    "math.absi": np.abs,
    "math.ceil": np.ceil,
    "math.copysign": np.copysign,
    "math.floor": np.floor,
    "math.round": _away_from_zero,
    "math.roundeven": np.rint,
    "math.sqrt": np.sqrt,
    "math.trunc": np.trunc,
    **{f"arith.cmpi.{i}": _signed(compare) for i, compare in enumerate(_COMPARE)},
    **{f"arith.cmpi.{i}": _unsigned(compare) for i, compare in enumerate(_COMPARE[2:], 6)},
    **{f"arith.cmpf.{i}": compare for i, compare in enumerate(_FLOAT_PREDICATES)},
}

_DIVISIONS = {f"arith.{name}" for name in "ceildivsi ceildivui divsi divui floordivsi remsi remui".split()}


def compute(operation: str, operands: Sequence[Number], types: Sequence[str]) -> Number:
    """The value of an operation of the table; `types` are those of its operands, then of its result. Raises
    ZeroDivisionError for an integer divided by zero, ValueError or OverflowError for numbers that are not of the
    operation's types."""
    *of, result = types
    if operation in _DIVISIONS and not operands[1]:
        raise ZeroDivisionError(f"{operation} by zero")
    with np.errstate(all="ignore"):
        numbers = [np.dtype(_KINDS[kind]).type(number) for kind, number in zip(of, operands, strict=True)]
        try:
            return _held(OPERATIONS[operation](*numbers), result)
        except (AttributeError, TypeError) as error:
            raise ValueError(f"{operation} does not take {', '.join(of) or 'nothing'}") from error


def _held(value: Any, kind: str) -> Number:
    """A number of numpy as its MLIR type holds it."""
    if kind.startswith("i"):
        return _wrapped(int(value) if np.isfinite(value) else 0, int(kind[1:]))
    value = np.dtype(_KINDS[kind]).type(value)
    return float(_from_bits(bfloat16(value)) if kind == "bf16" else value)


def _wrapped(number: int, bits: int) -> Number:
    if bits == 1:
        return bool(number & 1)
    half = 1 << (bits - 1)
    return (number + half) % (2 * half) - half


def bfloat16(value: float) -> np.uint16:
    """The bits of a number rounded to the nearest bf16, of two to the even one."""
    bits = int(np.float32(value).view(np.uint32))
    if np.isnan(value):
        return np.uint16(bits >> 16 | 0x40)
    return np.uint16(bits + 0x7FFF + (bits >> 16 & 1) >> 16)


def _from_bits(bits: np.uint16) -> Any:
    return np.uint32(int(bits) << 16).view(np.float32)
