"""project-gathers: rows that are gathered to be multiplied are multiplied before, once each.

    %s = gather %x[%from]                  // 1,310,720 x 128 of 218,453 x 128
    %c = tensor.concat dim(1) %e, %s
    %y = linalg.matmul ins(%c, %w)         // w: 128 x 256
  =>
    %p = linalg.matmul ins(%x, %w[128:])   // 218,453 x 128, rounded to the elements of x
    %g = gather %p[%from]                  // as f32
    %y = linalg.matmul ins(%e, %w[:128]) outs(%g)

A product of a concatenation is the sum of its parts' products, and a row's product is the same wherever it is gathered.
Done where a table's rows are gathered at least LEAST_TIMES each, and where they are more than a warpgroup keeps in
registers as a product's operand, or all of one. The projections are rounded once more than the whole
product would be; with `exact` nothing is changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from typing import ClassVar

from kitsune_mlir import rows
from kitsune_mlir.chains.gathers import MOST_GATHERED, row_bytes
from kitsune_mlir.contraction import is_zero_filled
from kitsune_mlir.generics import elementwise, extended, zero_tensor
from kitsune_mlir.mlir import arith, attr_int, ir, linalg, replace_op, tensor, walk
from kitsune_mlir.operations import element_type, is_generic, operations_of

from .base import ModulePass

LEAST_TIMES = 2  # a table's rows are gathered, for their products to be made before
_ROWS_BY_WEIGHT = [[0, 2], [1, 2], [0, 1]]  # dimensions of left, right and result: a weight is (outputs, inputs)


@dataclass(frozen=True)
class ProjectGathers(ModulePass):
    """exact: leaves products as they are."""

    name: ClassVar[str] = "project-gathers"
    exact: bool = False

    def run(self, module: ir.Module) -> None:
        if self.exact:
            return
        for op in walk(module, "linalg.matmul"):
            of_f32 = isinstance(op.results[0].type.element_type, ir.F32Type)
            if of_f32 and op.parent.name == "func.func" and _dims(op) == _ROWS_BY_WEIGHT:
                with op.location, ir.InsertionPoint(op):
                    _project(op)


def _dims(op: ir.Operation) -> list[list[int | None]]:
    return [[rows.dim_of(expr) for expr in map_.results] for map_ in rows.Structured(op).maps]


def _project(op: ir.Operation) -> None:
    """Takes the gathered parts of a product's left operand out of it, where that is worth while."""
    whole, weight, init = op.operands
    concat = rows.producer(whole)
    if not is_zero_filled(init):
        return
    joined = concat is not None and concat.name == "tensor.concat" and _dim_of(concat) == 1
    parts = list(concat.operands) if joined else [whole]
    widths = [rows.shape_of(part)[1] for part in parts]
    starts = list(accumulate(widths, initial=0))
    projected = [number for number, part in enumerate(parts) if _is_projected(part)]
    if sum(row_bytes(parts[number]) for number in projected) <= MOST_GATHERED and len(projected) < len(parts):
        return  # as an operand in registers they cost less than their projections
    if not projected:
        return
    kept = [number for number in range(len(parts)) if number not in projected]
    gathered = []
    for number in projected:
        gather = rows.producer(parts[number])
        (table,) = rows.Structured(gather).tables()
        piece = _columns(weight, [(starts[number], widths[number])])
        gathered.append(_gathered(gather, _rounded(_product(table, piece, None), table)))
    total = _summed(gathered)
    if kept:
        left = parts[kept[0]] if len(kept) == 1 else _joined([parts[number] for number in kept])
        total = _product(left, _columns(weight, [(starts[n], widths[n]) for n in kept]), total)
    replace_op(op, total)


def _dim_of(concat: ir.Operation) -> int:
    return attr_int(concat, "dim")


def _is_projected(part: ir.Value) -> bool:
    """Whether a part is gathered from a table with so few rows that their products are better made before."""
    gather = rows.producer(part)
    if gather is None or not _takes_rows(gather):
        return False
    (table,) = rows.Structured(gather).tables()
    count, known = rows.shape_of(part)[0], rows.shape_of(table)[0]
    return rows.DYNAMIC not in (count, known) and count >= LEAST_TIMES * known


def _takes_rows(op: ir.Operation) -> bool:
    """Whether a linalg.generic gives, for each row, all of a row of a table of two dimensions."""
    if not is_generic(op):
        return False
    s = rows.Structured(op)
    body = operations_of(s.body)
    extracts = [inner for inner in body if inner.name == "tensor.extract"]
    if len(extracts) != 1 or s.iterators != ["parallel"] * 2 or body[-1].operands[0] != extracts[0].results[0]:
        return False
    table, *index = extracts[0].operands
    places = {inner: attr_int(inner, "dim") for inner in s.index_ops()}
    if len(index) != 2 or table.type.element_type != op.results[0].type.element_type:
        return False
    column = rows.producer(index[1])
    inputs = [_loops(s, i) for i in range(s.inputs)]
    return (
        s.maps[-1] == ir.AffineMap.get_identity(2)
        and places == {column: 1}
        and len(list(column.results[0].uses)) == 1
        and all(loops == [0] for loops in inputs)
        and rows.shape_of(table)[1] == rows.shape_of(op.results[0])[1]
    )


def _loops(s: rows.Structured, operand: int) -> list[int | None]:
    return [rows.dim_of(expr) for expr in s.maps[operand].results]


def _product(left: ir.Value, weight: ir.Value, init: ir.Value | None) -> ir.Value:
    """left times weight (n x k) transposed, in f32."""
    f32, count, columns = ir.F32Type.get(), rows.shape_of(left)[0], rows.shape_of(weight)[0]
    if init is None:
        init = zero_tensor([count, columns], f32)
    dims = [ir.AffineDimExpr.get(d) for d in range(3)]
    maps = [ir.AffineMap.get(3, 0, [dims[d] for d in found]) for found in _ROWS_BY_WEIGHT]
    made = linalg.MatmulOp(
        result_tensors=[init.type],
        inputs=[left, weight],
        outputs=[init],
        indexing_maps=ir.ArrayAttr.get([ir.AffineMapAttr.get(map_) for map_ in maps]),
    )
    linalg.fill_builtin_region(made.operation)
    return made.results[0]


def _columns(weight: ir.Value, pieces: list[tuple[int, int]]) -> ir.Value:
    """Columns of a weight, pieces (first, how many) side by side."""
    count, element = rows.shape_of(weight)[0], element_type(weight)
    found = []
    for start, width in pieces:
        kind = ir.RankedTensorType.get([count, width], element)
        found.append(
            tensor.ExtractSliceOp(
                kind, weight, [], [], [], static_offsets=[0, start], static_sizes=[count, width], static_strides=[1, 1]
            ).result
        )
    return found[0] if len(found) == 1 else _joined(found)


def _joined(parts: list[ir.Value]) -> ir.Value:
    """Matrices side by side."""
    kind, columns = ir.RankedTensorType(parts[0].type), sum(rows.shape_of(part)[1] for part in parts)
    return tensor.ConcatOp(ir.RankedTensorType.get([kind.shape[0], columns], kind.element_type), 1, parts).result


def _rounded(value: ir.Value, table: ir.Value) -> ir.Value:
    """f32 as the elements of a table."""
    element, kind = element_type(table), ir.RankedTensorType(value.type)
    if element == kind.element_type:
        return value
    return elementwise([value], element, lambda x: arith.truncf(element, x))


def _gathered(gather: ir.Operation, table: ir.Value) -> ir.Value:
    """The same rows of another table."""
    kind = ir.RankedTensorType(table.type)
    count = rows.shape_of(gather.results[0])[0]
    start = tensor.EmptyOp([count, kind.shape[1]], kind.element_type).result
    found = gather.clone(ir.InsertionPoint.current)
    found.operands[len(found.operands) - 1] = start
    found.results[0].set_type(start.type)
    body = operations_of(found.regions[0].blocks[0])
    next(op for op in body if op.name == "tensor.extract").operands[0] = table
    return found.results[0]


def _summed(parts: list[ir.Value]) -> ir.Value:
    """The sum of several tensors, in f32."""
    f32 = ir.F32Type.get()
    return elementwise(parts, f32, lambda *terms: reduce(arith.addf, [extended(x, f32) for x in terms]))
