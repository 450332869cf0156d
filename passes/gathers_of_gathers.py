"""Rows gathered of what is elementwise of gathered rows: gathered once, by the numbers of both. For prepare-linalg.

    %a = gather of rows of %t by %n                         %k = gather of %n by %m
    %b = linalg.generic {...} ins(%a, %w) ...         =>    %a = gather of rows of %t by %k,  %v = gather of %w by %m
    %c = gather of rows of %b by %m                         %c = linalg.generic {...} ins(%a, %v) ...

Numbers of rows are small. So the rows of a mixture go from the blocks of one product to those of the next, and from
there to their tokens, without having been put in an order between that nobody reads. What something else reads is left
as it is, and so is a gather of many more rows than there are, which would compute each of them several times.

Columns of such rows are gathered by themselves, so that what computes on them gathers them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from kitsune_mlir import example_sizes, rows
from kitsune_mlir.codegen.pipeline.nests import is_elementwise
from kitsune_mlir.generics import constant_index, generic, map_of
from kitsune_mlir.mlir import arith, ir, tensor, walk
from kitsune_mlir.operations import element_type, slice_of
from kitsune_mlir.row_cloner import RowCloner

from .numbered_matrices import Taken, taken_by
from .reshapes import reshaped

_MOST_AGAIN = 1.5  # rows that are gathered, of each that there is
_MOVES = ("tensor.extract_slice", *rows.RESHAPES)


def gather_once(module: ir.Module) -> None:
    """Rewrites a module in place."""
    for op in walk(module, "linalg.generic"):
        taken = taken_by(op, dimensions=1)
        if taken is not None and (between := _between(op, taken)) is not None:
            with op.location, ir.InsertionPoint(op):
                op.results[0].replace_all_uses_with(_gathered(op, taken, between))
            op.erase()


@dataclass
class _Between:
    """What stands between two gathers, the first one included: operators in their order, and what they take that has
    one element for each row; beside each in how many dimensions the rows are."""

    ops: list[tuple[ir.Operation, int]] = field(default_factory=list)
    numbers: list[tuple[ir.Value, int]] = field(default_factory=list)
    reached: set[tuple[int, int]] = field(default_factory=set)

    def reach(self, value: ir.Value, p: int) -> bool:
        """Whether all that a tensor of rows is made of, row by row, is gathered or small."""
        op, sizes = rows.producer(value), rows.shape_of(value)
        if (hash(value), p) in self.reached:
            return True
        self.reached.add((hash(value), p))
        if prod(sizes[p:]) == 1:
            self.numbers.append((value, p))
            return rows.DYNAMIC not in sizes or p == 1
        if op is None or not (op.name in _MOVES or is_elementwise(op)):
            return False
        if isinstance(own := rows.operand_rows(op, p), str):
            return False
        for operand, dimensions in zip(op.operands, own):
            if dimensions is rows.RESIDENT or rows.init_of(operand).tensor is None:
                continue
            if not self.reach(operand, dimensions):
                return False
        self.ops.append((op, p))
        return True


def _between(gather: ir.Operation, taken: Taken) -> _Between | None:
    """What is between a gather and those whose rows it takes; None where it takes others."""
    found, table = _Between(), taken.table
    if len(rows.shape_of(table)) != 2 or not rows.is_tensor(table):
        return None
    count, given = prod(example_sizes.shape_of(taken.numbers)), example_sizes.shape_of(table)[0]
    if not found.reach(table, 1):
        return None
    computed = [op for op, _ in found.ops if op.name not in _MOVES and taken_by(op, dimensions=1) is None]
    if computed and count > _MOST_AGAIN * given:
        return None
    inside = {op for op, _ in found.ops}
    gathers = {op for op in inside if op.name == "linalg.generic" and rows.Structured(op).gathers()}
    users = {_standing_beside(use.owner.operation, gather) for op in inside - gathers for use in op.results[0].uses}
    return found if gathers and users <= inside | {gather} else None


def _standing_beside(op: ir.Operation, other: ir.Operation) -> ir.Operation:
    """The operation in the block of another one that it is, or stands in."""
    while op.block != other.block:
        op = op.parent.operation
    return op


def _gathered(gather: ir.Operation, taken: Taken, between: _Between) -> ir.Value:
    """What a gather gives, made of rows that are gathered once."""
    sizes = rows.shape_of(taken.numbers)
    numbers = reshaped(taken.numbers, [None if rows.DYNAMIC in sizes else prod(sizes)])
    (size,) = rows.shape_of(numbers)
    cloner = RowCloner(tensor.dim(numbers, constant_index(0)) if size == rows.DYNAMIC else size)
    for value, p in between.numbers:
        cloner[value] = _taken(value, p, numbers, taken.wrap, cloner.rows)
    for op, p in between.ops:
        cloner.clone(op, p)
        if op.name == "tensor.extract_slice":
            cloner[op.results[0]] = _columns_gathered(cloner[op.results[0]])
    shape = rows.known_sizes(gather.results[0])
    return reshaped(cloner[taken.table], shape)


def _taken(value: ir.Value, p: int, numbers: ir.Value, wrap: int | None, size: int | ir.Value) -> ir.Value:
    """The elements of a tensor of one for each row, whose rows are p dimensions, by the numbers of rows."""
    own = rows.shape_of(value)
    table = reshaped(value, [None if rows.DYNAMIC in own else prod(own)])
    kind = element_type(value)

    def element(number: ir.Value, _: ir.Value) -> ir.Value:
        if wrap is not None:
            zero, end = (arith.constant(number.type, n) for n in (0, wrap))
            below = arith.cmpi(arith.CmpIPredicate.slt, number, zero)
            number = arith.select(below, arith.addi(number, end), number)
        return tensor.extract(table, [arith.index_cast(ir.IndexType.get(), number)])

    made = generic([numbers], [tensor.empty([size], kind)], [map_of(1, [0])] * 2, ["parallel"], element)
    return reshaped(made.results[0], [None if isinstance(size, ir.Value) else size, *own[p:]])


def _columns_gathered(columns: ir.Value) -> ir.Value:
    """Columns of gathered rows, gathered by themselves; the tensor as it is where it is none of these."""
    cut = columns.owner.operation
    gather, shape = rows.producer(cut.operands[0]), rows.shape_of(columns)
    taken = taken_by(gather, dimensions=1)
    if gather is None or taken is None or not ir.RankedTensorType(taken.table.type).has_static_shape:
        return columns
    kind, (offsets, sizes, strides) = ir.RankedTensorType(taken.table.type), slice_of(cut)
    parts = [0, offsets[1]], [kind.shape[0], sizes[1]], [1, strides[1]]
    type_ = ir.RankedTensorType.get(parts[1], kind.element_type)
    table = tensor.ExtractSliceOp(type_, taken.table, [], [], [], *parts).result
    count = tensor.dim(taken.numbers, constant_index(0)) if rows.DYNAMIC in shape else shape[0]
    start = tensor.empty([count, sizes[1]], kind.element_type)
    made = gather.clone(ir.InsertionPoint.current)
    made.operands[len(made.operands) - 1] = start
    made.results[0].set_type(columns.type)
    (extract,) = walk(made, "tensor.extract")
    extract.operands[0] = table
    return made.results[0]
