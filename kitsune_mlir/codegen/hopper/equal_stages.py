"""Runs of stages that are equal but for the tensors they name: one piece of code, a loop."""

from __future__ import annotations

from collections.abc import Iterator

from kitsune_mlir import rows
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.form import Form, form_of


def equal_runs(stages: list[kitsune.StageOp]) -> Iterator[list[kitsune.StageOp]]:
    """Runs of stages that are equal but for their residents, each fed by the one before it alone."""
    at = 0
    while at < len(stages):
        end, key = at + 1, _body(stages[at])
        while end < len(stages) and _feeds_only(stages[end - 1], stages[end]) and _body(stages[end]) == key:
            end += 1
        run = stages[at:end]
        yield run if _is_link(run[0]) else run[:1]
        at += len(run) if _is_link(run[0]) else 1


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


def _body(stage: kitsune.StageOp) -> Form:
    """What the stage computes, up to which tensors it names and which queues it uses."""
    return form_of(stage.block.operations)
