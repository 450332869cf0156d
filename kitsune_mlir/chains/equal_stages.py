"""Runs of stages that are equal but for the tensors they name: one piece of code, a loop."""

from __future__ import annotations

from collections.abc import Iterator

from kitsune_mlir import rows
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.form import form_of
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import operations_of


def equal_runs(stages: list[kitsune.StageOp]) -> Iterator[list[kitsune.StageOp]]:
    """Runs of stages that are equal but for their residents, each fed by the one before it alone."""
    at = 0
    while at < len(stages):
        end = at + 1
        while end < len(stages) and _feeds_only(stages[end - 1], stages[end]) and _are_equal(stages[at], stages[end]):
            end += 1
        yield stages[at:end]
        at = end


def feeds_alike(first: kitsune.StageOp, second: kitsune.StageOp) -> bool:
    """Whether the first alone feeds the second, and both do the same to the sums of their products, up to residents."""
    return _feeds_only(first, second) and form_of(_behind_products(first)) == form_of(_behind_products(second))


def _behind_products(stage: kitsune.StageOp) -> list[ir.Operation]:
    """What a stage does but for its products and their operands."""
    ops = operations_of(stage.block)
    return [op for op in ops if op not in (*stage.gets, *stage.loads) and op.name != "linalg.matmul"]


def _are_equal(first: kitsune.StageOp, second: kitsune.StageOp) -> bool:
    """Whether both are links of a chain that compute the same, up to the tensors they name and the queues they use."""
    if not _is_link(first) or not _is_link(second):
        return False
    return form_of(first.block.operations) == form_of(second.block.operations)


def _is_link(stage: kitsune.StageOp) -> bool:
    """One tile in, one tile out, of the same type, on chip both."""
    if len(stage.gets) != 1 or len(stage.puts) != 1 or stage.loads or stage.stores:
        return False
    return stage.gets[0].results[0].type == stage.puts[0].operands[1].type


def _feeds_only(first: kitsune.StageOp, second: kitsune.StageOp) -> bool:
    if len(first.puts) != 1 or len(second.gets) != 1:
        return False
    queue = first.puts[0].operands[0]
    return queue == second.gets[0].operands[0] and len(rows.producer(queue).opview.consumers) == 1
