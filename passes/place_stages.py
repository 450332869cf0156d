"""place-stages: tile rows, roles, replicas, transports and depths for one target.

    !kitsune.ring<tensor<?x256xf32>, 2>    =>    !kitsune.ring<tensor<64x256xf32>, 31>, transport = "l2"
    {kind = "tensor", sym_name = "s1"}     =>    {kind = "tensor", role = 1, replicas = 14, sym_name = "s1"}

Every `?` of a stage body becomes the tile's rows; where warpgroups multiply, tiles of more dimensions first become rows
and columns (flat_tiles.py), if cut-pipelines has not made them so. The pipeline gets `tile_rows`, `target`,
`predicted_us` and `limit`. The decisions are made in `kitsune_mlir/planning/place.py`. Paper: section 5.3.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from kitsune_mlir import example_sizes, rows
from kitsune_mlir.chains.program import Program
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.dialects.unchanged import unchanged
from kitsune_mlir.errors import UnsupportedError, UserError
from kitsune_mlir.form import Form, pipeline_form
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import operations_of
from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.place import CHAINED_ROWS, HEIGHTS, SHAPES, SHORT_ROWS, TILE_ROWS, Chained, Placement, place
from kitsune_mlir.row_cloner import RowCloner

from . import chain_kernel
from .base import ModulePass
from .flat_tiles import flatten_tiles
from .inline_pipeline import decline
from .run_forms import Numbers
from .single_products import single_price, single_product
from .stage_body import clone_body
from .stage_cost import queue_cost, stage_cost
from .sum_kernel import SumKernel


@dataclass(frozen=True)
class PlaceStages(ModulePass):
    """target: a name or the path of a description. shape: auto, chained, fused or spatial. tile_rows: 0 chooses.
    cluster: CTAs that share a chained tile's columns; 0 chooses."""

    name: ClassVar[str] = "place-stages"
    target: str = "cpu"
    shape: str = "auto"
    tile_rows: int = 0
    cluster: int = 0

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise UserError(f"place-stages: shape must be one of {', '.join(SHAPES)}, found '{self.shape}'")
        if self.tile_rows < 0:
            raise UserError(f"place-stages: tile-rows must be 0 (chooses) or more, found {self.tile_rows}")

    def run(self, module: ir.Module) -> None:
        target = targets.load(self.target)
        if target.kind == "gpu" and self.shape == "fused":
            raise UserError("place-stages: fused pipelines are for CPUs; on a GPU ask for auto, chained or spatial")
        heights = heights_of(target, self.shape)
        if target.kind == "gpu" and self.tile_rows not in (0, *heights):
            known = " or ".join(map(str, sorted(heights)))
            raise UserError(f"place-stages: tiles of {target.name} have {known} rows, found tile-rows={self.tile_rows}")
        chaining = Chaining(target, self.cluster, (self.tile_rows,) if self.tile_rows else heights)
        for pipeline in kitsune.pipelines(module):
            if not pipeline.is_designed:
                raise UserError(f"pipeline '{pipeline.label}' has no stages; run design-pipeline before place-stages")
            if not pipeline.is_placed:
                self._place(pipeline, target, chaining)

    def _place(self, pipeline: kitsune.PipelineOp, target: targets.Target, chaining: Chaining) -> None:
        price = single_price(pipeline, target) if self.cluster <= 1 else None
        if target.has_tensor_cores and single_product(pipeline, target) is None:
            flatten_tiles(pipeline)
        chained, reason = chaining(pipeline) if self.shape != "spatial" else ((), roles_refused(pipeline, target))
        if self.shape == "chained" and reason:
            raise UserError(f"pipeline '{pipeline.label}' cannot be chained: {reason}; use shape=auto")
        if price is not None and self.shape != "spatial":  # a kernel of its own, whose CTAs share no columns
            alone = tuple(form for form in chained if form.cluster == 1)
            chained, reason = alone or (Chained(tile_rows=SHORT_ROWS),), ""
        if target.kind == "gpu" and reason:
            decline(pipeline, reason)
            return
        stages = [stage_cost(stage) for stage in pipeline.stages]
        order = {stage.name: i for i, stage in enumerate(stages)}
        queues = [queue_cost(queue, order) for queue in pipeline.queues]
        asked = self.shape, self.tile_rows or None, chained
        placement = place(stages, queues, row_count(pipeline), target, *asked, example_rows(pipeline))
        if price is not None:
            placement = dataclasses.replace(placement, predicted_us=price.us, limit=price.limit)
        _rewrite(pipeline, placement, target.name)


def chained_form(
    pipeline: kitsune.PipelineOp,
    target: targets.Target,
    cluster: int = 0,
    heights: Sequence[int] = (),
) -> tuple[tuple[Chained, ...], str]:
    """The ways in which CTAs, `cluster` to a tile or as few as can, carry tiles of one of these `heights`, or of any,
    through all stages in registers; none, and the reason, when they cannot."""
    if not target.has_tensor_cores:
        return (), f"{target.name} has no tensor cores"
    try:
        if cluster > 1 and not target.clusters:
            raise UnsupportedError(f"{target.name} has no clusters of CTAs")
        if any(stage.accumulates for stage in pipeline.stages):
            if not target.has_warpgroups:
                raise UnsupportedError(f"sums over the rows have no kernel on {target.name}")
            if cluster > 1:
                raise UnsupportedError("no clusters of CTAs sum over the rows")
            return (Chained(blocks=SumKernel(pipeline, target).plan.blocks, tile_rows=TILE_ROWS),), ""
        forms = []
        for height in heights or heights_of(target):
            if not forms or _may_be_short(pipeline, target, forms[0]):
                forms.append(_form_of(chain_kernel.fit(pipeline, target, cluster, height)))
                if (ctas := forms[-1].cluster) > target.sms:
                    raise UnsupportedError(f"{ctas} CTAs work together, {target.name} has {target.sms} SMs")
    except UnsupportedError as error:
        return (), str(error)
    return tuple(forms), ""


def heights_of(target: targets.Target, shape: str = "auto") -> tuple[int, ...]:
    """The rows that a tile may have on a GPU: a warpgroup multiplies 64, and there are one or two; warps by themselves
    have 16 each, and there are four."""
    if shape == "spatial":
        return (CHAINED_ROWS,)
    return HEIGHTS if target.has_warpgroups else (SHORT_ROWS,)


def _form_of(program: Program) -> Chained:
    column_tiles = program.grid_product.passes if program.grid_product else 1
    exchanged = program.exchanged_queues if program.cluster > 1 else frozenset()
    return Chained(program.cluster, column_tiles, exchanged=exchanged, tile_rows=program.tile_rows)


def _may_be_short(pipeline: kitsune.PipelineOp, target: targets.Target, form: Chained) -> bool:
    """Whether tiles of one warpgroup are worth a look: with no more of them than multiprocessors, and none shared."""
    return example_rows(pipeline) <= SHORT_ROWS * target.sms and form.cluster == 1


def roles_refused(pipeline: kitsune.PipelineOp, target: targets.Target) -> str:
    """Why the stages do not run on CTAs of their own; empty where they do: each has a product of 16-bit elements."""
    if target.kind != "gpu":
        return ""
    if not target.has_warpgroups:
        return f"{target.name} has no warpgroups, which stages with CTAs of their own want"
    for stage in pipeline.stages:
        products = operations_of(stage.block, "linalg.matmul")
        if {op.operands[0].type.element_type.width for op in products} != {16}:
            return f"stage '{stage.label}' has no product of 16 bits, which CTAs of its own want"
    return ""


class Chaining:
    """`chained_form` on one target, asked once for pipelines of equal form, and for `runs` by forms of their own, of
    which the `numbers` of stages are part (run_forms.py)."""

    def __init__(
        self,
        target: targets.Target,
        cluster: int = 0,
        heights: Sequence[int] = (),
    ):
        self._target, self._asked = target, (cluster, heights)
        self._known: dict[Form, tuple[tuple[Chained, ...], str]] = {}
        self.runs: dict[Form, tuple[Chained, ...]] = {}
        self.numbers = Numbers()

    def __call__(self, pipeline: kitsune.PipelineOp) -> tuple[tuple[Chained, ...], str]:
        form = pipeline_form(pipeline)
        if form not in self._known:
            self._known[form] = self.found_out(pipeline)
        return self._known[form]

    def found_out(self, pipeline: kitsune.PipelineOp) -> tuple[tuple[Chained, ...], str]:
        """The same, whether or not it was asked before: to tell that takes a third as long as an answer."""
        with unchanged():
            return chained_form(pipeline, self._target, *self._asked)


def row_count(pipeline: kitsune.PipelineOp) -> int | None:
    """The rows that a pipeline streams; None when they are open until the call."""
    size = rows.shape_of(_streamed(pipeline))[0]
    return None if size == rows.DYNAMIC else size


def example_rows(pipeline: kitsune.PipelineOp) -> int:
    """The rows that it streams; those of the example where the call decides."""
    return example_sizes.shape_of(_streamed(pipeline))[0]


def _streamed(pipeline: kitsune.PipelineOp) -> ir.Value:
    return next(load for stage in pipeline.stages for load in stage.loads).operands[0]


def _rewrite(old: kitsune.PipelineOp, placement: Placement, target: str) -> None:
    """Rebuilds the pipeline with the tile's rows in every type."""
    i64 = ir.IntegerType.get_signless(64)
    with old.operation.location, ir.InsertionPoint(old):
        new = kitsune.PipelineOp(old.attributes["sym_name"], kitsune.Outputs.get())
        new.attributes["tile_rows"] = ir.IntegerAttr.get(i64, placement.tile_rows)
        new.attributes["target"] = ir.StringAttr.get(target)
        new.attributes["shape"] = ir.StringAttr.get(placement.shape)
        if placement.cluster > 1:
            new.attributes["cluster"] = ir.IntegerAttr.get(i64, placement.cluster)
        new.attributes["predicted_us"] = ir.FloatAttr.get(ir.F64Type.get(), round(placement.predicted_us, 3))
        new.attributes["limit"] = ir.StringAttr.get(placement.limit)
    body = new.regions[0].blocks.append()
    values: dict[int, ir.Value] = {}
    stages = iter(zip(placement.roles, (placement.replicas[role] for role in placement.roles)))
    queues = iter(zip(placement.transports, placement.depths))
    for op in old.block.operations:
        view = op.operation.opview
        with op.operation.location, ir.InsertionPoint(body):
            if isinstance(view, kitsune.QueueOp):
                transport, depth = next(queues)
                tile = view.ring.tile
                if not _is_partial_sum(view):
                    tile = RowCloner(placement.tile_rows).type_of(tile)
                queue = kitsune.QueueOp(view.attributes["sym_name"], kitsune.ring_type(tile, depth))
                queue.attributes["transport"] = ir.StringAttr.get(transport)
                values[hash(view.results[0])] = queue.results[0]
            else:
                role, replicas = next(stages)
                stage = kitsune.StageOp(view.attributes["sym_name"], view.attributes["kind"])
                stage.attributes["role"] = ir.IntegerAttr.get(i64, role)
                stage.attributes["replicas"] = ir.IntegerAttr.get(i64, replicas)
                with ir.InsertionPoint(stage.regions[0].blocks.append()):
                    clone_body(view, placement.tile_rows, values)
    old.results[0].replace_all_uses_with(new.results[0])
    old.operation.erase()


def _is_partial_sum(queue: kitsune.QueueOp) -> bool:
    return any(op.operands[0] == queue.results[0] for op in queue.producers[0].accumulates)
