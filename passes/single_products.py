"""single-products: a placed pipeline of one product becomes plain linalg, which schedule-products makes a kernel of.

    %p = "kitsune.pipeline"() ({ ...
      "kitsune.stage"() ({
        %x = "kitsune.load"(%X)                    %h = linalg.matmul {kitsune.pipeline = "pipeline0"} ins(%X, %w) ...
        %h = linalg.matmul ins(%x, %w)        =>   %a = linalg.generic {...} ins(%h)
        %a = linalg.generic {...} ins(%h)
        "kitsune.store"(%a) }) ... })

Its operands come from memory, and what follows is computed by element: then tiles of rows and columns, and parts of k,
go to all multiprocessors. The kernel has the pipeline's name. Products of f32 that are not asked for in tf32, and those
whose operand the stage computes, stay pipelines, whose kernels split or compute it in registers; but windows of
open images are split where they lie (open_windows.py). So do those of rows that tensor copies do not read,
where a kernel that makes them longer would take memory's time: threads of a chain read them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from kitsune_mlir import example_sizes, rows
from kitsune_mlir.chains.operands import is_read_by_threads
from kitsune_mlir.codegen.hopper.wgmma import MOST_COLUMNS
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import element_type
from kitsune_mlir.planning.cost import DRAM, Price
from kitsune_mlir.planning.kernel_cost import dram_us
from kitsune_mlir.planning.product_tiles import CLUSTERS, choose
from kitsune_mlir.planning.product_widths import layer_widths
from kitsune_mlir.planning.target import Target
from kitsune_mlir.precision import tf32_pieces
from kitsune_mlir.traffic import tensor_bytes
from kitsune_mlir.weights import is_weight

from .base import ModulePass
from .flow import target_of
from .inline_pipeline import inline_pipeline
from .open_images import are_open_windows
from .product_follows import follows_of, leaves_by_rows, matrices_of, stored_bytes, vector_bytes, work_of
from .stage_cost import row_elements, stage_cost

NAME = "kitsune.pipeline"  # on a product, whose kernel has the name of the pipeline that it was
LEAST = 1 << 16  # multiply-adds that are worth a kernel of their own form
_BESIDE = ("arith.constant", "tensor.dim", "tensor.empty", "linalg.fill", "linalg.transpose")


@dataclass(frozen=True)
class SingleProducts(ModulePass):
    """target: what the pipelines were placed for when empty, else a name or the path of a description."""

    name: ClassVar[str] = "single-products"
    target: str = ""

    def run(self, module: ir.Module) -> None:
        for pipeline in kitsune.pipelines(module):
            target = target_of(pipeline, self.target, self.name)
            if target.has_tensor_cores and (product := single_product(pipeline, target)) is not None:
                product.attributes[NAME] = ir.StringAttr.get(pipeline.label, product.context)
                inline_pipeline(pipeline)


def single_product(pipeline: kitsune.PipelineOp, target: Target) -> ir.Operation | None:
    """The product that a designed pipeline is, with elementwise operators behind it; None where it is more, where CTAs
    were asked to share its columns, or where threads had better read its operand."""
    stages = pipeline.stages
    if pipeline.cluster > 1:
        return None
    products = [
        op.operation for stage in stages for op in stage.block.operations if op.operation.name == "linalg.matmul"
    ]
    if len(stages) != 1 or len(products) != 1 or not _is_plain(stages[0], products[0], target):
        return None
    return None if _is_better_held(products[0], target) else products[0]


def single_price(pipeline: kitsune.PipelineOp, target: Target) -> Price | None:
    """What the kernel of a designed pipeline of one product takes; None of others, and where CTAs were asked to share
    boxes."""
    product = single_product(pipeline, target)
    if product is None or not target.has_tensor_cores:
        return None
    (cost,) = [found.on(target) for found in stage_cost(pipeline.stages[0]).products or ()]
    follows = follows_of(product)
    load = next(load for load in pipeline.stages[0].loads if load.results[0] == product.operands[0])
    known, count = rows.shape_of(load.operands[0])[0] != rows.DYNAMIC, example_sizes.shape_of(load.operands[0])[0]
    tiles = choose(
        *(1, count, cost.columns, cost.k, cost.across, cost.pairs, target),
        words=cost.words,
        work=work_of(follows),
        shared=frozenset(("left", "right") if known else ("right",)),
        stored_bytes=stored_bytes(product, follows),
        vector_bytes=vector_bytes(follows, cost.columns),
        clusters=CLUSTERS,
        widths=layer_widths(cost.columns),
        most_split=1,
        aligned=is_weight(product.operands[1]),
        results=max(1, len(follows.stored)),
        by_rows=leaves_by_rows(product, follows, target),
        open_="" if known else "m",
        short=frozenset(name for name, is_so in (("left", known), ("right", not cost.across)) if is_so),
    )
    if tiles is None:
        return None
    ends = [op.results[0] for op in follows.stored] or [product.results[0]]
    moved = dict.fromkeys([*product.operands[:2], *matrices_of([product], follows), *ends])
    nbytes = sum(map(tensor_bytes, moved))
    from_dram = Price(target.launch_us + dram_us(nbytes, target), DRAM)
    return max(Price(tiles.microseconds, tiles.price.limit), from_dram, key=lambda price: price.us)


def _is_better_held(product: ir.Operation, target: Target) -> bool:
    """Whether a kernel that makes the rows of a product's operand longer would go through DRAM, and warpgroups can read
    them as they are, once."""
    left = product.operands[0]
    if not target.has_warpgroups or not is_read_by_threads(left):
        return False
    whole = rows.producer(left).operands[0]
    longer = dram_us(2 * tensor_bytes(whole), target)
    return longer > 0 and rows.shape_of(product.results[0])[1] <= MOST_COLUMNS


def _is_plain(stage: kitsune.StageOp, product: ir.Operation, target: Target) -> bool:
    left, right = product.operands[0], product.operands[1]
    width, owner = element_type(left).width, rows.producer(left)
    if owner is None or owner.name != kitsune.LoadOp.OPERATION_NAME:
        return False
    own = tf32_pieces(product) == 1 or are_open_windows(owner.operands[0])
    if width != 16 and not (width == 32 and own and target.has_warpgroups):
        return False
    if rows.producer(right) is not None and rows.producer(right).parent.name == kitsune.StageOp.OPERATION_NAME:
        return False
    follows = follows_of(product)
    stored = follows.stored or [product]
    for op in stage.block.operations:
        op = op.operation
        if isinstance(op.opview, kitsune.StoreOp):
            if not any(op.operands[0] == end.results[0] for end in stored):
                return False
        elif op != product and op not in follows.ops and op.name not in (*_BESIDE, kitsune.LoadOp.OPERATION_NAME):
            return False
    count = example_sizes.shape_of(owner.operands[0])[0]
    return prod((count, row_elements(product.results[0].type), row_elements(left.type))) >= LEAST
