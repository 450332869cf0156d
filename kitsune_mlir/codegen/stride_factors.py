"""What is known of strides and offsets that are open until the call: that they are multiples of a number, as those of
rows of 64 elements are, however many rows there are."""

from __future__ import annotations

from math import gcd, prod

from kitsune_mlir import rows
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import slice_of


def stride_factors(buffer: ir.Value) -> list[int]:
    """For each dimension of a buffer a number that its stride is a multiple of: the stride, where that is known."""
    kind = ir.MemRefType(buffer.type)
    strides, _ = kind.get_strides_and_offset()
    if min(strides, default=0) >= 0:
        return list(strides)
    return [own if own >= 0 else factor for own, factor in zip(strides, _open_factors(buffer, kind), strict=True)]


def offset_factor(buffer: ir.Value) -> int:
    """A number that the place of a buffer's first element is a multiple of: that place, where it is known."""
    offset = ir.MemRefType(buffer.type).get_strides_and_offset()[1]
    view = rows.producer(buffer)
    if offset >= 0 or view is None or view.name not in _VIEWS:
        return offset if offset >= 0 else 1
    source = view.operands[0]
    if view.name != "memref.subview":
        return offset_factor(source)
    steps = zip(slice_of(view).offsets, stride_factors(source), strict=True)
    return gcd(offset_factor(source), *(factor * (1 if first < 0 else first) for first, factor in steps))


def _open_factors(buffer: ir.Value, kind: ir.MemRefType) -> list[int]:
    if kind.affine_map == ir.AffineMap.get_identity(kind.rank):
        return [prod(max(size, 1) for size in kind.shape[d + 1 :]) for d in range(kind.rank)]
    view, unknown = rows.producer(buffer), [1] * kind.rank
    if view is None or view.name not in _VIEWS:
        return unknown
    source = stride_factors(view.operands[0])
    if view.name == "memref.cast":
        return source
    if view.name == "memref.subview":
        steps = slice_of(view).strides
        return [own * max(step, 1) for own, step in zip(source, steps)] if len(source) == kind.rank else unknown
    groups = rows.groups_of(view)
    if view.name == "memref.collapse_shape":
        return [gcd(*(source[d] for d in group)) for group in groups]
    found = list(unknown)
    for group, factor in zip(groups, source):
        for d in reversed(group):
            found[d] = factor
            factor *= max(kind.shape[d], 1)
    return found


_VIEWS = ("memref.cast", "memref.subview", "memref.collapse_shape", "memref.expand_shape")
