"""An element that is read by number of a slice that is reshaped is read of the tensor that the slice is of.

    %s = tensor.extract_slice %x[0, 3, 0, 0] [2, 1, %h, %w] [1, 1, 1, 1] : tensor<2x9x?x?xf32> to tensor<2x1x?x?xf32>
    %c = tensor.collapse_shape %s [[0, 1], [2], [3]] : tensor<2x1x?x?xf32> into tensor<2x?x?xf32>
    %e = tensor.extract %c[%b, %i, %j]
      =>
    %e = tensor.extract %x[%b, 3, %i, %j]

Slices alone are views of memory; one whose dimensions are collapsed would be copied.
"""

from __future__ import annotations

from kitsune_mlir import rows
from kitsune_mlir.generics import constant_index
from kitsune_mlir.mlir import arith, ir, walk
from kitsune_mlir.operations import made_by, slice_of


def read_where_sliced(main: ir.Operation) -> None:
    """Rewrites such reads of @main."""
    for op in walk(main, "tensor.extract"):
        made = made_by(op.operands[0], "tensor.collapse_shape")
        if made is None:
            continue
        while (found := _source(op)) is not None:
            value, at = found
            with op.location, ir.InsertionPoint(op):
                op = _replaced(op, value, at)


def _replaced(op: ir.Operation, value: ir.Value, at: list[int | ir.Value | tuple[int, ir.Value]]) -> ir.Operation:
    """The same element, of this tensor at these places: numbers, indices, or an offset with an index."""
    places = []
    for place in at:
        if isinstance(place, tuple):
            first, index = place
            place = arith.addi(index, constant_index(first)) if first else index
        places.append(constant_index(place) if isinstance(place, int) else place)
    made = ir.Operation.create("tensor.extract", [op.results[0].type], [value, *places])
    op.results[0].replace_all_uses_with(made.results[0])
    op.erase()
    return made


def _is_of_slice(reshape: ir.Operation) -> bool:
    """Whether what is collapsed is a slice: other memory is read as it is, in as few dimensions as it has."""
    while (before := rows.producer(reshape.operands[0])) is not None and before.name == reshape.name:
        reshape = before
    return before is not None and before.name == "tensor.extract_slice"


def _source(op: ir.Operation) -> tuple[ir.Value, list] | None:
    """The tensor that what an element is read of is a slice of, and where the element is there; None for any other."""
    value, *at = op.operands
    made = rows.producer(value)
    if made is None:
        return None
    if made.name == "tensor.extract_slice":
        taken = slice_of(made)
        known = not any(offset == rows.DYNAMIC for offset in taken.offsets) and set(taken.strides) == {1}
        same = ir.RankedTensorType(made.operands[0].type).rank == len(at)
        return (made.operands[0], list(zip(taken.offsets, at))) if known and same else None
    if made.name != "tensor.collapse_shape" or not _is_of_slice(made):
        return None
    shape, places = rows.shape_of(made.operands[0]), list[int | ir.Value]()
    for group, place in zip(rows.groups_of(made), at, strict=True):
        longer = [d for d in group if shape[d] != 1]
        if len(longer) > 1:
            return None
        kept = longer[0] if longer else group[0]
        places += [place if d == kept else 0 for d in group]
    return made.operands[0], places
