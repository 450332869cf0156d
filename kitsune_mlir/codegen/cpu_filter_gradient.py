"""Gradients of convolutions of few channels a group, by their filters, on a CPU: a line of sums, in f64, for each tap,
to which all places add where their element of the image is inside.

    %w = call @kitsune_filter_gradient0(%x, %g)
  =>
    for each tap:  sums = 0;  for each place whose element is inside:  sums[...] += x[...] * g[...];  %w[tap] = sums
"""

from __future__ import annotations

import contextlib

from kitsune_mlir.mlir import arith, ir, memref

from .cpu_build import add, dim, each, index, least
from .filter_gradient import FilterGradient, filter_gradients


def lower_filter_gradients(module: ir.Module) -> None:
    """Puts loops in the place of the calls."""
    for one in filter_gradients(module):
        with one.call.context, one.call.location, ir.InsertionPoint(one.call):
            result = memref.alloc(one.kind, [], [])
            _build(one, result)
            one.replace(result)


def _build(one: FilterGradient, result: ir.Value) -> None:
    of, wide = one.convolution, ir.F64Type.get()
    sums = memref.alloc(ir.MemRefType.get([of.channels], wide), [], [])
    zero = arith.constant(wide, 0.0)
    with contextlib.ExitStack() as loops:
        taps = [loops.enter_context(each(index(0), index(size))) for size in of.kernel]
        with each(index(0), index(of.channels)) as channel:
            memref.store(zero, sums, [channel])
        with contextlib.ExitStack() as inner:
            batch = inner.enter_context(each(index(0), dim(one.image, 0)))
            places, seen = [], []
            for axis, tap in enumerate(taps):
                first, last, moved = _inside(one, axis, tap)
                places.append(inner.enter_context(each(first, last)))
                seen.append(add(arith.muli(places[-1], index(of.stride[axis])), moved))
            _add(one, [batch, *seen], [batch, *places], sums)
        with each(index(0), index(of.channels)) as channel:
            total = memref.load(sums, [channel])
            own = total if one.kind.element_type == wide else arith.truncf(one.kind.element_type, total)
            memref.store(own, result, [*taps, channel])


def _inside(one: FilterGradient, axis: int, tap: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """The places from one to another whose element along a size is inside of the image, and how far that is moved from
    the place times the stride."""
    of, zero = one.convolution, index(0)
    moved = arith.subi(arith.muli(tap, index(of.dilation[axis])), index(of.padding[axis]))
    stride = index(of.stride[axis])
    first = arith.ceildivsi(arith.maxsi(arith.subi(zero, moved), zero), stride)
    over = arith.maxsi(arith.subi(dim(one.image, 1 + axis), moved), zero)
    return first, least(dim(one.gradient, 1 + axis), arith.ceildivsi(over, stride)), moved


def _add(one: FilterGradient, seen: list[ir.Value], place: list[ir.Value], sums: ir.Value) -> None:
    """Adds the products of a place."""
    of = one.convolution
    with contextlib.ExitStack() as loops:
        groups = loops.enter_context(each(index(0), index(of.groups)))
        outputs = loops.enter_context(each(index(0), index(of.outputs)))
        inputs = loops.enter_context(each(index(0), index(of.inputs)))
        output = add(arith.muli(groups, index(of.outputs)), outputs)
        channel = add(arith.muli(groups, index(of.inputs)), inputs)
        at = [add(arith.muli(output, index(of.inputs)), inputs)]
        left = _wide(memref.load(one.image, [*seen, channel]))
        right = _wide(memref.load(one.gradient, [*place, output]))
        memref.store(arith.addf(memref.load(sums, at), arith.mulf(left, right)), sums, at)


def _wide(x: ir.Value) -> ir.Value:
    """A number as f64, by f32, to which the numbers of 16 bits are expanded."""
    for kind in (ir.F32Type.get(), ir.F64Type.get()):
        x = arith.extf(kind, x) if x.type.width < kind.width else x
    return x
