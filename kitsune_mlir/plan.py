"""The plan of a compiled model as plain data (JSON): what is pipelined, how, and what was declined.

target         name of the target
operators      {total, pipelined}
pipelines      [{name, tile_rows, predicted_us,
                 stages: [{name, kind, role, ctas, location}],
                 queues: [{name, producer, consumers, transport, depth, tile_bytes}]}]
dram_bytes     {bulk_sync, planned}: see kitsune_mlir.traffic
dynamic_size   what every dynamic dimension was taken for in the estimates; absent without one
predicted_us   estimate for one call: pipelines as placed, other operators at DRAM speed
kernels        [{name, registers, shared_bytes, ...}], as far as known; empty on a CPU
declined       [{operator, reason, location}]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kitsune_mlir import mlir, traffic
from kitsune_mlir.mlir import Remark, ir
from kitsune_mlir.planning.target import Target

if TYPE_CHECKING:
    from kitsune_mlir.dialects.kitsune import PipelineOp, QueueOp

Plan = dict[str, Any]
DYNAMIC_SIZE = 65536  # rows assumed of a dimension that is open until the call


@dataclass(frozen=True)
class Partitioned:
    """What only shows between partition-dataflow and design-pipeline; the same for every target."""

    total: int
    pipelined: int
    alone_bytes: tuple[int, ...]  # of each operator outside pipelines
    dram_bytes: dict[str, int]
    is_dynamic: bool
    declined: tuple[Remark, ...]


def partitioned(module: ir.Module, declined: Sequence[Remark]) -> Partitioned:
    """Reads a module whose pipelines stand, not yet designed, around linalg."""
    found = traffic.operators(module)
    alone = [op for op in found if traffic.enclosing(op, traffic.PIPELINE) is None]
    main = mlir.walk(module, "func.func")[0]
    arguments = [value.type for value in main.regions[0].blocks[0].arguments]
    return Partitioned(
        total=len(found),
        pipelined=len(found) - len(alone),
        alone_bytes=tuple(traffic.operator_bytes(op, DYNAMIC_SIZE) for op in alone),
        dram_bytes=traffic.dram_bytes(module, DYNAMIC_SIZE),
        is_dynamic=any(isinstance(kind, ir.RankedTensorType) and not kind.has_static_shape for kind in arguments),
        declined=tuple(declined),
    )


def describe(before: Partitioned, placed: ir.Module, target: Target, remarks: Sequence[Remark] = ()) -> Plan:
    """The plan of a placed module for one target; `remarks` are those of design and placement."""
    pipelines = [_pipeline(op.opview) for op in mlir.walk(placed, traffic.PIPELINE)]
    predicted = sum(pipeline["predicted_us"] or 0.0 for pipeline in pipelines)
    predicted += sum(target.launch_us + count / (target.dram_gbps * 1e3) for count in before.alone_bytes)
    plan: Plan = {
        "target": target.name,
        "operators": {"total": before.total, "pipelined": before.pipelined},
        "pipelines": pipelines,
        "dram_bytes": before.dram_bytes,
        "predicted_us": round(predicted, 2),
        "kernels": [],
        "declined": _declined([*before.declined, *remarks]),
    }
    if before.is_dynamic:
        plan["dynamic_size"] = DYNAMIC_SIZE
    return plan


def _pipeline(op: PipelineOp) -> dict[str, Any]:
    stages = [
        {
            "name": stage.label,
            "kind": stage.unit,
            "role": stage.role,
            "ctas": stage.replicas,
            "operators": len(traffic.operators(stage.operation)),
            "computes": _computes(traffic.operators(stage.operation)),
            "location": mlir.location(stage.operation.location),
        }
        for stage in op.stages
    ]
    predicted = op.attributes["predicted_us"] if "predicted_us" in op.attributes else None
    return {
        "name": op.label,
        "tile_rows": op.tile_rows,
        "predicted_us": None if predicted is None else ir.FloatAttr(predicted).value,
        "stages": stages,
        "queues": [_queue(queue) for queue in op.queues],
    }


def _computes(found: Sequence[ir.Operation]) -> str:
    """What a stage's operators do, in a few words: "matmul 60→256 + 2 others"."""
    products = [_product(op) for op in found if op.name == "linalg.matmul"]
    others = len(found) - len(products)
    words = [
        *products,
        *([f"{others} other{'s' if others > 1 else ''}" if products else f"{others} elementwise"] if others else []),
    ]
    return " + ".join(words)


def _product(op: ir.Operation) -> str:
    inner = ir.RankedTensorType(op.operands[0].type).shape[-1]
    return f"matmul {inner}→{ir.RankedTensorType(op.results[0].type).shape[-1]}"


def _queue(op: QueueOp) -> dict[str, Any]:
    tile = op.ring.tile
    elements = 1
    for i in range(tile.rank):
        elements *= 1 if tile.is_dynamic_dim(i) else tile.get_dim_size(i)
    return {
        "name": op.label,
        "producer": op.producers[0].label,
        "consumers": [stage.label for stage in op.consumers],
        "transport": op.transport,
        "depth": op.ring.slots,
        "tile_bytes": elements * traffic.element_bytes(tile.element_type),
    }


def _declined(remarks: Sequence[Remark]) -> list[dict[str, str]]:
    told = [r for r in remarks if traffic.counts(r.operator)]
    return [{"operator": r.operator, "reason": r.message, "location": r.location} for r in told]
