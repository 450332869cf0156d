"""cut-pipelines: a pipeline that cannot be chained as a whole becomes consecutive ones that can.

    %p = "kitsune.pipeline"() ({               %p0 = "kitsune.pipeline"() ({
      %q = "kitsune.queue"()                     "kitsune.stage"() ({ ... "kitsune.store"(%h) {index = 0} }) {s0}
      "kitsune.stage"() ({                     }) {sym_name = "net_part0"}
        ... "kitsune.put"(%q, %h)              %whole = "kitsune.result"(%p0) {index = 0}
      }) {sym_name = "s0"}                =>   %p1 = "kitsune.pipeline"() ({
      "kitsune.stage"() ({                       "kitsune.stage"() ({
        %h = "kitsune.get"(%q) ...                 %h = "kitsune.load"(%whole) ...
      }) {sym_name = "s1"}                       }) {sym_name = "s1"}
    }) {sym_name = "net"}                      }) {sym_name = "net_part1"}

A remark says why the pipeline does not chain whole. A queue across a cut goes through DRAM as a whole tensor. What does
not chain, or is faster one operator at a time, becomes plain linalg again. Rows that threads would gather into shared
memory are gathered in front of the pipeline where that is predicted to be faster (gather_before.py). Weights are first
brought into the order that chains (turned_weights.py). CPUs are left alone. The decisions are made in
`kitsune_mlir/planning/cut.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from kitsune_mlir import rows
from kitsune_mlir.chains.gathers import row_bytes
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.errors import UserError
from kitsune_mlir.mlir import arith, ir, remark, tensor
from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.cost import StageCost
from kitsune_mlir.planning.cut import Cut, Run, cut, cut_everywhere, moved_us, part_name
from kitsune_mlir.planning.place import UNKNOWN_ROWS, Chained

from .base import ModulePass
from .flat_tiles import flatten_tiles
from .gather_before import gather_before, gathered
from .inline_pipeline import inline_pipeline
from .pipeline_run import PipelineRun, whole_type
from .place_stages import Chaining, example_rows, row_count
from .run_forms import RunForms
from .single_products import single_product
from .stage_cost import queue_cost, stage_cost
from .turned_weights import turn_weights


@dataclass(frozen=True)
class CutPipelines(ModulePass):
    """target: a name or the path of a description. whole: leaves every pipeline in one piece. stages: cuts between all
    stages, as bulk-synchronous code runs."""

    name: ClassVar[str] = "cut-pipelines"
    target: str = "cpu"
    whole: bool = False
    stages: bool = False

    def run(self, module: ir.Module) -> None:
        target = targets.load(self.target)
        if target.kind != "gpu":
            return
        chaining = Chaining(target)
        for pipeline in kitsune.pipelines(module):
            if not pipeline.is_designed:
                raise UserError(f"pipeline '{pipeline.label}' has no stages; run design-pipeline before {self.name}")
            if pipeline.is_placed:
                continue
            if gathered(pipeline) and not self._gathers_inside(pipeline, target, chaining):
                gather_before(pipeline)
            if target.has_tensor_cores and single_product(pipeline, target) is not None:
                continue  # one kernel, whatever it is called
            if target.has_tensor_cores:
                flatten_tiles(pipeline)
            if target.has_tensor_cores and (self.stages or not chaining(pipeline)[0]):
                turn_weights(pipeline)
            if not self.whole:
                _Cutter(pipeline, target, chaining, cut_everywhere if self.stages else cut).run()

    def _gathers_inside(self, pipeline: kitsune.PipelineOp, target: targets.Target, chaining: Chaining) -> bool:
        """Whether threads beside warpgroups gather wide operands faster than kernels in front of the pipeline would."""
        if not target.has_warpgroups or self.stages or self.whole:
            return target.has_warpgroups and self.whole
        inside = _Cutter(pipeline, target, chaining, cut).plan().predicted_us
        other = pipeline.operation.clone(ir.InsertionPoint(pipeline)).opview
        wholes = gather_before(other)
        before = _Cutter(other, target, chaining, cut).plan().predicted_us
        count = row_count(pipeline) or UNKNOWN_ROWS
        before += sum(moved_us(2 * count * row_bytes(whole), target) for whole in wholes)
        other.operation.erase()
        for whole in wholes:
            whole.owner.erase()
        return inside <= before


class _Cutter:
    """Cuts one pipeline, where `choose` says. `rows` is the size of dimension 0 of its whole tensors."""

    def __init__(
        self, pipeline: kitsune.PipelineOp, target: targets.Target, chaining: Chaining, choose: Callable[..., Cut]
    ):
        self.pipeline, self.target, self.chaining, self.choose = pipeline, target, chaining, choose
        self.stages = pipeline.stages
        count = row_count(pipeline)
        self.rows = rows.DYNAMIC if count is None else count

    def run(self) -> None:
        found = self.plan()
        if len(found.runs) == 1 and found.runs[0].chains:
            return
        forms, denied = self.chaining(self.pipeline)
        whole = "asked for" if self.choose is cut_everywhere else "so it is predicted to be faster"
        reason = whole if forms else denied
        priced = all(cost.products is not None for cost in self.costs)
        if priced and not any(run.chains for run in found.runs):
            reason = "its operators are predicted to be faster one by one"
        remark(self.pipeline, f"is cut into {len(found.runs)} {'parts' if len(found.runs) > 1 else 'part'}: {reason}")
        wholes: dict[int, ir.Value] = {}
        parts = []
        with ir.InsertionPoint(self.pipeline):
            for number, run in enumerate(found.runs):
                part = self._build(run, part_name(self.pipeline.label, number), wholes)
                for result, whole in part.replacements:
                    result.results[0].replace_all_uses_with(whole)
                    result.operation.erase()
                parts.append((run, part.pipeline))
        self.pipeline.operation.erase()
        for run, part in parts:
            if not run.chains:
                inline_pipeline(part)

    @cached_property
    def forms(self) -> RunForms:
        return RunForms(self.pipeline, self.stages, self.chaining.numbers)

    @cached_property
    def costs(self) -> list[StageCost]:
        return [stage_cost(stage) for stage in self.stages]

    def plan(self) -> Cut:
        order = {stage.name: i for i, stage in enumerate(self.costs)}
        queues = [queue_cost(queue, order) for queue in self.pipeline.queues]
        return self.choose(
            self.costs, queues, row_count(self.pipeline), self.target, self._chains, example_rows(self.pipeline)
        )

    def _build(self, run: Run, name: str, wholes: dict[int, ir.Value]) -> PipelineRun:
        stages = self.stages[run.first : run.last + 1]
        return PipelineRun(self.pipeline, stages, name, self.rows, wholes)

    def _chains(self, first: int, last: int) -> tuple[Chained, ...]:
        """How warpgroups can chain the run; runs of equal form are asked once."""
        if first == 0 and last == len(self.stages) - 1:
            return self.chaining(self.pipeline)[0]
        form, known = (self.rows, *self.forms.of(first, last)), self.chaining.runs
        if form not in known:
            known[form] = self._chains_built(Run(first, last))
        return known[form]

    def _chains_built(self, run: Run) -> tuple[Chained, ...]:
        """Builds the run, asks how warpgroups can chain it, and takes it away again."""
        with self.pipeline.operation.location, ir.InsertionPoint(self.pipeline):
            size = arith.ConstantOp.create_index(1) if self.rows == rows.DYNAMIC else None
            stages = self.stages[run.first : run.last + 1]
            gotten = {hash(op.operands[0]): op.results[0].type for stage in stages for op in stage.gets}
            wholes = {queue: self._placeholder(whole_type(tile, self.rows), size) for queue, tile in gotten.items()}
            made = [value.owner for value in wholes.values()] + ([size] if size is not None else [])
            built = self._build(run, self.pipeline.label, wholes)
        forms = self.chaining.found_out(built.pipeline)[0]
        for op in [*built.pipeline.result_ops, built.pipeline, *made]:
            op.operation.erase()
        return forms

    @staticmethod
    def _placeholder(type_: ir.RankedTensorType, size: ir.OpView | None) -> ir.Value:
        """What stands for a whole tensor that no pipeline makes yet."""
        sizes = list(type_.shape)
        if size is not None:
            sizes[0] = size.result
        return tensor.EmptyOp(sizes, type_.element_type).result
