"""The plan of a compiled model as plain data (JSON): what is pipelined, how, and what was declined.

target         name of the target
operators      {total, pipelined}
pipelines      [{name, shape, rows, tile_rows, cluster, predicted_us, limit, dram_bytes,
                 stages: [{name, kind, role, ctas, location}],
                 queues: [{name, producer, consumers, transport, depth, tile_bytes}]}]
dram_bytes     {bulk_sync, planned}: see kitsune_mlir.traffic
matmul_precision  of f32 products on tensor cores, where it is not "highest" (kitsune_mlir.precision)
deterministic_us  of predicted_us, for rows that are added up or written by index in a fixed order; absent where
               the order is open (kitsune_mlir.determinism)
predicted_us   estimate for one call: the sum over `launches`, and the call itself; without them (on a CPU, or before
               code generation) pipelines as placed, other operators at DRAM speed
launches       [{kernel, form, computes, location, ctas, threads, tile, slots, registers, shared_bytes, predicted_us,
                 limit, work}]: what a call launches on a GPU, in order (kitsune_mlir.launches). `kernel` is the name
               that profilers show, `form` "scheduled chain", "scheduled roles", "scheduled product", "scheduled rows",
               "scheduled dots", "operator" or "copy", `tile` what a CTA takes at once, `limit` what the time is due to
               (planning/cost.py); the `work` of an operator or a copy is what its time is predicted from
               (planning/kernel_cost.py)
input_sizes    the inputs' sizes that all of this is planned and predicted for, where some are open until the call
kernels        [{name, registers, shared_bytes, ...}], as far as known; empty on a CPU
declined       [{operator, reason, location}]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kitsune_mlir import mlir, precision, traffic
from kitsune_mlir.dialects.checks import parent_of
from kitsune_mlir.mlir import Remark, ir
from kitsune_mlir.planning.cut import whole_name
from kitsune_mlir.planning.target import Target

if TYPE_CHECKING:
    from kitsune_mlir.dialects.kitsune import PipelineOp, QueueOp

Plan = dict[str, Any]


@dataclass(frozen=True)
class Group:
    """The operators of one pipeline: what each moves when it runs alone."""

    operator_bytes: tuple[int, ...]


@dataclass(frozen=True)
class Partitioned:
    """What only shows between partition-dataflow and design-pipeline; the same for every target."""

    alone_bytes: tuple[int, ...]  # of each operator outside pipelines
    groups: dict[str, Group]  # by the name of the pipeline
    matmul_precision: str
    declined: tuple[Remark, ...]


LEAVES = "leaves pipeline"  # how a remark begins on an operator that became the end of one


def partitioned(module: ir.Module, declined: Sequence[Remark]) -> Partitioned:
    """Reads a module whose pipelines stand, not yet designed, around linalg."""
    alone = [op for op in traffic.operators(module) if parent_of(op, traffic.PIPELINE) is None]
    return Partitioned(
        alone_bytes=_bytes(alone),
        groups={op.opview.label: Group(_bytes(traffic.operators(op))) for op in mlir.walk(module, traffic.PIPELINE)},
        matmul_precision=precision.of(module.operation),
        declined=tuple(declined),
    )


def pipelines(placed: ir.Module) -> list[dict[str, Any]]:
    """The pipelines of a placed module, as they stand in a plan."""
    return [_pipeline(op.opview) for op in mlir.walk(placed, traffic.PIPELINE)]


def describe(
    before: Partitioned,
    running: Sequence[dict[str, Any]],
    target: Target,
    remarks: Sequence[Remark] = (),
    refusals: Sequence[Remark] = (),
) -> Plan:
    """The plan for one target on which the pipelines `running` run as such and all else operator by
    operator. `remarks` are those of design and placement, `refusals` say which pipelines the target's code
    generation declined."""
    leaving = {(r.operator, r.location) for r in remarks if r.message.startswith(LEAVES)}
    names = {whole_name(pipeline["name"]) for pipeline in running}
    inside = [group for name, group in before.groups.items() if name in names]
    alone = list(before.alone_bytes)
    for name, group in before.groups.items():
        alone += group.operator_bytes if name not in names else ()
    pipelined = [count for group in inside for count in group.operator_bytes]
    predicted = sum(pipeline["predicted_us"] or 0.0 for pipeline in running)
    predicted += sum(target.launch_us + count / (target.dram_gbps * 1e3) for count in alone)
    plan: Plan = {
        "target": target.name,
        "operators": {"total": len(alone) + len(pipelined), "pipelined": len(pipelined)},
        "pipelines": list(running),
        "dram_bytes": {
            "bulk_sync": sum(alone) + sum(pipelined),
            "planned": sum(alone) + sum(pipeline["dram_bytes"] for pipeline in running),
        },
        "predicted_us": round(predicted, 2),
        "kernels": [],
        "declined": [
            _declined(r)
            for r in (*before.declined, *remarks)
            if traffic.counts(r.operator) and (r.operator, r.location) not in leaving
        ]
        + [_declined(r) for r in refusals],
    }
    if cuts := [{"pipeline": r.symbol, "reason": r.message} for r in remarks if r.operator == traffic.PIPELINE]:
        plan["cuts"] = cuts
    if target.kind == "gpu" and before.matmul_precision != precision.HIGHEST:
        plan["matmul_precision"] = before.matmul_precision
    return plan


def _bytes(found: Sequence[ir.Operation]) -> tuple[int, ...]:
    return tuple(traffic.operator_bytes(op) for op in found)


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
    return {
        "name": op.label,
        "shape": op.shape,
        "rows": op.row_count,
        "tile_rows": op.tile_rows,
        "cluster": op.cluster,
        "predicted_us": op.predicted_us,
        "limit": op.limit,
        "dram_bytes": traffic.pipeline_bytes(op.operation),
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


def _declined(remark: Remark) -> dict[str, str]:
    return {"operator": remark.operator, "reason": remark.message, "location": remark.location}
