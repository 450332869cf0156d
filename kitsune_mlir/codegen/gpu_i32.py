"""Integers of 32 bits in kernels, for numbers of rows, lanes and digits: half the registers of indices."""

from __future__ import annotations

from kitsune_mlir.mlir import arith, ir


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
