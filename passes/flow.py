"""Reads a placed pipeline into the plain flow that the proof works on, and the target that it was placed for."""

from __future__ import annotations

from kitsune_mlir import mlir
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.errors import UserError
from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.flow import Flow, Queue, Stage
from kitsune_mlir.planning.target import Target

from .stage_cost import row_bytes


def flow_of(pipeline: kitsune.PipelineOp) -> Flow:
    """Stages, queues and sizes of a placed pipeline."""
    on_every_tile = {stage.role for stage in pipeline.stages if not stage.fires_once}
    stages = tuple(
        Stage(
            stage.label,
            stage.unit,
            stage.role,
            stage.replicas,
            stage.fires_once,
            stage.fires_once and pipeline.shape in ("chained", "spatial") and stage.role in on_every_tile,
            mlir.location(stage.location),
        )
        for stage in pipeline.stages
    )
    queues = tuple(_queue(queue) for queue in pipeline.queues)
    return Flow(pipeline.label, stages, queues, pipeline.cluster)


def target_of(pipeline: kitsune.PipelineOp, asked: str, name: str) -> Target:
    """The target `asked` for, a name or a file, or else the one that a placed pipeline names. `name` is the pass that
    wants to know. Raises UserError when there is none."""
    if not asked and not pipeline.target:
        raise UserError(f"pipeline '{pipeline.label}' names no target; give {name} one: --{name}=target=NAME")
    return targets.load(asked or pipeline.target)


def _queue(queue: kitsune.QueueOp) -> Queue:
    producer = queue.producers[0]
    return Queue(
        name=queue.label,
        producer=producer.label,
        consumers=tuple(stage.label for stage in queue.consumers),
        depth=queue.ring.slots,
        tile_bytes=row_bytes(queue.ring.tile),
        transport=queue.transport,
        accumulates=any(op.operands[0] == queue.results[0] for op in producer.accumulates),
    )
