"""scatter-outputs: what a chained pipeline stores to be scattered, row by row, leaves it by atomic additions.

    "kitsune.pipeline"() ({                              "kitsune.pipeline"() ({
      "kitsune.stage"() ({ ...                             "kitsune.stage"() ({ ...
        "kitsune.store"(%t) {index = 0}                      %i = "kitsune.load"(%to) : tensor<128xi64>
    ...                                             =>       "kitsune.scatter"(%t, %i) {index = 0}
    %u = "kitsune.result"(%p) {index = 0}                ...
    %v = tensor.expand_shape %u                          %s = "kitsune.result"(%p) {index = 0}
    %s = tm_tensor.scatter ins(%v, %to) outs(%zero)

The sums must begin at zero. The kernel that the sums went through, and the copy of all rows that it read, are no more;
what something else reads, too, is stored besides. Additions come in any order, so a module that is to be deterministic
keeps them. What is stored in an order of its own (order-rows) and put back into that of before is written there: a
kitsune.place of the order's rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kitsune_mlir import determinism, rows
from kitsune_mlir.chains.gathers import is_ordered
from kitsune_mlir.chains.operands import is_stored_whole
from kitsune_mlir.contraction import is_zero_filled
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.dialects.checks import constant
from kitsune_mlir.mlir import arith, ir, remark, replace_op
from kitsune_mlir.operations import element_type, made_by
from kitsune_mlir.plan import LEAVES
from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.cost import scattered_us
from kitsune_mlir.traffic import tensor_bytes

from .base import ModulePass
from .dataflow_graph import IN_ORDER

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
        if not target.has_warpgroups or determinism.of(module):
            return
        for pipeline in kitsune.pipelines(module):
            if pipeline.shape == "chained" and not any(stage.accumulates for stage in pipeline.stages):
                for result in pipeline.result_ops:
                    uses = list(result.results[0].uses)
                    left = [_scatter(pipeline, result, use, target) or _place(pipeline, result, use) for use in uses]
                    if uses and all(left):
                        _forget(pipeline, result)
                    elif any(left):
                        nbytes = tensor_bytes(result.results[0])  # what is stored, once more
                        _price(pipeline, sum(left) * nbytes / (target.dram_gbps * 1e3))


def _scatter(pipeline: kitsune.PipelineOp, result: kitsune.ResultOp, use: ir.OpOperand, target: targets.Target) -> bool:
    """Has a pipeline add the rows of a result, where a use of it scatters them; says whether it does."""
    expanded, store = use.owner.operation, result.store
    scatter = _only_reader(expanded.results[0], SCATTER) if expanded.name == "tensor.expand_shape" else None
    if not isinstance(store, kitsune.StoreOp) or scatter is None or not adds_rows(scatter):
        return False
    tile, to, table = store.operands[0], rows_alone(scatter.operands[1]), scatter.results[0].type
    if to is None or rows_alone(expanded.results[0]) is None or not leaves_by_additions(tile, to, table):
        return False
    like = [] if ir.RankedTensorType(table).has_static_shape else [_sized(scatter.operands[2])]
    if not _stands_before(to, pipeline) or not all(_may_size(tensor, pipeline) for tensor in like):
        return False
    with scatter.location:
        whole = _leave(kitsune.ScatterOp, pipeline, result, to, table, like)
    updates = tensor_bytes(result.results[0])
    more = scattered_us(updates, tensor_bytes(scatter.results[0]), _is_in_order(to), target)
    _price(pipeline, max(0.0, more))  # fewer bytes of DRAM are no gain where the L2 is busy with all of them
    remark(scatter, f"{LEAVES} '{pipeline.label}' by additions")
    replace_op(scatter, whole)
    expanded.erase()
    return True


def _place(pipeline: kitsune.PipelineOp, result: kitsune.ResultOp, use: ir.OpOperand) -> bool:
    """The same where a use of a result, which was stored in some order, would put its rows back (order-rows)."""
    gather, store = use.owner.operation.parent, result.store
    order = rows.producer(gather.operands[0]) if gather.name == "linalg.generic" and is_ordered(gather) else None
    if not isinstance(store, kitsune.StoreOp) or order is None or gather.operands[0] != order.results[1]:
        return False
    if not is_stored_whole(store.operands[0]) or len(rows.shape_of(gather.results[0])) != 2:
        return False
    if not _stands_before(order.results[0], pipeline):
        return False
    with store.operation.location:
        whole = _leave(kitsune.PlaceOp, pipeline, result, order.results[0], gather.results[0].type)
    replace_op(gather, whole)
    return True


def _leave(
    kind: type[kitsune.ScatterOp] | type[kitsune.PlaceOp],
    pipeline: kitsune.PipelineOp,
    result: kitsune.ResultOp,
    to: ir.Value,
    whole: ir.Type,
    *like: list[ir.Value],
) -> ir.Value:
    """A new output of a pipeline, which takes the rows of a result's tiles by their numbers in front of the store;
    `like` is a scatter's. Its line in the model is the current location."""
    store, number = result.store, len(pipeline.stores)
    index = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)
    with ir.InsertionPoint(store):
        element = element_type(to)
        numbers = kitsune.LoadOp(to, ir.RankedTensorType.get([pipeline.tile_rows], element)).results[0]
        kind(store.operands[0], numbers, *like, index)
    with ir.InsertionPoint.after(result):
        return kitsune.result(pipeline.results[0], number, whole)


def _forget(pipeline: kitsune.PipelineOp, result: kitsune.ResultOp) -> None:
    """Removes an output that nobody reads any more; the last one takes its number."""
    store, number, last = result.store, result.attributes["index"], pipeline.stores[-1]
    moved = [other for other in pipeline.result_ops if other.position == last.position]
    result.operation.erase()
    if last.position != store.position:
        for op in (last, *moved):
            op.attributes["index"] = number
    store.operation.erase()


def _price(pipeline: kitsune.PipelineOp, more: float) -> None:
    """Adds microseconds to what a pipeline is predicted to take."""
    us = round((pipeline.predicted_us or 0.0) + more, 3)
    pipeline.attributes["predicted_us"] = ir.FloatAttr.get(ir.F64Type.get(), us)


def _is_in_order(to: ir.Value) -> bool:
    """Whether numbers of rows are, or are computed from, those by which rows were put into order."""
    op = rows.producer(to)
    if op is not None and op.name == kitsune.OrderOp.OPERATION_NAME:
        number = ir.OpResult(to).result_number
        return number > 1 and _is_of(op.operands[0], op.operands[number])
    if op is None or op.name != "linalg.generic":
        return False
    return IN_ORDER in op.attributes or any(_is_in_order(value) for value in op.operands)


def _is_of(value: ir.Value, part: ir.Value) -> bool:
    """Whether a value is another one, or computed from it."""
    op = rows.producer(value)
    return value == part or (op is not None and any(_is_of(operand, part) for operand in op.operands))


def _only_reader(value: ir.Value, name: str) -> ir.Operation | None:
    """The operation of that name that alone reads a value, as its first operand."""
    uses = list(value.uses)
    op = uses[0].owner.operation if len(uses) == 1 else None
    return op if op is not None and op.name == name and uses[0].operand_number == 0 else None


def adds_rows(scatter: ir.Operation, to_zeros: bool = True) -> bool:
    """Whether a scatter adds whole rows to rows, of zeros or of anything."""
    body = scatter.regions[0].blocks[0]
    first = body.operations[0].operation
    adds = len(list(body.operations)) == 2 and first.name == "arith.addf"
    adds = adds and set(first.operands) == set(body.arguments) and body.operations[1].operands[0] == first.results[0]
    along_rows = list(ir.DenseI64ArrayAttr(scatter.attributes["dimension_map"])) == [0]
    return adds and along_rows and (not to_zeros or is_zero_filled(scatter.operands[2]))


def rows_alone(value: ir.Value) -> ir.Value | None:
    """A tensor without the dimensions of size 1 behind its rows that a scatter wants of it: what was expanded to it."""
    op = made_by(value, "tensor.expand_shape")
    if op is None:
        return None
    source = op.operands[0]
    shape, expanded = rows.shape_of(source), rows.shape_of(value)
    return source if [expanded[0], *expanded[2:]] == shape and expanded[1] == 1 else None


def leaves_by_additions(tile: ir.Value, to: ir.Value, table: ir.Type) -> bool:
    """Whether rows, row numbers and table are of kinds that leave a pipeline so."""
    kind, numbers, whole = (ir.RankedTensorType(type_) for type_ in (tile.type, to.type, table))
    return (
        kind.rank == whole.rank == 2
        and isinstance(kind.element_type, ir.F32Type)
        and isinstance(numbers.element_type, ir.IntegerType)
        and kind.shape[1] >= LEAST_COLUMNS
        and kind.shape[1] % _COLUMNS == 0
    )


def _sized(zeros: ir.Value) -> ir.Value | None:
    """The tensor of whose rows a tensor of zeros has as many, with its first dimension alone open."""
    start = made_by(rows.producer(zeros).operands[1], "tensor.empty")
    if start is None or len(start.operands) != 1:
        return None
    dim = made_by(start.operands[0], "tensor.dim")
    if dim is None or not ir.RankedTensorType(zeros.type).is_dynamic_dim(0):
        return None
    return dim.operands[0] if constant(dim.operands[1]) == 0 else None


def _may_size(like: ir.Value | None, pipeline: kitsune.PipelineOp) -> bool:
    """Whether a pipeline may be told the rows of a tensor: one whose rows it does not stream."""
    if like is None or not _stands_before(like, pipeline):
        return False
    return all(load.operands[0] != like for stage in pipeline.stages for load in stage.loads)


def _stands_before(value: ir.Value, pipeline: kitsune.PipelineOp) -> bool:
    """Whether a pipeline may use a value of its block."""
    op = rows.producer(value)
    if op is None:
        return True
    first = next(one.operation for one in op.block.operations if one.operation in (op, pipeline.operation))
    return op.block == pipeline.operation.block and first == op


def scatter_rows(updates: ir.Value, to: ir.Value, table: ir.Value, adds: bool) -> ir.Value:
    """tm_tensor.scatter of rows (n x 1 x c) to the rows of a table (r x c) that `to` (n x 1) names: it adds them, or
    takes them, each once, for what was there."""
    attributes = {
        "dimension_map": ir.DenseI64ArrayAttr.get([0]),
        "unique_indices": ir.BoolAttr.get(not adds),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([2, 1]),
    }
    op = ir.Operation.create(SCATTER, [table.type], [updates, to, table], attributes, regions=1)
    element = element_type(table)
    with ir.InsertionPoint(op.regions[0].blocks.append(element, element)):
        update, old = op.regions[0].blocks[0].arguments
        ir.Operation.create("tm_tensor.yield", [], [arith.addf(old, update) if adds else update])
    return op.results[0]
