"""The operands of small products whose rows a warp loads by itself (dots.py): rows that are in memory, and rows of
tables by number, one part behind the other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kitsune_mlir import rows
from kitsune_mlir.generics import constant_index, empty_generic
from kitsune_mlir.mlir import attr_int, ir, tensor
from kitsune_mlir.operations import element_type, end_of, is_generic, operations_of
from kitsune_mlir.row_numbers import row_number

from .dots_body import behind, clone
from .kernel_build import read_box


@dataclass(frozen=True)
class Given:
    """Rows of an operand that are in memory: b x rows x k, or b x (rows k) of two dimensions."""

    value: ir.Value
    rows: int

    def tile(self, at: ir.Value, k: int) -> ir.Value:
        """The rows of number `at` of the batch, as a tile in registers."""
        kind = ir.RankedTensorType(self.value.type)
        zero = constant_index(0)
        if kind.rank == 3:
            return read_box(self.value, [at, zero, zero], [self.rows, k], [1, 2])
        parts = [read_box(self.value, [at, constant_index(row * k)], [1, k], [0, 1]) for row in range(self.rows)]
        return parts[0] if len(parts) == 1 else behind(parts)


@dataclass(frozen=True)
class Gathered:
    """Rows of a table by number: what a linalg.generic takes out of it. The numbers are a column of `index`, from
    `column` on, or `index` itself where that has one dimension."""

    op: ir.Operation
    index: ir.Value
    column: int
    rows: int

    def tile(self, at: ir.Value, k: int) -> ir.Value:
        """What Given.tile gives, of rows that are taken by number."""
        kind = ir.RankedTensorType(self.index.type)
        offsets = [at] if kind.rank == 1 else [at, constant_index(self.column)]
        numbers = read_box(self.index, offsets, [self.rows], [kind.rank - 1])
        element = element_type(self.op.results[0])
        last = ir.RankedTensorType(self.op.results[0].type).rank - 1
        by_row, whole = ir.AffineMap.get(2, 0, [ir.AffineDimExpr.get(0)]), ir.AffineMap.get_identity(2)
        start = tensor.empty([self.rows, k], element)
        made = empty_generic([numbers], [start], [by_row, whole], ["parallel"] * 2)
        clone(self.op, made, [0], lambda dim: 1 if dim == last else 0)
        return made.results[0]


Part = Given | Gathered


def parts_of(value: ir.Value, k: int, readers: set[ir.Operation]) -> list[Part]:
    """The rows of an operand, b x rows x k or b x (rows k), part by part. `readers` are all that use it, if it is to be
    in no memory."""
    kind, op = ir.RankedTensorType(value.type), rows.producer(value)
    own = op is not None and all(use.owner.operation in readers for use in value.uses)
    if own:
        if op.name == "tensor.concat" and attr_int(op, "dim") == 1 and _in_rows(op.operands, k):
            return [part for operand in op.operands for part in parts_of(operand, k, {op})]
        if op.name in rows.RESHAPES and _keeps_rows(op, k):
            return parts_of(op.operands[0], k, {op})
        if (gathered := _gathered(op, k)) is not None:
            return [gathered]
    return [Given(value, kind.shape[1] if kind.rank == 3 else kind.shape[1] // k)]


def _in_rows(values: Iterable[ir.Value], k: int) -> bool:
    """Whether each of these has whole rows of k elements."""
    kinds = [ir.RankedTensorType(value.type) for value in values]
    return all(not kind.is_dynamic_dim(1) and kind.shape[-1] % k == 0 for kind in kinds)


def _keeps_rows(op: ir.Operation, k: int) -> bool:
    """Whether a reshape has the same rows of k elements for each of the batch."""
    kinds = [ir.RankedTensorType(value.type) for value in (op.operands[0], op.results[0])]
    ranks = all(kind.rank == 3 and kind.shape[-1] == k or kind.rank == 2 for kind in kinds)
    first, second = (kind.is_dynamic_dim(0) or kind.shape[0] for kind in kinds)
    return ranks and first == second and _in_rows(op.operands[:1], k)


def _gathered(op: ir.Operation, k: int) -> Gathered | None:
    """What a linalg.generic takes out of a table of so many columns, row by row; None for another."""
    if not is_generic(op):
        return None
    s = rows.Structured(op)
    rank, tables = len(s.iterators), s.tables()
    if s.inputs != 1 or "reduction" in s.iterators or len(tables) != 1 or not rows.is_tensor(op.operands[0]):
        return None
    table = ir.RankedTensorType(tables[0].type)
    if rank not in (2, 3) or table.rank != 2 or not table.has_static_shape or table.shape[1] != k or not table.shape[0]:
        return None
    if s.maps[1] != ir.AffineMap.get_identity(rank) or list(list(s.body.arguments)[1].uses):
        return None
    outer = [ir.AffineDimExpr.get(d) for d in range(rank - 1)]
    (extract,) = operations_of(s.body, "tensor.extract")
    _, number, column = extract.operands
    last = rows.producer(column)
    if s.maps[0] != ir.AffineMap.get(rank, 0, outer) or last is None or last.name != "linalg.index":
        return None
    taken = row_number(number)
    if attr_int(last, "dim") != rank - 1 or taken.source != list(s.body.arguments)[0]:
        return None
    if taken.size not in (None, table.shape[0]):
        return None
    if end_of(s.body).operands[0] != extract.results[0]:
        return None
    index, column = _column_of(op.operands[0])
    count = 1 if rank == 2 else ir.RankedTensorType(op.results[0].type).shape[1]
    if count < 0 or not isinstance(element_type(index), ir.IntegerType):
        return None
    return Gathered(op, index, column, count)


def _column_of(value: ir.Value) -> tuple[ir.Value, int]:
    """The tensor of two dimensions whose column `value` is, and the column's number; itself where it is none."""
    collapse = rows.producer(value)
    slice_ = rows.producer(collapse.operands[0]) if collapse is not None and collapse.name in rows.RESHAPES else None
    if ir.RankedTensorType(value.type).rank != 1 or slice_ is None or slice_.name != "tensor.extract_slice":
        return value, 0
    base, part = ir.RankedTensorType(slice_.operands[0].type), ir.RankedTensorType(slice_.results[0].type)
    offsets, strides = (list(ir.DenseI64ArrayAttr(slice_.attributes[f"static_{x}"])) for x in ("offsets", "strides"))
    whole = base.is_dynamic_dim(0) if part.is_dynamic_dim(0) else base.shape[0] == part.shape[0]
    if base.rank != 2 or part.rank != 2 or part.shape[1] != 1 or not whole or offsets[0] or strides != [1, 1]:
        return value, 0
    if not 0 <= offsets[1] < base.shape[1]:
        return value, 0
    return slice_.operands[0], offsets[1]
