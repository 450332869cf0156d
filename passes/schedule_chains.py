"""schedule-chains: a placed pipeline whose products chain in registers becomes a kernel at the schedule level.

    "kitsune.pipeline"() ({                          "kitsune.kernel"() ({
      "kitsune.stage"() ({                             %lo, %hi, %st = "kitsune.tiles"(%rows) {tile = [128]}
        %x = "kitsune.load"(%X)                        %x = "kitsune.alloc_ring"() ...  // streamed chunks
        %h = linalg.matmul ins(%x, %w0)                %w = "kitsune.alloc_ring"() ...  // boxes of weights
        %a = linalg.generic {...} ins(%h)       =>     "kitsune.agent"() ({ ... }) {copies = 1, sym_name = "feed"}
        "kitsune.put"(%q, %a) })                       "kitsune.agent"() ({ ...
      "kitsune.stage"() ({                               %h = "kitsune.settle"(%sums)
        %a = "kitsune.get"(%q)                           %a = linalg.generic {...} ins(%h)
        %y = linalg.matmul ins(%a, %w1)                  %p = "kitsune.part"(%a) {first = 0}
        "kitsune.store"(%y) }) })                        %s, %t = "kitsune.product"(%z, %p, %slot) ...
                                                         "kitsune.write"(%y, %row, %c0) })
                                                       {copies = 2, sym_name = "math"} })

Placement asks the same kernel whether there is one (place-stages), so every chain has one. Stages with CTAs of their
own are roles of such a kernel where warpgroups run each of them. A pipeline that has no kernel becomes plain linalg
again, with a remark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kitsune_mlir.dialects import kitsune, schedule
from kitsune_mlir.errors import UnsupportedError, UserError
from kitsune_mlir.mlir import ir, walk
from kitsune_mlir.planning import target as targets

from .base import ModulePass
from .chain_body import ChainBody
from .chain_kernel import ChainKernel
from .chain_roles import RolesKernel
from .flow import target_of
from .inline_pipeline import decline
from .sum_kernel import SumKernel


@dataclass(frozen=True)
class ScheduleChains(ModulePass):
    """target: what the pipelines were placed for when empty, else a name or the path of a description."""

    name: ClassVar[str] = "schedule-chains"
    target: str = ""

    def run(self, module: ir.Module) -> None:
        for pipeline in kitsune.pipelines(module):
            if not pipeline.is_placed:
                raise UserError(f"pipeline '{pipeline.label}' is not placed; run place-stages before {self.name}")
            target = target_of(pipeline, self.target, self.name)
            if target.kind != "gpu":
                continue
            sums = any(stage.accumulates for stage in pipeline.stages)
            try:
                (self._schedule_sums if sums else self._schedule)(pipeline, target)
            except UnsupportedError as error:
                decline(pipeline, error)

    def _schedule_sums(self, pipeline: kitsune.PipelineOp, target: targets.Target) -> None:
        with pipeline.operation.location, ir.InsertionPoint(pipeline):
            SumKernel(pipeline, target).build()
        for result in pipeline.result_ops:
            result.operation.erase()
        pipeline.operation.erase()

    def _schedule(self, pipeline: kitsune.PipelineOp, target: targets.Target) -> None:
        with pipeline.operation.location, ir.InsertionPoint(pipeline):
            kernel = _kernel_of(pipeline, target).build(lambda built, row: ChainBody(built, row).emit())
            if walk(kernel, "linalg.matmul"):
                kernel.operation.erase()
                raise UnsupportedError("a tile is read before the product that makes it")
            for result in pipeline.result_ops:
                type_ = result.results[0].type
                taken = kitsune.result(kernel.results[0], result.position, type_)
                result.results[0].replace_all_uses_with(taken)
        for result in pipeline.result_ops:
            result.operation.erase()
        pipeline.operation.erase()
        assert isinstance(kernel, schedule.KernelOp)


def _kernel_of(pipeline: kitsune.PipelineOp, target: targets.Target) -> ChainKernel | RolesKernel:
    if len({stage.role for stage in pipeline.stages}) == 1:
        return ChainKernel(pipeline, target, pipeline.cluster, pipeline.tile_rows)
    return RolesKernel(pipeline, target)
