"""scatter-outputs: what a chained pipeline stores to be scattered, row by row, leaves it by atomic additions.

    "kitsune.pipeline"() ({                              "kitsune.pipeline"() ({
      "kitsune.stage"() ({ ...                             "kitsune.stage"() ({ ...
        "kitsune.store"(%t) {index = 0}                      %i = "kitsune.load"(%to) : tensor<128xi64>
    ...                                             =>       "kitsune.scatter"(%t, %i) {index = 0}
    %u = "kitsune.result"(%p) {index = 0}                ...
    %v = tensor.expand_shape %u                          %s = "kitsune.result"(%p) {index = 0}
    %s = tm_tensor.scatter ins(%v, %to) outs(%zero)

Nothing else may read what is stored, and the sums must begin at zero. The kernel that the sums went through, and the
copy of all rows that it read, are no more. Additions come in any order, so a module that is to be deterministic keeps
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kitsune_mlir import determinism, rows
from kitsune_mlir.contraction import is_zero_filled
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.mlir import arith, ir, remark
from kitsune_mlir.plan import LEAVES
from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.cost import scattered_us
from kitsune_mlir.planning.place import UNKNOWN_ROWS
from kitsune_mlir.traffic import type_bytes

from .base import ModulePass

SCATTER = "tm_tensor.scatter"
LEAST_COLUMNS = 16  # of a tile: narrower ones are not worth a way out of their own
_COLUMNS = 4  # that an atomic operation adds at once


@dataclass(frozen=True)
class ScatterOutputs(ModulePass):
    """target: a name or the path of a description."""

    name: ClassVar[str] = "scatter-outputs"
    target: str = "sm_90a"

    def run(self, module: ir.Module) -> None:
        target = targets.load(self.target)
        if target.products != "wgmma" or determinism.of(module):
            return
        for pipeline in kitsune.pipelines(module):
            if pipeline.shape == "chained" and not any(stage.accumulates for stage in pipeline.stages):
                for result in pipeline.result_ops:
                    _scatter(pipeline, result, target)


def _scatter(pipeline: kitsune.PipelineOp, result: kitsune.ResultOp, target: targets.Target) -> None:
    """Puts a kitsune.scatter in the place of a store, where what it stores is only scattered."""
    store, expanded = result.store, _only_reader(result.results[0], "tensor.expand_shape")
    scatter = None if expanded is None else _only_reader(expanded.results[0], SCATTER)
    if not isinstance(store, kitsune.StoreOp) or scatter is None or not _adds_rows(scatter):
        return
    tile, to, table = store.operands[0], _rows_alone(scatter.operands[1]), scatter.results[0].type
    if to is None or _rows_alone(expanded.results[0]) is None or not _fits(tile, to, table):
        return
    if not _stands_before(to, pipeline):
        return
    tile_rows, updates = pipeline.tile_rows, result.results[0].type
    with scatter.location, ir.InsertionPoint(store):
        kind = ir.RankedTensorType(to.type).element_type
        numbers = kitsune.LoadOp(to, ir.RankedTensorType.get([tile_rows], kind)).results[0]
        kitsune.ScatterOp(tile, numbers, store.attributes["index"])
    store.operation.erase()
    index = result.attributes["index"]
    with scatter.location, ir.InsertionPoint.after(result):
        whole = kitsune.ResultOp(pipeline.results[0], index, table).results[0]
    _price(pipeline, updates, table, target)
    remark(scatter, f"{LEAVES} '{pipeline.label}' by additions")
    scatter.results[0].replace_all_uses_with(whole)
    scatter.erase()
    expanded.erase()
    result.operation.erase()


def _price(pipeline: kitsune.PipelineOp, updates: ir.Type, table: ir.Type, target: targets.Target) -> None:
    """The pipeline was priced as one that stores the updates."""
    more = scattered_us(type_bytes(updates, UNKNOWN_ROWS), type_bytes(table, UNKNOWN_ROWS), target)
    us = round((pipeline.predicted_us or 0.0) + more, 3)
    pipeline.attributes["predicted_us"] = ir.FloatAttr.get(ir.F64Type.get(), us)


def _only_reader(value: ir.Value, name: str) -> ir.Operation | None:
    """The operation of that name that alone reads a value, as its first operand."""
    uses = list(value.uses)
    op = uses[0].owner.operation if len(uses) == 1 else None
    return op if op is not None and op.name == name and uses[0].operand_number == 0 else None


def _adds_rows(scatter: ir.Operation) -> bool:
    """Whether a scatter adds whole rows to rows of zeros."""
    body = scatter.regions[0].blocks[0]
    first = body.operations[0].operation
    adds = len(list(body.operations)) == 2 and first.name == "arith.addf"
    adds = adds and set(first.operands) == set(body.arguments) and body.operations[1].operands[0] == first.results[0]
    along_rows = list(ir.DenseI64ArrayAttr(scatter.attributes["dimension_map"])) == [0]
    return adds and along_rows and is_zero_filled(scatter.operands[2])


def _rows_alone(value: ir.Value) -> ir.Value | None:
    """A tensor without the dimensions of size 1 behind its rows that a scatter wants of it: what was expanded to it."""
    op = rows.producer(value)
    if op is None or op.name != "tensor.expand_shape":
        return None
    source = op.operands[0]
    shape, expanded = rows.shape_of(source), rows.shape_of(value)
    return source if [expanded[0], *expanded[2:]] == shape and expanded[1] == 1 else None


def _fits(tile: ir.Value, to: ir.Value, table: ir.Type) -> bool:
    """Whether tiles, row numbers and table are of kinds that leave so."""
    kind, numbers, whole = (ir.RankedTensorType(type_) for type_ in (tile.type, to.type, table))
    return (
        kind.rank == whole.rank == 2
        and isinstance(kind.element_type, ir.F32Type)
        and isinstance(numbers.element_type, ir.IntegerType)
        and kind.shape[1] >= LEAST_COLUMNS
        and kind.shape[1] % _COLUMNS == 0
        and whole.has_static_shape
    )


def _stands_before(value: ir.Value, pipeline: kitsune.PipelineOp) -> bool:
    """Whether a pipeline may use a value of its block."""
    op = rows.producer(value)
    if op is None:
        return True
    first = next(one.operation for one in op.block.operations if one.operation in (op, pipeline.operation))
    return op.block == pipeline.operation.block and first == op


def scatter_rows(updates: ir.Value, to: ir.Value, table: ir.Value) -> ir.Value:
    """tm_tensor.scatter that adds rows (n x 1 x c) to the rows of a table (r x c) that `to` (n x 1) names."""
    attributes = {
        "dimension_map": ir.DenseI64ArrayAttr.get([0]),
        "unique_indices": ir.BoolAttr.get(False),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([2, 1]),
    }
    op = ir.Operation.create(SCATTER, [table.type], [updates, to, table], attributes, regions=1)
    element = ir.RankedTensorType(table.type).element_type
    with ir.InsertionPoint(op.regions[0].blocks.append(element, element)):
        update, old = op.regions[0].blocks[0].arguments
        total = arith.addf(old, update)
        ir.Operation.create("tm_tensor.yield", [], [total])
    return op.results[0]
