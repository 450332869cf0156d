"""Short forms of the op builders that CPU kernels are written with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from kitsune_mlir.mlir import arith, ir, memref, scf

DYNAMIC = ir.ShapedType.get_dynamic_size()
_ANY_STRIDE = ir.ShapedType.get_dynamic_stride_or_offset()


def index(value: int) -> ir.Value:
    return arith.constant(ir.IndexType.get(), value)


def add(a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.addi(a, b)


def sub(a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.subi(a, b)


def least(a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.minsi(a, b)


def floor_multiple(a: ir.Value, step: int) -> ir.Value:
    """The largest multiple of `step` that is not above the non-negative `a`."""
    return arith.muli(arith.divui(a, index(step)), index(step))


def loop(start: ir.Value, stop: ir.Value, step: int = 1, carried: Sequence[ir.Value] = ()) -> Iterator:
    """`for i in loop(...)` builds an scf.for; its body ends with `scf.yield_(...)`."""
    return scf.for_(start, stop, index(step), carried)


@contextlib.contextmanager
def each(first: ir.Value, last: ir.Value, step: int = 1) -> Iterator[ir.Value]:
    """A loop that carries nothing, whose body is built inside; its number."""
    own = scf.ForOp(first, last, index(step))
    with ir.InsertionPoint(own.body):
        yield own.induction_variable
        scf.yield_([])


def strided(element: ir.Type, rank: int, unit_inner: bool = False) -> ir.MemRefType:
    """A memref of any sizes, offset and strides; with `unit_inner` rows are contiguous."""
    strides = [_ANY_STRIDE] * rank
    if unit_inner:
        strides[-1] = 1
    return ir.MemRefType.get([DYNAMIC] * rank, element, ir.StridedLayoutAttr.get(_ANY_STRIDE, strides))


def window(source: ir.Value, offsets: Sequence[ir.Value], sizes: Sequence[ir.Value]) -> ir.Value:
    """The block of a memref of dynamic strides at `offsets`, of the same type as `source`."""
    rank = len(offsets)
    dynamic, ones = [DYNAMIC] * rank, [1] * rank
    return memref.SubViewOp(source.type, source, offsets, sizes, [], dynamic, dynamic, ones).result


def dim(source: ir.Value, axis: int) -> ir.Value:
    return memref.dim(source, index(axis))


def zero_of(element: ir.Type) -> ir.Value:
    return arith.constant(element, 0 if isinstance(element, ir.IntegerType) else 0.0)


def convert(value: ir.Value, to: ir.Type) -> ir.Value:
    """The same number in a type at least as wide."""
    if value.type == to:
        return value
    return arith.extsi(to, value) if isinstance(to, ir.IntegerType) else arith.extf(to, value)
