"""Views of tensors, as strides: which of them are columns of longer rows.

%s = tensor.extract_slice %x[0, 5, 0] [16, 1, 128] : tensor<16x12x128xf32>       // one step of a sequence
%y = tensor.collapse_shape %s [[0, 1], [2]] : tensor<16x128xf32>                 // columns 640 to 767 of 16x1536
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.dialects.columns import Place, is_among_columns, place_of, strides_of
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import element_type, slice_of, users_of
from kitsune_mlir.traffic import element_bytes

_GRANULE = 16  # bytes, of which the address that a kernel is given is a multiple


@dataclass(frozen=True)
class _View:
    """Elements of a tensor of `count` in memory, None if its first size is open, or of `row` times that: where the
    first one lies, and the steps to its neighbours."""

    count: int | None
    row: int
    offset: int
    strides: list[int]


def place_among(value: ir.Value) -> Place | None:
    """Where a view of rows and columns lies in longer rows; None where it is none, or lies in no such rows."""
    found, sizes = _view(value), rows.shape_of(value)
    if found is None or len(sizes) != 2 or found.strides[1] != 1 or found.strides[0] <= sizes[1]:
        return None
    pitch = found.strides[0]
    row, first = divmod(found.offset, pitch)
    nbytes = row * pitch * element_bytes(element_type(value))
    if first + sizes[1] > pitch or nbytes % _GRANULE:
        return None
    if found.row % pitch and (found.count is None or (row + sizes[0]) * pitch > found.count):
        return None  # the last of the longer rows may not be all there
    return Place(first, pitch, shared=True)


def begins_at_granule(value: ir.Value) -> bool:
    """Whether a tensor lies, as a view, where kernels may read it and its columns: one of known sizes, or of which a
    kernel reads an open number of rows among longer ones."""
    found, kind = _view(value), ir.RankedTensorType(value.type)
    is_there = found is not None and (found.count is not None or place_among(value) is not None)
    return is_there and found.offset * element_bytes(kind.element_type) % _GRANULE == 0


def is_read_in_place(value: ir.Value) -> bool:
    """Whether all that reads a tensor reads it as well among the columns of longer rows. What leaves the program, or is
    put beside others, would be copied."""
    for op in users_of(value):
        joined = rows.groups_of(op)[-1:] if op.name == "tensor.collapse_shape" else []  # none, if it becomes a number
        keeps_columns = op.name == "tensor.expand_shape" or any(len(group) == 1 for group in joined)
        if keeps_columns:
            if not is_read_in_place(op.results[0]):
                return False
        elif not op.name.startswith("linalg.") and op.name not in ("tensor.extract_slice", "tensor.dim"):
            return False
    return True


def lying(value: ir.Value) -> ir.Value:
    """What a view is of, where it is one of a tensor among longer rows."""
    owner = rows.producer(value)
    if owner is not None and owner.name == "tensor.cast" and is_among_columns(owner.operands[0].type):
        return owner.operands[0]
    return value


def _view(value: ir.Value) -> _View | None:
    """A value of known sizes, or of an open first one, as a view of what it is made of by slices and reshapes alone."""
    kind, op = ir.RankedTensorType(value.type), rows.producer(value)
    if rows.DYNAMIC in kind.shape[1:]:
        return None
    if op is None or op.name not in ("tensor.extract_slice", *rows.RESHAPES):
        within = lying(value).type
        strides, place = list(strides_of(within)), place_of(within)
        row = strides[0] if kind.rank else 1
        count = (row * kind.shape[0] if kind.shape[0] != rows.DYNAMIC else None) if kind.rank else 1
        return _View(count, row, place.first if kind.rank == 2 else 0, strides)
    of, sizes = _view(op.operands[0]), rows.shape_of(op.operands[0])
    if of is None:
        return None
    if op.name == "tensor.extract_slice":
        return _slice(of, op, kind.shape)
    groups = rows.groups_of(op)
    if op.name == "tensor.expand_shape":
        strides = [
            stride * prod(kind.shape[d] for d in group[at + 1 :])
            for group, stride in zip(groups, of.strides, strict=True)
            for at in range(len(group))
        ]
        first = groups[0] if groups else []
        whole = len(first) > 1 and not of.offset and of.strides[0] == of.row  # as many longer rows as there are
        row = prod([of.row, *(kind.shape[d] for d in first[1:])]) if whole else of.row
        return replace(of, row=row, strides=strides or [1] * kind.rank)  # a number has no dimension
    joined = [_joined([(sizes[d], of.strides[d]) for d in group]) for group in groups]
    return None if None in joined else replace(of, strides=[stride for stride in joined if stride is not None])


def _slice(of: _View, op: ir.Operation, shape: Sequence[int]) -> _View | None:
    offsets, sizes, steps = slice_of(op)
    if rows.DYNAMIC in (*offsets, *sizes[1:], *steps):
        return None
    kept: list[int] = []  # dimensions of one element may be dropped
    for d, size in enumerate(sizes):
        if len(kept) < len(shape) and shape[len(kept)] == size:
            kept.append(d)
    offset = of.offset + sum(at * stride for at, stride in zip(offsets, of.strides, strict=True))
    if len(kept) < len(shape):
        return None
    return replace(of, offset=offset, strides=[of.strides[d] * steps[d] for d in kept])


def _joined(dimensions: Sequence[tuple[int, int]]) -> int | None:
    """The step of dimensions, each of a size and a step, that become one; None where their elements lie apart."""
    long = [(size, stride) for size, stride in dimensions if size != 1]
    if any(before != stride * size for (_, before), (size, stride) in zip(long, long[1:])):
        return None
    return long[-1][1] if long else 1
