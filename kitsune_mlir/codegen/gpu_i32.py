"""Integers of 32 bits in kernels, for numbers of rows, lanes and digits: half the registers of indices."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from kitsune_mlir.mlir import arith, ir, scf


def i32() -> ir.Type:
    return ir.IntegerType.get_signless(32)


def number_of(x: int) -> ir.Value:
    return arith.constant(i32(), x)


def narrow(x: ir.Value) -> ir.Value:
    """An index that is known to be less than 2^32."""
    return arith.index_cast(i32(), x)


def index(x: ir.Value) -> ir.Value:
    return arith.index_castui(ir.IndexType.get(), x)


def less(a: ir.Value, b: ir.Value) -> ir.Value:
    """Whether a < b, both without a sign."""
    return arith.cmpi(arith.CmpIPredicate.ult, a, b)


@contextlib.contextmanager
def where(condition: ir.Value) -> Iterator[None]:
    """What is built inside runs where the condition holds."""
    guard = scf.IfOp(condition)
    with ir.InsertionPoint(guard.then_block):
        yield
        scf.yield_([])
