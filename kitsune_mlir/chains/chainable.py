"""Which stages warpgroups chain; the reasons of those that they do not."""

from __future__ import annotations

from math import prod

from kitsune_mlir import rows
from kitsune_mlir.codegen.pipeline.loops import combiner_of
from kitsune_mlir.codegen.pipeline.memory import element_of, shape_of
from kitsune_mlir.codegen.pipeline.nests import is_reduction
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import ir

from .operands import is_multiplied


def check_stage(stage: kitsune.StageOp) -> None:
    """Raises UnsupportedError for a stage that warpgroups do not chain."""
    if stage.reduces or stage.accumulates:
        raise UnsupportedError("sums over the rows are not chained")
    for op in stage.block.operations:
        op = op.operation
        if is_reduction(op):
            row_combiner(rows.Structured(op))
        if op.name != "linalg.matmul":
            continue
        a, b, total = (element_of(value) for value in (*op.operands[:2], op.results[0]))
        if a != b or not is_multiplied(a) or not is_multiplied(total):
            raise UnsupportedError(f"products of {a} with {b} into {total} are not chained by warpgroups")
        if op.operands[1] not in stage.residents:
            raise UnsupportedError("a product with a weight that the stage computes is not chained by warpgroups")
        if "d2" not in str(list(rows.Structured(op).maps[1].results)[1]):
            raise UnsupportedError("a product with a weight of (inputs, outputs) is not chained by warpgroups")


def row_combiner(s: rows.Structured) -> ir.Operation:
    """What joins the terms of a reduction inside rows. Raises UnsupportedError for what warpgroups do not reduce."""
    combiner = combiner_of(s)
    if combiner is None or prod(shape_of(s.op.results[0])[1:]) != 1 or s.inputs < 1:
        raise UnsupportedError("a reduction inside rows that is not to one number is not chained by warpgroups")
    return combiner
