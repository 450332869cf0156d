"""Columns of tensors that row groups read where they lie, as the steps of a series of each row.

%c = tensor.extract_slice %x[0, 5] [512, 1] [1, 1]        "kitsune.read"(%x, %row, %c5) {dims = array<i64: 0>}
%v = tensor.collapse_shape %c                        =>
// a group reads %v for its rows
"""

from __future__ import annotations

from typing import NamedTuple

from kitsune_mlir import rows
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import made_by, slice_of


class Column(NamedTuple):
    """That of a tensor of rows and columns with so many before it."""

    source: ir.Value
    place: int


def column_of(value: ir.Value) -> Column | None:
    """The column that a tensor is; None where it is none."""
    op = made_by(value, "tensor.extract_slice")
    if op is None:
        return None
    source, (offsets, sizes, steps) = op.operands[0], slice_of(op)
    shape = rows.shape_of(source)
    if len(shape) != 2 or shape[1] == rows.DYNAMIC or sizes != [shape[0], 1] or set(steps) != {1}:
        return None
    is_whole = shape[0] != rows.DYNAMIC or rows.is_size_of(op.operands[1], source, 0)
    return Column(source, offsets[1]) if is_whole and offsets[0] == 0 and offsets[1] >= 0 else None
