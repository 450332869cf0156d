"""Numbers of all threads of a block, as arrays: what arithmetic of kernels gives that is known before a call
(kernel_work.py). Numbers of floating point are known where they are made of integers, as places of a larger image are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kitsune_mlir.mlir import attr_int, ir

Array = Any  # of integers, floats or truths: (turns or 1) x (threads or 1)


def _divided(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda a, b: function(a, np.where(b == 0, 1, b))


def _unsigned(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda a, b: function(np.asarray(a).astype(np.uint64), np.asarray(b).astype(np.uint64))


_INTEGERS: dict[str, Callable[..., Array]] = {
    "arith.addi": np.add,
    "arith.subi": np.subtract,
    "arith.muli": np.multiply,
    "arith.divui": _divided(np.floor_divide),
    "arith.divsi": _divided(np.floor_divide),
    "arith.floordivsi": _divided(np.floor_divide),
    "arith.ceildivui": _divided(lambda a, b: -(-a // b)),
    "arith.ceildivsi": _divided(lambda a, b: -(-a // b)),
    "arith.remui": _divided(np.remainder),
    "arith.remsi": _divided(np.remainder),
    "arith.minui": np.minimum,
    "arith.minsi": np.minimum,
    "arith.maxui": np.maximum,
    "arith.maxsi": np.maximum,
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
    "arith.shli": np.left_shift,
    "arith.shrui": np.right_shift,
    "arith.shrsi": np.right_shift,
}
_FLOATS: dict[str, Callable[..., Array]] = {
    "arith.addf": np.add,
    "arith.subf": np.subtract,
    "arith.mulf": np.multiply,
    "arith.divf": lambda a, b: a / np.where(b == 0, 1.0, b),
    "arith.maximumf": np.maximum,
    "arith.minimumf": np.minimum,
    "arith.maxnumf": np.maximum,
    "arith.minnumf": np.minimum,
    "math.floor": np.floor,
    "math.roundeven": np.round,
    "arith.sitofp": lambda a: a.astype(float),
    "arith.uitofp": lambda a: a.astype(float),
    "arith.fptosi": lambda a: a.astype(int),
    "arith.fptoui": lambda a: a.astype(int),
}
_SAME = frozenset(
    """arith.index_cast arith.index_castui arith.extui arith.extsi arith.trunci arith.extf arith.truncf""".split()
)
_ORDERS = (np.less, np.less_equal, np.greater, np.greater_equal)
_COMPARED = (np.equal, np.not_equal, *_ORDERS, *map(_unsigned, _ORDERS))  # by predicate


def constant(value: ir.Attribute) -> Array | None:
    """One number for all threads."""
    if isinstance(value, ir.FloatAttr):
        return np.full((1, 1), float(value.value))
    return np.full((1, 1), int(value.value)) if isinstance(value, ir.IntegerAttr | ir.BoolAttr) else None


def computed(op: ir.Operation, operands: Sequence[Array]) -> Array | None:
    """What an operation gives whose operands are known; None for one that is not followed."""
    if op.name in _INTEGERS:
        return _INTEGERS[op.name](*operands)
    if op.name in _FLOATS:
        return _FLOATS[op.name](*operands)
    if op.name == "arith.cmpi":
        return _COMPARED[attr_int(op, "predicate")](*operands)
    if op.name == "arith.select":
        return np.where(*operands)
    return operands[0] if op.name in _SAME else None
