"""Gathers of a designed pipeline in front of it: what its stages would have threads gather into shared memory becomes a
tensor that they load.

    "kitsune.stage"() ({                                      %whole = linalg.generic {gather} ins(%order) ...
      %n = "kitsune.load"(%order) : tensor<?xi32>             "kitsune.stage"() ({
      %e = linalg.generic {gather} ins(%n) ...           =>     %e = "kitsune.load"(%whole) : tensor<?x512xbf16>
"""

from __future__ import annotations

from collections.abc import Iterator

from kitsune_mlir import rows
from kitsune_mlir.chains.gathers import Gather, gather_of
from kitsune_mlir.chains.operands import is_gathered, is_in_stage
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.mlir import ir
from kitsune_mlir.row_cloner import RowCloner

from .inline_pipeline import all_rows


def gathered(pipeline: kitsune.PipelineOp) -> list[ir.Operation]:
    """The gathers of a pipeline whose rows would come into shared memory."""
    return [gather.op for gather in _gathers(pipeline) if is_gathered(gather.op.results[0])]


def gather_before(pipeline: kitsune.PipelineOp) -> list[ir.Value]:
    """Takes these gathers out of a pipeline, and others of the same rows; the tensors that they make."""
    found: dict[tuple[int, ...], ir.Value] = {}
    for op in gathered(pipeline):
        key = _rows_of(gather_of(op))
        if key not in found:
            with op.location, ir.InsertionPoint(pipeline):
                found[key] = _whole(op.results[0], RowCloner(all_rows(pipeline)))
    for gather in list(_gathers(pipeline)):
        if (whole := found.get(_rows_of(gather))) is not None:
            value = gather.op.results[0]
            with gather.op.location, ir.InsertionPoint(gather.op):
                value.replace_all_uses_with(kitsune.LoadOp(whole, value.type).results[0])
            gather.op.erase()
    return list(found.values())


def _gathers(pipeline: kitsune.PipelineOp) -> Iterator[Gather]:
    ops = [op.operation for stage in pipeline.stages for op in stage.block.operations]
    return (gather for op in ops if (gather := gather_of(op)) is not None and gather.may_stream)


def _rows_of(gather: Gather) -> tuple[int, ...]:
    """What is equal for gathers of the same rows of one table: numbers that are loaded as they are."""
    inputs = [gather.op.operands[number] for number in gather.inputs]
    loads = [rows.producer(value) for value in inputs]
    if gather.computed or any(op is None or op.name != kitsune.LoadOp.OPERATION_NAME for op in loads):
        return (hash(gather.op.results[0]),)
    return (hash(gather.table), *(hash(op.operands[0]) for op in loads))


def _whole(value: ir.Value, cloner: RowCloner) -> ir.Value:
    """What a stage computes of what it loads, of all rows."""
    op = rows.producer(value)
    if is_in_stage(value) and op.name == kitsune.LoadOp.OPERATION_NAME:
        cloner[value] = op.operands[0]
    elif is_in_stage(value):
        for operand in op.operands:
            if rows.is_tensor(operand) and rows.init_of(operand).tensor is not None:
                _whole(operand, cloner)
        cloner.clone(op, 1)
    return cloner[value]
