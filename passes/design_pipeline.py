"""design-pipeline: the operators of a pipeline become stages, the intermediates between them queues.

    "kitsune.pipeline"() ({                     "kitsune.pipeline"() ({
      %h = linalg.matmul ins(%x, %w0)             %q = "kitsune.queue"() : !kitsune.ring<tensor<?x256xf32>, 2>
      %a = linalg.generic (ReLU) ins(%h)          "kitsune.stage"() ({
      %y = linalg.matmul ins(%a, %w1)       =>      %t = "kitsune.load"(%x)
      "kitsune.store"(%y) {index = 0}               ... matmul and ReLU on the row tile %t ...
    })                                              "kitsune.put"(%q, %a)
                                                  }) {kind = "tensor", sym_name = "s0"}
                                                  "kitsune.stage"() ({
                                                    %a = "kitsune.get"(%q) ... "kitsune.store"(%y) {index = 0}
                                                  }) {kind = "tensor", sym_name = "s1"}
                                                })

Bodies are in row form with `?` rows; leading dimensions that are rows together are flattened around
the pipeline. A sum over rows becomes partial sums (`kitsune.accumulate`) and a stage that adds them
(`kitsune.reduce`). Paper: section 5.2, Algorithm 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from kitsune_mlir import rows
from kitsune_mlir.chains.gathers import is_gather, streams
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.mlir import arith, ir, remark, tensor
from kitsune_mlir.operations import operations_of
from kitsune_mlir.planning.design import StagePlan, design
from kitsune_mlir.row_cloner import RowCloner

from .base import ModulePass
from .dataflow_graph import DataflowGraph

DEPTH = 2  # tiles a queue holds until placement decides


@dataclass(frozen=True)
class DesignPipeline(ModulePass):
    """fuse: epilogue fusion; without it every operator is a stage."""

    name: ClassVar[str] = "design-pipeline"
    fuse: bool = True

    def run(self, module: ir.Module) -> None:
        for pipeline in kitsune.pipelines(module):
            if not pipeline.is_designed:
                _separate_gathers(pipeline)
                designer = _Designer(pipeline, self.fuse)
                if designer.graph.rows.keys() >= set(designer.graph.ops):
                    designer.run()
                else:
                    _dissolve(pipeline)


def _dissolve(pipeline: kitsune.PipelineOp) -> None:
    """Leaves the operators of an undesigned pipeline around it: those of which some have no rows alone, which have them
    among others only, of which a neighbour has been seen by other rows."""
    remark(pipeline, f"pipeline '{pipeline.label}' runs bulk-synchronously: its operators have no rows in common alone")
    for result in pipeline.result_ops:
        result.results[0].replace_all_uses_with(result.store.operands[0])
        result.operation.erase()
    for op in operations_of(pipeline.block):
        if not isinstance(op.opview, kitsune.StoreOp):
            op.move_before(pipeline.operation)
    pipeline.operation.erase()


def _separate_gathers(pipeline: kitsune.PipelineOp) -> None:
    """Gives whatever reads rows beside a product a gather of its own, where the product's come through shared memory:
    there is no tile of them that a stage could hand on."""
    for op in operations_of(pipeline.block):
        if not is_gather(op) or not streams(op.results[0]):
            continue
        others = [use for use in op.results[0].uses if use.owner.operation.name == "linalg.generic"]
        for use in others:
            use.owner.operands[use.operand_number] = op.clone(ir.InsertionPoint(use.owner)).results[0]


class _Designer:
    """Builds the designed pipeline in front of the undesigned one and takes its place."""

    def __init__(self, old: kitsune.PipelineOp, fuse: bool):
        self.old = old
        self.graph = DataflowGraph(old.block)
        self.fuse = fuse
        self.stores = {hash(store.operands[0]): store for store in old.stores}
        self.queues: dict[int, kitsune.QueueOp] = {}  # intermediate -> queue
        self.flat: dict[tuple[int, int], ir.Value] = {}  # (tensor around the pipeline, row dims) -> row form
        self.stored: set[int] = set()

    def run(self) -> None:
        self.plan = design(self.graph.nodes, self.fuse)
        self.stage_of = {self.graph.ops[node]: i for node, i in self.plan.stage_of().items()}
        with self.old.operation.location:
            with ir.InsertionPoint(self.old):
                self.new = kitsune.PipelineOp(self.old.attributes["sym_name"], kitsune.Outputs.get())
            self.body = self.new.regions[0].blocks.append()
            for stage in self.plan.stages:
                self._stage(stage)
            for result in self.old.result_ops:
                self._result(result)
        self.old.operation.erase()

    def _stage(self, plan: StagePlan) -> None:
        ops = [self.graph.ops[node] for node in plan.nodes]
        with ops[0].location:
            outgoing = [value for op in ops for value in op.results if self._crosses(value, self.stage_of[op])]
            with ir.InsertionPoint(self.body):
                for value in outgoing:
                    self._declare_queue(value)
                stage = kitsune.StageOp(ir.StringAttr.get(plan.name), ir.StringAttr.get(plan.kind))
            with ir.InsertionPoint(stage.regions[0].blocks.append()):
                clones = self._fill(ops)
                for value in outgoing:
                    kitsune.PutOp(self.queues[hash(value)].results[0], clones[value])
                for op in ops:
                    for value in op.results:
                        self._store(op, value, clones[value])
        self._reduce_stages(ops)

    def _fill(self, ops: list[ir.Operation]) -> RowCloner:
        """Gets and loads what the operators read, then their clones on the row tile."""
        cloner = RowCloner(rows.DYNAMIC)
        tiles: dict[tuple[int, int], ir.Value] = {}  # by tensor and how many of its dimensions are rows
        for op in ops:
            reading = rows.operand_rows(op, p) if (p := self.graph.rows[op]) else rows.reduces_rows(op)
            for value, rows_in in zip(op.operands, reading):
                if rows_in and cloner.whole(value) == value and rows.init_of(value).tensor is not None:
                    if (hash(value), rows_in) not in tiles:
                        tiles[hash(value), rows_in] = self._tile(op, value, rows_in)
                    cloner.tiles[hash(value)] = tiles[hash(value), rows_in]
            if cloner.rows == rows.DYNAMIC:
                zero = arith.ConstantOp.create_index(0)
                cloner.rows = tensor.DimOp(next(iter(cloner.tiles.values())), zero).result
            cloner.clone(op, p)
        return cloner

    def _tile(self, op: ir.Operation, value: ir.Value, p: int) -> ir.Value:
        type_ = RowCloner(rows.DYNAMIC).type_of(value.type, p)
        with op.location:
            if (queue := self.queues.get(hash(value))) is not None:
                return kitsune.GetOp(queue.results[0], type_).results[0]
            return kitsune.LoadOp(self._flatten(value, p), type_).results[0]

    def _crosses(self, value: ir.Value, stage: int) -> bool:
        if self.graph.rows[rows.producer(value)] == 0:
            return False
        return any(self.stage_of.get(use.owner.operation, stage) != stage for use in value.uses)

    def _declare_queue(self, value: ir.Value) -> None:
        p = self.graph.rows[rows.producer(value)]
        tile = RowCloner(rows.DYNAMIC).type_of(value.type, p)
        name = ir.StringAttr.get(f"q{len(self.queues)}")
        self.queues[hash(value)] = kitsune.QueueOp(name, kitsune.ring_type(tile, DEPTH))

    def _store(self, op: ir.Operation, value: ir.Value, tile: ir.Value) -> None:
        if self.graph.rows[op] == 0:  # a partial sum: what the reduce stage stores
            with ir.InsertionPoint(tile.owner.parent):  # the queue stands in front of the stage
                name = ir.StringAttr.get(f"q{len(self.queues)}")
                self.queues[hash(value)] = kitsune.QueueOp(name, kitsune.ring_type(value.type, DEPTH))
            kitsune.AccumulateOp(self.queues[hash(value)].results[0], tile)
        elif hash(value) in self.stores:
            kitsune.StoreOp(tile, self.stores[hash(value)].attributes["index"])

    def _reduce_stages(self, ops: list[ir.Operation]) -> None:
        for op in ops:
            if self.graph.rows[op] != 0:
                continue
            value = op.results[0]
            with op.location, ir.InsertionPoint(self.body):
                name = ir.StringAttr.get(f"sum{self.queues[hash(value)].label[1:]}")
                stage = kitsune.StageOp(name, ir.StringAttr.get("simt"))
                with ir.InsertionPoint(stage.regions[0].blocks.append()):
                    total = kitsune.ReduceOp(self.queues[hash(value)].results[0], value.type)
                    kitsune.StoreOp(total.results[0], self.stores[hash(value)].attributes["index"])

    def _flatten(self, value: ir.Value, p: int) -> ir.Value:
        """The whole tensor with its p row dimensions flattened to one."""
        if p == 1:
            return value
        if (hash(value), p) not in self.flat:
            rank = len(rows.shape_of(value))
            groups = [list(range(p)), *([d] for d in range(p, rank))]
            with ir.InsertionPoint(self.new):
                type_ = _flat_type(value.type, p)
                self.flat[hash(value), p] = tensor.CollapseShapeOp(type_, value, groups).result
        return self.flat[hash(value), p]

    def _result(self, result: kitsune.ResultOp) -> None:
        value = result.store.operands[0]
        p = self.graph.rows[rows.producer(value)]
        with result.operation.location, ir.InsertionPoint(result):
            type_ = _flat_type(value.type, p) if p > 1 else value.type
            whole = kitsune.result(self.new.results[0], result.position, type_)
            if p > 1:
                several = rows.shape_of(value)[:p].count(rows.DYNAMIC) > 1
                sizes = self._row_sizes(value, p) if several else _one_open(whole, rows.shape_of(value)[:p])
                whole = _unflatten(whole, value.type, sizes)
        result.results[0].replace_all_uses_with(whole)
        result.operation.erase()

    def _row_sizes(self, value: ir.Value, p: int) -> list[int | ir.Value]:
        """The p leading sizes, read off tensors from around the pipeline where they are open."""
        shape = rows.shape_of(value)[:p]
        if rows.DYNAMIC not in shape:
            return shape
        op = rows.producer(value)
        if op not in self.graph.rows:
            return [tensor.DimOp(value, _index(d)).result if n == rows.DYNAMIC else n for d, n in enumerate(shape)]
        reading = rows.operand_rows(op, p)
        if op.name not in rows.RESHAPES:
            return self._row_sizes(next(v for v, rows_in in zip(op.operands, reading) if rows_in == p), p)
        source = self._row_sizes(op.operands[0], reading[0])
        groups = rows.groups_of(op)
        if op.name == "tensor.collapse_shape":
            return [_product([source[d] for d in group if d < len(source)]) for group in groups[:p]]
        named = iter(list(op.operands)[1:])
        sizes = [next(named) if size == rows.DYNAMIC else size for size in shape]
        for whole, group in zip(source, groups):
            if [shape[d] for d in group].count(rows.DYNAMIC) == 1:
                known = math.prod(shape[d] for d in group if shape[d] != rows.DYNAMIC)
                at = next(d for d in group if shape[d] == rows.DYNAMIC)
                sizes[at] = whole if known == 1 else arith.divui(whole, _index(known))
        return sizes


def _index(number: int) -> ir.Value:
    return arith.ConstantOp.create_index(number).result


def _product(sizes: list[int | ir.Value]) -> int | ir.Value:
    product: int | ir.Value = math.prod(size for size in sizes if isinstance(size, int))
    for size in (size for size in sizes if not isinstance(size, int)):
        product = size if product == 1 else arith.muli(_index(product) if isinstance(product, int) else product, size)
    return product


def _flat_type(type_: ir.Type, p: int) -> ir.RankedTensorType:
    shape = list(ir.RankedTensorType(type_).shape)
    size = rows.DYNAMIC if rows.DYNAMIC in shape[:p] else math.prod(shape[:p])
    return ir.RankedTensorType.get([size, *shape[p:]], ir.RankedTensorType(type_).element_type)


def _one_open(whole: ir.Value, shape: list[int]) -> list[int | ir.Value]:
    """The sizes that dimension 0 of a tensor is split into, at most one of them open: the others say which."""
    if rows.DYNAMIC not in shape:
        return list(shape)
    known = math.prod(size for size in shape if size != rows.DYNAMIC)
    open_size = arith.divui(tensor.DimOp(whole, _index(0)).result, _index(known))
    return [open_size if size == rows.DYNAMIC else size for size in shape]


def _unflatten(whole: ir.Value, type_: ir.Type, sizes: list[int | ir.Value]) -> ir.Value:
    """Splits dimension 0 into the leading sizes of `type_`."""
    shape, p = list(ir.RankedTensorType(type_).shape), len(sizes)
    groups = [list(range(p)), *([d] for d in range(p, len(shape)))]
    return tensor.ExpandShapeOp(type_, whole, groups, [n for n in sizes if not isinstance(n, int)], shape).result
