"""The plain form of a designed pipeline: its stage bodies with the tile's rows := all rows."""

from __future__ import annotations

from kitsune_mlir import rows
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.generics import constant_index
from kitsune_mlir.mlir import arith, ir, linalg, remark, tensor
from kitsune_mlir.operations import element_type
from kitsune_mlir.row_cloner import RowCloner

from .scatter_outputs import scatter_rows
from .stage_body import clone_operation


def inline_pipeline(pipeline: kitsune.PipelineOp) -> None:
    """Replaces a designed pipeline by linalg on whole tensors, which computes the same results."""
    cloner = whole_values(pipeline)
    with pipeline.operation.location, ir.InsertionPoint(pipeline):
        for result in pipeline.result_ops:
            result.results[0].replace_all_uses_with(_whole(result, cloner))
    for result in pipeline.result_ops:
        result.operation.erase()
    pipeline.operation.erase()


def decline(pipeline: kitsune.PipelineOp, reason: object) -> None:
    """Inlines a pipeline that has no kernel, with a remark that says why."""
    remark(pipeline, f"pipeline '{pipeline.label}' runs bulk-synchronously: {reason}")
    inline_pipeline(pipeline)


def whole_values(pipeline: kitsune.PipelineOp) -> RowCloner:
    """Computes in front of a designed pipeline what its stages do, on whole tensors; values by those of stages."""
    values: dict[int, ir.Value] = {}
    with pipeline.operation.location, ir.InsertionPoint(pipeline):
        cloner = RowCloner(all_rows(pipeline), values)
        for stage in pipeline.stages:
            for op in stage.block.operations:
                _inline_operation(op.operation, cloner)
    return cloner


def all_rows(pipeline: kitsune.PipelineOp) -> int | ir.Value:
    """How many rows a designed pipeline streams."""
    whole = next(load for stage in pipeline.stages for load in stage.loads).operands[0]
    size = rows.shape_of(whole)[0]
    return rows.size_of(whole, 0) if size == rows.DYNAMIC else size


def _inline_operation(op: ir.Operation, cloner: RowCloner) -> None:
    """Queues hand over whole tensors; a sum of partial sums over all rows is the partial sum itself."""
    view = op.opview
    if isinstance(view, kitsune.LoadOp):
        cloner[op.results[0]] = op.operands[0]
    elif isinstance(view, kitsune.PutOp | kitsune.AccumulateOp):
        cloner[op.operands[0]] = cloner[op.operands[1]]
    elif isinstance(view, kitsune.GetOp | kitsune.ReduceOp):
        cloner[op.results[0]] = cloner[op.operands[0]]
    elif not isinstance(view, kitsune.OutputOp):
        clone_operation(op, cloner)


def _whole(result: kitsune.ResultOp, cloner: RowCloner) -> ir.Value:
    """What the pipeline's output is: what is stored, the sums of what is scattered, or rows where they are placed."""
    store = result.store
    tile = cloner[store.operands[0]]
    if isinstance(store, kitsune.StoreOp):
        return tile
    count, columns = rows.shape_of(tile)
    to = cloner[store.operands[1]]
    updates, numbers = (
        tensor.expand_shape(
            ir.RankedTensorType.get([count, 1, *rest], element_type(value)),
            value,
            groups,
            [cloner.rows] if count == rows.DYNAMIC else [],
            [count, 1, *rest],
        )
        for value, rest, groups in ((tile, [columns], [[0], [1, 2]]), (to, [], [[0, 1]]))
    )
    kind = ir.RankedTensorType(result.results[0].type)
    zero = arith.ConstantOp(kind.element_type, 0.0).result
    sizes = [kind.shape[0], columns]
    if kind.is_dynamic_dim(0):
        like = store.like if isinstance(store, kitsune.ScatterOp) else []
        sizes[0] = tensor.dim(like[0], constant_index(0)) if like else cloner.rows
    start = linalg.fill(zero, outs=[tensor.EmptyOp(sizes, kind.element_type).result])
    return scatter_rows(updates, numbers, start, adds=isinstance(store, kitsune.ScatterOp))
