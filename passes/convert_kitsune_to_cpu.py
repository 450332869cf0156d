"""convert-kitsune-to-cpu: placed pipelines become calls, their stages functions on row tiles.

    %p = "kitsune.pipeline"() ({ ... stages and queues ... }) {sym_name = "mlp", tile_rows = 64}
    %out = "kitsune.result"(%p) {index = 0}
        =>
    %w = call @pack_0(%w0) : (tensor<256x64xf32>) -> tensor<8x64x32xf32>
    %out = call @mlp.run(%x, %w) : (tensor<1000x64xf32>, ...) -> tensor<1000x8xf32>

    func.func private @mlp.run(...) -> ... attributes {kitsune.plan = "{...}"}   what the C++ runtime runs
    func.func private @mlp.up(%tile: tensor<64x64xf32>, %w: ...) -> tensor<64x256xf32> attributes {kitsune.stage}

A stage function takes its tiles and residents and returns what it puts, stores and accumulates. The
weights of its products are packed once a call. The plan names the operands of every stage function.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

from kitsune_mlir import rows
from kitsune_mlir.codegen import cpu_bounds
from kitsune_mlir.cpu_symbols import PLAN, tensor_bytes
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.errors import UserError
from kitsune_mlir.mlir import func, ir, remark, walk

from .base import ModulePass
from .cpu_order import lower_orders
from .cpu_pipeline import PipelineArguments, declare, unique
from .cpu_stage import StageBuilder
from .inline_pipeline import inline_pipeline, whole_values


@dataclass(frozen=True)
class ConvertKitsuneToCpu(ModulePass):
    """Needs place-stages to have run (target: a CPU)."""

    name: ClassVar[str] = "convert-kitsune-to-cpu"

    def run(self, module: ir.Module) -> None:
        lower_orders(module)
        for pipeline in kitsune.pipelines(module):
            if not pipeline.is_designed:
                raise UserError(f"pipeline '{pipeline.label}' has no stages; run design-pipeline first")
            if not pipeline.is_placed:
                raise UserError(f"pipeline '{pipeline.label}' is not placed; run place-stages first")
            with pipeline.operation.location:
                if (whole := _open_resident(pipeline)) is not None:
                    remark(
                        pipeline,
                        f"pipeline '{pipeline.label}' runs an operator at a time: it keeps a tensor of type {whole} at"
                        " hand, and stages on a CPU those of fixed shape",
                    )
                    inline_pipeline(pipeline)
                    continue
                _check_indices(module, pipeline)
                _convert(module, pipeline)


def _open_resident(pipeline: kitsune.PipelineOp) -> ir.Type | None:
    """The type of a tensor whose shape is not known before the call, that a stage keeps at hand."""
    for stage in pipeline.stages:
        for value in stage.residents:
            if rows.is_tensor(value) and not ir.RankedTensorType(value.type).has_static_shape:
                return value.type
    return None


def _check_indices(module: ir.Module, pipeline: kitsune.PipelineOp) -> None:
    """Stages clamp the row numbers that they gather by (cpu_stage.py). Whether one was out of range is computed of all
    rows, in front of the pipeline."""
    gathers = [op for op in walk(pipeline, "linalg.generic") if rows.Structured(op).gathers()]
    if not gathers:
        return
    block, before = pipeline.operation.block, {op.operation for op in pipeline.operation.block.operations}
    cloner = whole_values(pipeline)
    made = [cloner[op.results[0]].owner for op in gathers]
    main = next(op.opview for op in walk(module, "func.func") if op.opview.name.value == "main")
    cpu_bounds.check_gathers(main, made)
    for op in reversed([op.operation for op in block.operations if op.operation not in before]):
        if len(op.results) and not any(True for result in op.results for _ in result.uses):
            op.erase()


def _convert(module: ir.Module, pipeline: kitsune.PipelineOp) -> None:
    arguments = PipelineArguments(module, pipeline)
    stages = [StageBuilder(pipeline, stage, arguments).build() for stage in pipeline.stages]
    plan = {
        "name": pipeline.label,
        "tile_rows": pipeline.tile_rows,
        "rows_of": arguments.rows_of,
        "queues": [_queue(arguments, queue) for queue in pipeline.queues],
        "stages": stages,
        "outputs": len(pipeline.stores),
    }
    outputs = [arguments.output_type(store) for store in pipeline.stores]
    types = [value.type for value in arguments.values]
    function = declare(module, unique(module, f"{pipeline.label}.run"), types, outputs)
    function.attributes[PLAN] = ir.StringAttr.get(json.dumps(plan))
    with ir.InsertionPoint(pipeline):
        call = func.CallOp(function, arguments.values)
    for result in pipeline.result_ops:
        result.results[0].replace_all_uses_with(call.results[result.position])
        result.operation.erase()
    pipeline.operation.erase()


def _queue(arguments: PipelineArguments, queue: kitsune.QueueOp) -> dict[str, object]:
    accumulates = bool(queue.consumers[0].reduces)
    return {
        "name": queue.label,
        "tile_bytes": tensor_bytes(queue.ring.tile),
        "depth": queue.ring.slots,
        "add": arguments.adder(queue.ring.tile) if accumulates else None,
    }
