"""Scatters of elements that are scatters of whole rows: what torch-mlir makes of a number expanded over a row.

    %r = linalg.generic {(i, j) -> (i), (i, j) -> (i, j)} ins(%rows) ...     // a row's number for each of its elements
    %n:3 = linalg.generic {...} outs(...) {                                  // row, column, value, one by one
      %e = linalg.index 0
      %j = arith.remsi %e, %c8
      %i = arith.remsi (arith.divsi %e, %c8), %count
      linalg.yield (tensor.extract %r[%i, %j]), (arith.index_cast %j), (tensor.extract %x[%i, %j]) }
    %at = tensor.insert_slice %n#1 into (tensor.insert_slice %n#0 into ...)      // the first two side by side
    %y = tm_tensor.scatter {dimension_map = [0, 1]} ins(%n#2, %at) outs(%table)
  =>
    %y = tm_tensor.scatter {dimension_map = [0]} ins(%x as n x 1 x 8, %rows as n x 1) outs(%table)

The body, a sum, a maximum or anything else, is that of one element in either. Updates that are one number throughout
become rows of it; where they overwrite, as where rows of the table must not be counted among those that are compared,
the rows that are overwritten are marked, one number each, and the table is read with them in mind:

    %m = tm_tensor.scatter {dimension_map = [0]} ins(%ones as n x 1, %rows as n x 1) outs(%zeros)
    %y = linalg.generic {(i, j) -> (i), (i, j) -> (i, j), (i, j) -> (i, j)} ins(%m, %table) ...    // the number, or
                                                                                                   // what was there
"""

from __future__ import annotations

from dataclasses import dataclass

from kitsune_mlir import rows
from kitsune_mlir.generics import generic, map_of, sizes_of
from kitsune_mlir.mlir import arith, attr_int, ir, linalg, replace_op, tensor
from kitsune_mlir.operations import element_type, end_of, made_by, operations_of, slice_of

SCATTER = "tm_tensor.scatter"


@dataclass(frozen=True)
class _Spread:
    """What numbers the elements of rows: the linalg.generic, and each row's number (n)."""

    op: ir.Operation
    numbers: ir.Value


def scatter_rows(scatter: ir.Operation) -> None:
    """Puts a scatter of rows in the place of one of their elements, if it is one."""
    updates, at, table = scatter.operands
    kind = ir.RankedTensorType(table.type)
    mapped = list(ir.DenseI64ArrayAttr(scatter.attributes["dimension_map"]))
    if mapped != [0, 1] or kind.rank != 2 or kind.is_dynamic_dim(1) or ir.RankedTensorType(updates.type).rank != 1:
        return
    columns = kind.shape[1]
    spread = _spread(at, columns)
    if spread is None:
        return
    with scatter.location, ir.InsertionPoint(scatter):
        added = _rows_of(updates, spread, columns)
        if added is None:
            return
        i64 = element_type(spread.numbers)
        (count,) = sizes_of(spread.numbers)
        to = _expanded(spread.numbers, [[0, 1]], [count, 1], i64)
        filled = rows.producer(updates)
        if (
            filled is not None
            and filled.name == "linalg.fill"
            and not list(scatter.regions[0].blocks[0].arguments[1].uses)
        ):
            replace_op(scatter, _overwritten(table, _marks(table, to, count), filled.operands[0]))
            return
        added = _expanded(added, [[0], [1, 2]], [count, 1, columns], kind.element_type)
        made = _scatter(added, to, table, scatter.attributes["unique_indices"])
        scatter.regions[0].blocks[0].append_to(made.regions[0])
    replace_op(scatter, made.results[0])


def _scatter(updates: ir.Value, to: ir.Value, table: ir.Value, unique: ir.Attribute) -> ir.Operation:
    """A scatter of rows, without a body."""
    attributes = {
        "dimension_map": ir.DenseI64ArrayAttr.get([0]),
        "unique_indices": unique,
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([2, 1]),
    }
    return ir.Operation.create(SCATTER, [table.type], [updates, to, table], attributes, regions=1)


def _marks(table: ir.Value, to: ir.Value, count: int | ir.Value) -> ir.Value:
    """A number for each row of a table: 1 where it is one of `count` rows, else 0."""
    i8 = ir.IntegerType.get_signless(8)
    zero, one = (arith.constant(i8, number) for number in (0, 1))
    ones = linalg.fill(one, outs=[tensor.empty([count, 1], i8)])
    none = linalg.fill(zero, outs=[tensor.empty(sizes_of(table)[:1], i8)])
    made = _scatter(ones, to, none, ir.BoolAttr.get(False))
    block = made.regions[0].blocks.append(i8, i8)
    with ir.InsertionPoint(block):
        ir.Operation.create("tm_tensor.yield", [], [block.arguments[0]])
    return made.results[0]


def _overwritten(table: ir.Value, marks: ir.Value, number: ir.Value) -> ir.Value:
    """A table with one number throughout the rows that have a mark."""
    start = tensor.empty(sizes_of(table), element_type(table))

    def chosen(mark: ir.Value, before: ir.Value, _: ir.Value) -> ir.Value:
        none = arith.constant(mark.type, 0)
        return arith.select(arith.cmpi(arith.CmpIPredicate.ne, mark, none), number, before)

    maps = [map_of(2, [0]), map_of(2, [0, 1]), map_of(2, [0, 1])]
    return generic([marks, table], [start], maps, ["parallel"] * 2, chosen).results[0]


def _spread(at: ir.Value, columns: int) -> _Spread | None:
    """Where the numbers of elements are a row's number, the same in all of it, and those of its columns."""
    outer = rows.producer(at)
    inner = rows.producer(outer.operands[1]) if outer is not None and outer.name == "tensor.insert_slice" else None
    if outer is None or inner is None or inner.name != "tensor.insert_slice":
        return None
    if [slice_of(op).offsets for op in (inner, outer)] != [[0, 0], [0, 1]]:
        return None
    first, second = inner.operands[0], outer.operands[0]
    op = rows.producer(first)
    if op is None or op != rows.producer(second) or op.name != "linalg.generic":
        return None
    s = rows.Structured(op)
    if s.inputs or s.iterators != ["parallel"]:
        return None
    yielded = list(end_of(s.body).operands)
    number, column = (yielded[ir.OpResult(value).result_number] for value in (first, second))
    taken = rows.producer(number)
    cast = rows.producer(column)
    if cast is not None and cast.name == "arith.trunci":  # to numbers of 32 bits
        cast = rows.producer(cast.operands[0])
    if taken is None or taken.name != "tensor.extract" or cast is None or cast.name != "arith.index_cast":
        return None
    numbers = _constant_along_rows(taken.operands[0])
    if numbers is None or not _is_place(list(taken.operands)[1:], columns) or not _is_column(cast.operands[0], columns):
        return None
    return _Spread(op, numbers)


def _constant_along_rows(value: ir.Value) -> ir.Value | None:
    """What a tensor of two dimensions repeats along the second, before a conversion of its numbers to longer ones."""
    op = made_by(value, "linalg.generic")
    if op is None or len(op.operands) != 2 or ir.RankedTensorType(value.type).rank != 2:
        return None
    s = rows.Structured(op)
    source = op.operands[0]
    by_row = ir.AffineMap.get(2, 0, [ir.AffineDimExpr.get(0)])
    first, *rest = operations_of(s.body)
    moves = not rest or (first.name == "arith.extsi" and len(rest) == 1)
    plain = moves and first.operands[0] == list(s.body.arguments)[0]
    if not plain or s.inputs != 1 or s.maps != [by_row, ir.AffineMap.get_identity(2)]:
        return None
    return source if rows.is_tensor(source) and source.type.rank == 1 else None


def _is_place(index: list[ir.Value], columns: int) -> bool:
    """Whether an index is that of the row and the column of element number linalg.index."""
    if len(index) != 2 or not _is_column(index[1], columns):
        return False
    op = rows.producer(index[0])
    if op is not None and op.name in ("arith.remsi", "arith.remui"):  # of fewer than there are
        op = rows.producer(op.operands[0])
    return op is not None and op.name in ("arith.divsi", "arith.divui") and _is_of_element(op, columns)


def _is_column(value: ir.Value, columns: int) -> bool:
    op = made_by(value, "arith.remsi", "arith.remui")
    return op is not None and _is_of_element(op, columns)


def _is_of_element(op: ir.Operation, columns: int) -> bool:
    """Whether an operation's operands are the element's number and so many columns."""
    number, count = (rows.producer(operand) for operand in op.operands)
    if number is None or number.name != "linalg.index" or count is None or count.name != "arith.constant":
        return False
    return attr_int(count, "value") == columns


def _rows_of(updates: ir.Value, spread: _Spread, columns: int) -> ir.Value | None:
    """Updates of all elements as rows, n x columns, at the insertion point; None where they are something else."""
    op = rows.producer(updates)
    if op is None:
        return None
    if op == spread.op:
        result = ir.OpResult(updates).result_number
        taken = made_by(list(end_of(rows.Structured(op).body).operands)[result], "tensor.extract")
        if taken is None or not _is_place(list(taken.operands)[1:], columns):
            return None
        source = ir.RankedTensorType(taken.operands[0].type)
        return taken.operands[0] if source.rank == 2 and source.shape[1] == columns else None
    if op.name != "linalg.fill":
        return None
    element = element_type(updates)
    return linalg.fill(op.operands[0], outs=[tensor.empty([*sizes_of(spread.numbers), columns], element)])


def _expanded(value: ir.Value, groups: list[list[int]], sizes: list[int | ir.Value], element: ir.Type) -> ir.Value:
    """A tensor with these sizes, dimensions of one element more than it has."""
    dynamic = [size for size in sizes if not isinstance(size, int)]
    static = [size if isinstance(size, int) else ir.ShapedType.get_dynamic_size() for size in sizes]
    kind = ir.RankedTensorType.get(static, element)
    i64 = ir.IntegerType.get_signless(64)
    named = ir.ArrayAttr.get([ir.ArrayAttr.get([ir.IntegerAttr.get(i64, d) for d in group]) for group in groups])
    return tensor.ExpandShapeOp(kind, value, named, dynamic, static).result
