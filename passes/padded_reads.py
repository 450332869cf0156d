"""How an operator reads an operand that has something around it, such as zeros, is a slice of such a tensor, or is
computed element by element of the one in memory (window_reads.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isinf

from kitsune_mlir import rows
from kitsune_mlir.codegen.affine_index import linear
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import element_type, filler_of, made_by, padding_of, slice_of

Border = tuple[tuple[int, ...], tuple[int, ...], ir.Attribute]  # elements before and behind each dimension, and which

# A tensor, what of another one is before and behind each of its dimensions, and what that is.
Around = tuple[ir.Value, tuple[int, ...], tuple[int, ...], ir.Attribute]


@dataclass(frozen=True)
class Read:
    """How an operator reads an operand: the tensor that lies in memory, what of it is before and behind each of its
    dimensions, and what that is; the body of the operator that makes an element of the operand of each of its."""

    tensor: ir.Value
    map: ir.AffineMap
    low: tuple[int, ...]
    high: tuple[int, ...]
    outside: ir.Attribute | None
    made: ir.Block | None

    @property
    def is_padded(self) -> bool:
        return self.outside is not None


def read_of(value: ir.Value, map_: ir.AffineMap, once: bool, elements: Mapping[int, int]) -> Read:
    """How an operand is read, without what is put around it and what widens it, or computes each element of it, where
    these are read `once`. `elements` are the points of loops that reduce."""
    value, map_ = _without_units(value, map_)
    rank = len(map_.results)
    low, high, outside = (0,) * rank, (0,) * rank, None
    around = _padded(value)
    if around is not None and _reads_elements(around, map_, elements):
        value, low, high, outside = around
    elif not is_window(map_):
        return Read(value, map_, low, high, None, None)
    maker = _maker(value)
    if maker is None:
        return Read(value, map_, low, high, outside, None)
    (narrow, _), body = maker.operands, maker.regions[0].blocks[0]
    if [inner.operation.name for inner in body.operations] != ["arith.extf", "linalg.yield"]:
        alone = once and outside is None and len(list(value.uses)) == 1
        return Read(narrow, map_, low, high, None, body) if alone else Read(value, map_, low, high, outside, None)
    if not (outside is None or outside.value == 0 or isinf(outside.value)):
        return Read(value, map_, low, high, outside, None)
    narrow_type = element_type(narrow)
    outside = None if outside is None else ir.FloatAttr.get(narrow_type, outside.value)
    return Read(narrow, map_, low, high, outside, body)


def _reads_elements(around: Around, map_: ir.AffineMap, elements: Mapping[int, int]) -> bool:
    """Whether there are elements wherever there are results: where sizes are open there may be none, unless windows are
    longer than what is around them."""
    value, low, high, _ = around
    kind = ir.RankedTensorType(value.type)
    for d in range(kind.rank):
        if (low[d] or high[d]) and kind.is_dynamic_dim(d):
            _, steps = linear(map_.results[d], map_.n_dims) or (0, [0] * map_.n_dims)
            if sum(steps[loop] * (count - 1) for loop, count in elements.items()) < low[d] + high[d]:
                return False
    return True


def _without_units(value: ir.Value, map_: ir.AffineMap) -> tuple[ir.Value, ir.AffineMap]:
    """A tensor with zeros around it that has been given dimensions of one element, as the channels of a group of one,
    as it was before, and how that is read."""
    expand = made_by(value, "tensor.expand_shape")
    if expand is None:
        return value, map_
    before, shape, kept = rows.producer(expand.operands[0]), rows.shape_of(value), list[int]()
    for group in rows.groups_of(expand):
        long = [d for d in group if shape[d] != 1]
        if len(long) > 1:
            return value, map_
        kept += long or group[:1]
    if before is None or before.name not in ("tensor.pad", "tensor.extract_slice"):
        return value, map_
    return expand.operands[0], ir.AffineMap.get(map_.n_dims, 0, [map_.results[d] for d in kept])


def _padded(value: ir.Value) -> Around | None:
    """The tensor that a value has with something around it, perhaps a slice of that, which begins and ends elsewhere;
    how much of what is before and behind each of its dimensions."""
    if not rows.is_tensor(value):
        return None
    op, kind = rows.producer(value), ir.RankedTensorType(value.type)
    first = [0] * kind.rank
    while op is not None and op.name == "tensor.extract_slice":
        cut, source = slice_of(op), ir.RankedTensorType(op.operands[0].type)
        if source.rank != kind.rank or not source.has_static_shape or {*cut.strides, 1} != {1}:
            return None
        if rows.DYNAMIC in (*cut.offsets, *cut.sizes):
            return None
        first, op = [a + b for a, b in zip(first, cut.offsets)], rows.producer(op.operands[0])
    if op is None or op.name != "tensor.pad" or (around := around_of(op)) is None:
        return None
    low, high, outside = around
    if op.results[0] != value:
        ends = [size - at - own for size, at, own in zip(op.results[0].type.shape, first, kind.shape)]
        low = tuple(own - at for own, at in zip(low, first))
        high = tuple(own - end for own, end in zip(high, ends))
    return op.operands[0], low, high, outside


def around_of(pad: ir.Operation) -> Border | None:
    """How much is before and behind each dimension of a tensor, and what, where all of that is known."""
    low, high = padding_of(pad)
    kind = ir.RankedTensorType(pad.operands[0].type)
    filler = rows.producer(filler_of(pad))
    known = all(kind.shape[d] for d in range(kind.rank) if low[d] or high[d])
    value = None if filler is None else _number(filler)
    return None if value is None or not known or min((*low, *high)) < 0 else (low, high, value)


def _number(op: ir.Operation) -> ir.Attribute | None:
    """The constant that an operation makes, or rounds."""
    if op.name == "arith.truncf" and (made := rows.producer(op.operands[0])) is not None:
        wide = _number(made)
        return None if wide is None else ir.FloatAttr.get(op.results[0].type, ir.FloatAttr(wide).value)
    return op.attributes["value"] if op.name == "arith.constant" else None


def _maker(value: ir.Value) -> ir.Operation | None:
    """The operator that computes each element of a tensor of the same element of another one."""
    op = made_by(value, "linalg.generic")
    if op is None or len(op.results) > 1:
        return None
    s = rows.Structured(op)
    plain = s.maps == [ir.AffineMap.get_identity(len(s.iterators))] * 2 and set(s.iterators) == {"parallel"}
    elsewhere = any(inner.operation.name in ("linalg.index", "tensor.extract") for inner in s.body.operations)
    begins = bool(list(s.body.arguments[-1].uses))
    return op if s.inputs == 1 and plain and not elsewhere and not begins else None


def is_window(map_: ir.AffineMap) -> bool:
    """Whether a tensor is read other than by its elements' own loops."""
    return not all(isinstance(expression, ir.AffineDimExpr | ir.AffineConstantExpr) for expression in map_.results)
