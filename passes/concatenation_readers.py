"""What an operator makes of a concatenation, element by element, is made part by part.

    %n = linalg.generic ins(%x1) { negf } ...                          // how queries and keys are rotated
    %c = tensor.concat dim(1) %n, %x0 : (tensor<8x32xbf16>, tensor<8x32xbf16>) -> tensor<8x64xbf16>
    %y = linalg.generic ins(%x, %cos, %c, %sin) { %x * %cos + %c * %sin } ...
  =>
    %y0 = linalg.generic ins(%x[0:32], %cos[0:32], %x1, %sin[0:32]) { ... }
    %y1 = linalg.generic ins(%x[32:64], %cos[32:64], %x0, %sin[32:64]) { ... }
    %y = tensor.concat dim(1) %y0, %y1

So the parts are computed with what reads them, and written once, by one launch (join_launches.py). What is read in
another order of its dimensions, but for the last, is read where it lies.
"""

from __future__ import annotations

from math import prod

from kitsune_mlir import rows
from kitsune_mlir.generics import generic
from kitsune_mlir.mlir import attr_int, ir, replace_op, tensor, walk
from kitsune_mlir.operations import element_type, is_generic, permutation_of, slice_of, users_of
from kitsune_mlir.traffic import element_bytes

from .operand_layout import GRANULE, SECTOR
from .reshapes import slice_along


def read_parts(main: ir.Operation) -> None:
    """Rewrites such operators of @main."""
    for op in walk(main, "linalg.generic"):
        _read_in_order(op)
    for concat in walk(main, "tensor.concat"):
        while concat is not None:
            concat = _by_parts(concat)
    for op in walk(main, "linalg.generic"):
        _read_in_order(op)


def _by_parts(concat: ir.Operation) -> ir.Operation | None:
    """The concatenation of what its reader makes of its parts, in the reader's place; None where it stays."""
    uses, dim = list(concat.results[0].uses), attr_int(concat, "dim")
    reader = uses[0].owner.operation if uses else None
    if reader is None or any(use.owner.operation != reader for use in uses) or not _is_elementwise(reader):
        return None
    s, number = rows.Structured(reader), uses[0].operand_number
    identity = ir.AffineMap.get_identity(len(s.iterators))
    if len(uses) > 1 or number >= s.inputs or s.maps[number] != identity or not _is_vectored(concat, reader, dim):
        return None
    parts, first = [], 0
    for part in concat.operands:
        size = rows.shape_of(part)[dim]
        parts.append(_computed(reader, {concat.results[0]: part}, dim, first, size))
        first += size
    with reader.location, ir.InsertionPoint(reader):
        made = tensor.ConcatOp(reader.results[0].type, dim, parts)
    replace_op(reader, made.result)
    concat.erase()
    return made.operation


def _is_vectored(concat: ir.Operation, reader: ir.Operation, dim: int) -> bool:
    """Whether each part's rows are whole vectors of threads, in what is read and in what is written."""
    behind = rows.shape_of(concat.results[0])[dim + 1 :]
    sizes = [rows.shape_of(part)[dim] for part in concat.operands]
    if rows.DYNAMIC in (*behind, *sizes):
        return False
    kinds = [element_type(value) for value in (concat.results[0], reader.results[0])]
    return all(prod(behind) * size * element_bytes(kind) % GRANULE == 0 for kind in kinds for size in sizes)


def _computed(op: ir.Operation, known: dict[ir.Value, ir.Value], dim: int, first: int, size: int) -> ir.Value:
    """What an elementwise operator makes of `size` elements from `first` on along a loop; `known` has some inputs'."""
    s = rows.Structured(op)
    inputs = []
    for value, map_ in zip(s.given, s.maps):
        axes = [axis for axis, expr in enumerate(map_.results) if rows.dim_of(expr) == dim]
        inputs.append(known[value] if value in known else _cut(value, axes[0], first, size, op) if axes else value)
    with op.location, ir.InsertionPoint(op):
        start = slice_along(op.operands[s.inputs], dim, first, size)
        return generic(inputs, [start], s.maps, s.iterators, s.body).results[0]


def _cut(value: ir.Value, axis: int, first: int, size: int, reader: ir.Operation) -> ir.Value:
    """A part of what an operator reads; what is computed for it alone is computed in parts, too."""
    op = rows.producer(value)
    alone = op is not None and op.block == reader.block and set(users_of(value)) == {reader}
    if alone and _is_elementwise(op):
        return _computed(op, {}, axis, first, size)
    with reader.location, ir.InsertionPoint(reader):
        return slice_along(value, axis, first, size)


def _read_in_order(op: ir.Operation) -> None:
    """Lets an elementwise operator read what a transpose that keeps rows moves, or a slice of that, in front of it."""
    if not _is_elementwise(op):
        return
    s = rows.Structured(op)
    maps = list(s.maps)
    for number in range(s.inputs):
        value = op.operands[number]
        found = rows.producer(value)
        cut = found if found is not None and found.name == "tensor.extract_slice" else None
        moved = rows.producer(cut.operands[0]) if cut is not None else found
        if moved is None or moved.name != "linalg.transpose" or not _keeps_rows(moved, value):
            continue
        order = permutation_of(moved)
        if cut is not None and (rows.DYNAMIC in slice_of(cut).offsets or cut.results[0].type.rank != len(order)):
            continue
        op.operands[number] = moved.operands[0] if cut is None else _cut_before(moved, cut, order)
        results = list(maps[number].results)
        maps[number] = ir.AffineMap.get(len(s.iterators), 0, [results[order.index(d)] for d in range(len(order))])
    op.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(map_) for map_ in maps])


def _keeps_rows(transpose: ir.Operation, read: ir.Value) -> bool:
    """Whether rows, of which whole sectors are read, stay as they are."""
    order = permutation_of(transpose)
    kind = ir.RankedTensorType(read.type)
    last = kind.shape[-1]
    return order[-1] == len(order) - 1 and last != rows.DYNAMIC and last * element_bytes(kind.element_type) >= SECTOR


def _cut_before(moved: ir.Operation, cut: ir.Operation, order: list[int]) -> ir.Value:
    """The slice of what a transpose takes that one of its result, from known places on, is."""
    back = [order.index(d) for d in range(len(order))]
    given = iter(list(cut.operands)[1:])  # sizes that are open, in the order of dimensions
    open_ = [next(given) if size == rows.DYNAMIC else None for size in slice_of(cut).sizes]
    before = [[own[d] for d in back] for own in slice_of(cut)]
    kind = ir.RankedTensorType(cut.results[0].type)
    type_ = ir.RankedTensorType.get([kind.shape[d] for d in back], kind.element_type)
    sizes = [open_[d] for d in back if open_[d] is not None]
    with cut.location, ir.InsertionPoint(cut):
        return tensor.ExtractSliceOp(type_, moved.operands[0], [], sizes, [], *before).result


def _is_elementwise(op: ir.Operation) -> bool:
    """Whether an operator has one result, in the order of its loops, of elements that no table gives."""
    if not is_generic(op):
        return False
    s = rows.Structured(op)
    plain = not s.index_ops() and not s.tables() and not s.reads_start
    return plain and s.is_elementwise()
