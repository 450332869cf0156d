"""Clones the body of a stage onto tiles of a given number of rows."""

from __future__ import annotations

from kitsune_mlir import rows
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.mlir import ir
from kitsune_mlir.row_cloner import RowCloner


def clone_body(stage: kitsune.StageOp, tile_rows: int, values: dict[int, ir.Value]) -> None:
    """Clones the body at the insertion point. `values` maps the queues to their clones."""
    cloner = RowCloner(tile_rows, dict(values))
    for op in stage.block.operations:
        clone_operation(op.operation, cloner)


def clone_operation(op: ir.Operation, cloner: RowCloner) -> None:
    """Clones one operation of a stage body in row form; what only sizes tiles is left out."""
    view = op.opview
    with op.location:
        if isinstance(view, kitsune.LoadOp):
            cloner[op.results[0]] = kitsune.LoadOp(op.operands[0], cloner.type_of(op.results[0].type)).results[0]
        elif isinstance(view, kitsune.GetOp):
            queue = cloner[op.operands[0]]
            cloner[op.results[0]] = kitsune.GetOp(queue, cloner.type_of(op.results[0].type)).results[0]
        elif isinstance(view, kitsune.ReduceOp):
            cloner[op.results[0]] = kitsune.ReduceOp(cloner[op.operands[0]], op.results[0].type).results[0]
        elif isinstance(view, kitsune.PutOp):
            kitsune.PutOp(cloner[op.operands[0]], cloner[op.operands[1]])
        elif isinstance(view, kitsune.AccumulateOp):
            kitsune.AccumulateOp(cloner[op.operands[0]], cloner[op.operands[1]])
        elif isinstance(view, kitsune.StoreOp):
            kitsune.StoreOp(cloner[op.operands[0]], op.attributes["index"])
        elif op.name not in rows.SUPPORT:
            cloner.clone(op, row_dimensions(op))
        elif op.name == "arith.constant":
            cloner[op.results[0]] = op.clone(ir.InsertionPoint.current).results[0]


def row_dimensions(op: ir.Operation) -> int:
    """1 for an operation that maps row tiles to row tiles, 0 for one that sums over the rows."""
    return 0 if rows.operand_rows(op, 1).__class__ is str and rows.reduces_rows(op) is not None else 1
