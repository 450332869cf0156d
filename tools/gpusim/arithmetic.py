"""Numbers of a kernel as numpy computes them: the types, and the operations of arith and math."""

from __future__ import annotations

import functools
import math as pymath
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from kitsune_mlir.mlir import ir

from .lanes import some

DTYPES = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "index": np.int64,
    "i64": np.int64,
    "i32": np.int32,
    "i16": np.int16,
    "i8": np.int8,
    "i1": np.bool_,
}


def dtype_of(kind: ir.Type | np.dtype) -> np.dtype:
    return kind if isinstance(kind, np.dtype) else np.dtype(DTYPES[str(kind)])


def _unsigned(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of integers of one type, as if they had no sign."""

    def apply(a: Any, b: Any) -> Any:
        a, b = np.asarray(a), np.asarray(b)
        given = a.dtype
        kind = _UNSIGNED[given]
        found = np.asarray(function(a.view(kind), b.view(kind)))
        return found if found.dtype == np.bool_ else found.astype(given)

    return apply


_UNSIGNED = {np.dtype(f"i{size}"): np.dtype(f"u{size}") for size in (1, 2, 4, 8)} | {np.dtype(bool): np.dtype("u1")}


def _safe(function: Callable[..., Any]) -> Callable[..., Any]:
    """Division that lanes out of the mask may do by zero."""

    def apply(a: Any, b: Any) -> Any:
        zero = np.equal(b, 0)
        return function(a, np.where(zero, np.ones_like(b), b) if some(zero) else b)

    return apply


def _truncated(a: Any, b: Any) -> Any:
    return (np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(np.result_type(a))


BINARY: dict[str, Callable[..., Any]] = {
    "arith.addf": np.add,
    "arith.subf": np.subtract,
    "arith.mulf": np.multiply,
    "arith.divf": np.divide,
    "arith.remf": np.fmod,
    "arith.maximumf": np.maximum,
    "arith.minimumf": np.minimum,
    "arith.maxnumf": np.fmax,
    "arith.minnumf": np.fmin,
    "arith.addi": np.add,
    "arith.subi": np.subtract,
    "arith.muli": np.multiply,
    "arith.divsi": _safe(_truncated),
    "arith.divui": _safe(_unsigned(np.floor_divide)),
    "arith.remsi": _safe(np.fmod),
    "arith.remui": _safe(_unsigned(np.remainder)),
    "arith.floordivsi": _safe(np.floor_divide),
    "arith.ceildivsi": _safe(lambda a, b: -(-a // b)),
    "arith.ceildivui": _safe(lambda a, b: -(-a // b)),
    "arith.maxsi": np.maximum,
    "arith.minsi": np.minimum,
    "arith.maxui": _unsigned(np.maximum),
    "arith.minui": _unsigned(np.minimum),
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
    "arith.shli": np.left_shift,
    "arith.shrsi": np.right_shift,
    "arith.shrui": _unsigned(np.right_shift),
    "math.powf": np.power,
    "math.fpowi": np.power,
    "math.ipowi": np.power,
    "math.atan2": np.arctan2,
    "math.copysign": np.copysign,
}


def _bits(x: np.ndarray) -> np.ndarray:
    """The bits of each number, the lowest first."""
    x = np.ascontiguousarray(x)
    return np.unpackbits(x.view(np.uint8).reshape(*x.shape, x.itemsize), axis=-1, bitorder="little")


def _ones(x: np.ndarray) -> np.ndarray:
    """How many bits of each number are set."""
    return _bits(x).sum(-1)


def _zeros_above(x: np.ndarray) -> np.ndarray:
    """How many bits of each number stand above the highest one that is set."""
    bits = _bits(x)[..., ::-1]
    return np.where(bits.any(-1), bits.argmax(-1), bits.shape[-1])


_erf = np.vectorize(pymath.erf, otypes=[np.float64])
UNARY: dict[str, Callable[..., Any]] = {
    "arith.negf": np.negative,
    "math.absf": np.abs,
    "math.absi": np.abs,
    "math.acos": np.arccos,
    "math.acosh": np.arccosh,
    "math.asin": np.arcsin,
    "math.asinh": np.arcsinh,
    "math.atan": np.arctan,
    "math.atanh": np.arctanh,
    "math.ceil": np.ceil,
    "math.cos": np.cos,
    "math.cosh": np.cosh,
    "math.erf": _erf,
    "math.ctlz": _zeros_above,
    "math.ctpop": _ones,
    "math.exp": np.exp,
    "math.exp2": np.exp2,
    "math.expm1": np.expm1,
    "math.floor": np.floor,
    "math.log": np.log,
    "math.log1p": np.log1p,
    "math.log10": np.log10,
    "math.log2": np.log2,
    "math.round": lambda x: np.trunc(x + np.copysign(0.5, x)),
    "math.roundeven": np.rint,
    "math.rsqrt": lambda x: 1 / np.sqrt(x),
    "math.sin": np.sin,
    "math.sinh": np.sinh,
    "math.sqrt": np.sqrt,
    "math.tan": np.tan,
    "math.tanh": np.tanh,
    "math.trunc": np.trunc,
}
CASTS = "extf truncf extsi extui trunci index_cast index_castui sitofp uitofp fptosi fptoui".split()
_FLOAT_COMPARE = [np.equal, np.greater, np.greater_equal, np.less, np.less_equal, np.not_equal]
_INT_COMPARE = [np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal]


@functools.cache
def int_compare(predicate: int) -> Callable[..., Any]:
    """arith.cmpi."""
    return _INT_COMPARE[predicate] if predicate < 6 else _unsigned(_INT_COMPARE[predicate - 4])


@functools.cache
def float_compare(predicate: int) -> Callable[..., Any]:
    """arith.cmpf. numpy's comparisons with NaN are false, but for `not_equal`, which is true."""
    if predicate in (1, 2, 3, 4, 5):  # oeq, ogt, oge, olt, ole
        return _FLOAT_COMPARE[predicate - 1]
    if predicate == 13:  # une
        return np.not_equal
    if predicate in (9, 10, 11, 12):  # ugt, uge, ult, ule
        opposite = _FLOAT_COMPARE[{9: 4, 10: 3, 11: 2, 12: 1}[predicate]]
        return lambda a, b: ~opposite(a, b)

    def compare(a: Any, b: Any) -> Any:
        unordered = np.isnan(a) | np.isnan(b)
        if predicate in (0, 15):  # always false, always true
            return np.full(np.shape(unordered), predicate == 15)
        if predicate in (7, 14):  # ord, uno
            return ~unordered if predicate == 7 else unordered
        return np.not_equal(a, b) & ~unordered if predicate == 6 else np.equal(a, b) | unordered  # one, ueq

    return compare


@functools.cache
def cast(name: str, kind: np.dtype) -> Callable[..., Any]:
    """An operation of arith named in CASTS, to a kind of number."""
    if name in ("arith.extui", "arith.index_castui", "arith.uitofp"):

        def convert(value: Any) -> Any:
            value = np.asarray(value)
            return (value.view(_UNSIGNED[value.dtype]) if value.dtype.kind == "i" else value).astype(kind)

    elif name == "arith.extsi":

        def convert(value: Any) -> Any:
            value = np.asarray(value)
            return -value.astype(kind) if value.dtype == np.bool_ else value.astype(kind)

    elif name == "arith.trunci" and kind == np.bool_:

        def convert(value: Any) -> Any:
            return (np.asarray(value) & 1).astype(kind)

    else:

        def convert(value: Any) -> Any:
            return np.asarray(value).astype(kind)

    return convert


@functools.cache
def arithmetic(name: str, kind: np.dtype) -> Callable[..., Any]:
    """An operation named in BINARY or UNARY, which gives a kind of number."""
    function = BINARY.get(name) or UNARY[name]
    if not name.startswith("math.") or kind.itemsize >= 4:

        def settled(found: Any) -> np.ndarray:
            if type(found) is not np.ndarray:
                found = np.asarray(found)
            return found if found.dtype == kind else found.astype(kind)

        if name in UNARY:

            def computed(a: Any) -> Any:
                found = function(a)
                return found if type(found) is np.ndarray and found.dtype is kind else settled(found)
        else:

            def computed(a: Any, b: Any) -> Any:
                found = function(a, b)
                return found if type(found) is np.ndarray and found.dtype is kind else settled(found)

        return computed

    def widened(*arguments: Any) -> Any:
        wide = [np.asarray(a).astype(np.float32) if a.dtype != np.int64 else a for a in arguments]
        return np.asarray(function(*wide)).astype(kind)

    return widened
