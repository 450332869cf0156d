"""Columns of a row group's tiles that are all that others read of them, such as the last of a running sum.

    %y = ...                                                   // in the group
    %c = tensor.extract_slice %y[0, 99] [512, 1] [1, 1]        // behind it
  =>
    %m = arith.constant dense<[false, ..., true]>
    %r = linalg.generic {... "reduction"} ins(%y, %m)          // in the group: the largest of what the mask leaves
    %c = tensor.expand_shape %r

So the kernel writes a number for each row, and not all of the tile.
"""

from __future__ import annotations

import math

from kitsune_mlir import rows
from kitsune_mlir.generics import generic, map_of, sizes_of
from kitsune_mlir.mlir import arith, ir, linalg, replace_op, tensor
from kitsune_mlir.operations import operations_of, slice_of, users_of

from .reshapes import reshaped
from .row_groups import Group, fit
from .tensor_sizes import TensorSizes

_MOST = 4  # columns that are taken so


def take_columns(group: Group, known: TensorSizes) -> Group:
    """The group with reductions that take such columns, and these in the place of the slices, by the sizes that are
    known of tensors."""
    members = dict(group.members)
    for member in group.outputs if group.space.inner == 1 else ():
        value = member.op.results[0]
        kind = ir.RankedTensorType(value.type)
        others = [user for user in users_of(value) if not group.has(user)]
        if not member.has_columns or not _is_word(kind.element_type) or not 0 < len(others) <= _MOST:
            continue
        if kind.shape[-1] != group.space.columns or not all(_takes_column(op, kind) for op in others):
            continue
        for op in others:
            with op.location:
                made = _taken(value, slice_of(op)[0][-1], member.op)
            own = fit(made, group.space, known.shape)
            assert own is not None
            members[made.results[0]] = own
            with op.location, ir.InsertionPoint(op):
                replace_op(op, reshaped(made.results[0], rows.known_sizes(op.results[0])))
            known.forget_erased()
    return Group(group.space, members)


def _is_word(kind: ir.Type) -> bool:
    return isinstance(kind, ir.F32Type) or (isinstance(kind, ir.IntegerType) and kind.width == 32)


def _takes_column(op: ir.Operation, kind: ir.RankedTensorType) -> bool:
    """Whether an operation takes all of a column."""
    if op.name != "tensor.extract_slice":
        return False
    offsets, sizes, steps = slice_of(op)
    result = ir.RankedTensorType(op.results[0].type)
    is_whole = list(sizes)[:-1] == list(kind.shape)[:-1] and result.rank == kind.rank
    return is_whole and not any(offsets[:-1]) and 0 <= offsets[-1] and sizes[-1] == 1 and set(steps) == {1}


def _taken(value: ir.Value, column: int, maker: ir.Operation) -> ir.Operation:
    """The reduction that takes a column, behind what makes the tile."""
    kind = ir.RankedTensorType(value.type)
    element, rank, columns = kind.element_type, kind.rank, kind.shape[-1]
    is_float = isinstance(element, ir.FloatType)
    with ir.InsertionPoint(_behind(maker)):
        line = ir.RankedTensorType.get([columns], ir.IntegerType.get_signless(1))
        numbers = [ir.IntegerAttr.get(line.element_type, place == column) for place in range(columns)]
        mask = arith.ConstantOp(line, ir.DenseElementsAttr.get(numbers, line)).result
        least = arith.constant(element, -math.inf if is_float else -(2**31))
        start = linalg.fill(least, outs=[tensor.empty(sizes_of(value, range(rank - 1)), element)])
        maps = [map_of(rank, range(rank)), map_of(rank, [rank - 1]), map_of(rank, range(rank - 1))]

        def largest(x: ir.Value, here: ir.Value, before: ir.Value) -> ir.Value:
            own = arith.select(here, x, least)
            return arith.maximumf(own, before) if is_float else arith.maxsi(own, before)

        return generic([value, mask], [start], maps, ["parallel"] * (rank - 1) + ["reduction"], largest)


def _behind(op: ir.Operation) -> ir.Operation:
    """The operation of a block behind one of them."""
    operations = operations_of(op.block)
    return operations[operations.index(op) + 1]
