"""partition-dataflow: convex groups of operators that stream the same rows become pipelines.

    %h = linalg.matmul ins(%x, %w0) ...            %p = "kitsune.pipeline"() ({
    %a = linalg.generic (bias, ReLU) ins(%h) ...     %h = linalg.matmul ins(%x, %w0) ...
    %y = linalg.matmul ins(%a, %w1) ...       =>     %a = linalg.generic ins(%h) ...
    return %y                                        %y = linalg.matmul ins(%a, %w1) ...
                                                     "kitsune.store"(%y) {index = 0 : i64}
                                                   }) {sym_name = "pipeline0"}
                                                   %r = "kitsune.result"(%p) {index = 0 : i64}
                                                   return %r

The module is brought into the form of `prepare-linalg` first. Operators that stay outside are named in
remarks with the reason. Paper: section 5.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kitsune_mlir import rows
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.dialects.checks import constant
from kitsune_mlir.mlir import ir, remark, replace_op, run_passes, walk
from kitsune_mlir.operations import operations_of
from kitsune_mlir.planning.graph import Group
from kitsune_mlir.planning.partition import partition

from .base import ModulePass
from .dataflow_graph import DataflowGraph
from .prepare_linalg import PrepareLinalg

# Sizes are computed from the function's arguments, so that none waits for an operator.
_DIMS = "builtin.module(resolve-ranked-shaped-type-result-dims,canonicalize,cse)"


@dataclass(frozen=True)
class PartitionDataflow(ModulePass):
    """min_products: the fewest matrix products that make a pipeline worth its queues. min_summed: the fewest rows that
    CTAs take parts of, where a product sums over them."""

    name: ClassVar[str] = "partition-dataflow"
    min_products: int = 1
    min_summed: int = 32768

    def run(self, module: ir.Module) -> None:
        PrepareLinalg().run(module)  # idempotent; so the pass takes linalg from anywhere
        with module.context:
            _ask_early(module)
        run_passes(module, _DIMS)
        for function in module.body.operations:
            if function.operation.name == "func.func" and not function.is_external:
                self._run_on_block(function.body.blocks[0])

    def _run_on_block(self, block: ir.Block) -> None:
        graph = DataflowGraph(block, self.min_summed)
        result = partition(graph.nodes, self.min_products)
        _reorder(graph, result.groups)
        for number, group in enumerate(result.groups):
            _Outliner(graph, group).outline(f"pipeline{number}")
        erased = _erase_dead(graph)
        for index, reason in sorted(result.declined.items()):
            if index not in erased:
                remark(graph.ops[index], f"stays outside pipelines: {reason}")


def _ask_early(module: ir.Module) -> None:
    """Has open sizes asked of what these operators were told, which MLIR does not know how to ask, such as scans."""
    for op in walk(module, "tensor.dim"):
        value, axis = op.operands[0], constant(op.operands[1])
        if axis is None:
            continue
        found = rows.source_of_size(value, axis)
        if isinstance(found, ir.Value):
            replace_op(op, found)
        elif found != (value, axis):
            with op.location, ir.InsertionPoint(op):
                replace_op(op, rows.size_of(value, axis))


def _reorder(graph: DataflowGraph, groups: list[Group]) -> None:
    """Moves operations so that every group stands together; possible because groups are convex."""
    operations = operations_of(graph.block)
    position = {op: i for i, op in enumerate(operations)}
    unit = {op: i for i, op in enumerate(operations)}
    for group in groups:
        members = [position[graph.ops[index]] for index in group.nodes]
        for member in members:
            unit[operations[member]] = members[0]
    waits: dict[int, set[int]] = {}
    for op in operations:
        own = waits.setdefault(unit[op], set())
        for value in rows.used_values(op):
            source = rows.producer(value)
            if source in unit and unit[source] != unit[op]:
                own.add(unit[source])
    order: list[int] = []
    done: set[int] = set()
    pending = sorted(waits)
    while pending:
        ready = next(u for u in pending if waits[u] <= done)
        pending.remove(ready)
        order.append(ready)
        done.add(ready)
    members_of: dict[int, list[ir.Operation]] = {}
    for op in operations:
        members_of.setdefault(unit[op], []).append(op)
    sequence = [op for u in order for op in members_of[u]]
    for earlier, later in zip(sequence, sequence[1:]):
        later.move_after(earlier)


class _Outliner:
    """Moves one group into a pipeline of its own."""

    def __init__(self, graph: DataflowGraph, group: Group):
        self.ops = [graph.ops[index] for index in group.nodes]
        self.inside = {op.results[0] for op in self.ops}  # the hash of an operation changes with its operands

    def outline(self, name: str) -> None:
        self._leave_views()
        first = self.ops[0]
        with first.location, ir.InsertionPoint(first):
            pipeline = kitsune.PipelineOp(ir.StringAttr.get(name), kitsune.Outputs.get())
            body = pipeline.regions[0].blocks.append()
        outputs = self._outputs()
        last = self.ops[-1]
        pipeline.operation.move_before(last)
        for op in self.ops:
            ir.InsertionPoint(body).insert(op.detach_from_parent())
        for op in self.ops:
            self._localise(op)
        anchor = pipeline
        with first.location:
            for index, value in enumerate(outputs):
                outside = [use for use in value.uses if self._outside(use)]
                with ir.InsertionPoint(body):
                    kitsune.StoreOp(value, _i64(index))
                with ir.InsertionPoint.after(anchor):
                    taken = kitsune.result(pipeline.results[0], index, value.type)
                anchor = taken.owner
                for use in outside:
                    use.owner.operands[use.operand_number] = taken

    def _leave_views(self) -> None:
        """Views of what comes from outside stay there where others use them too, and are not stored again."""
        for op in list(self.ops):
            if op.name not in rows.RESHAPES:
                continue
            source = rows.producer(op.operands[0])
            of_outside = source is None or not self._is_inside(source)
            if of_outside and len(self.ops) > 1 and any(self._outside(use) for use in op.results[0].uses):
                if op != self.ops[0]:
                    op.move_before(self.ops[0])
                self.ops.remove(op)
                self.inside.remove(op.results[0])

    def _outputs(self) -> list[ir.Value]:
        """Results that are used outside the group."""
        return [value for op in self.ops for value in op.results if any(self._outside(use) for use in value.uses)]

    def _is_inside(self, op: ir.Operation) -> bool:
        return len(op.results) > 0 and op.results[0] in self.inside

    def _outside(self, use: ir.OpOperand) -> bool:
        owner = use.owner.operation
        while owner is not None and not self._is_inside(owner):
            owner = owner.parent.operation if owner.parent is not None else None
        return owner is None

    def _localise(self, op: ir.Operation) -> None:
        """Gives `op` initial values of its own."""
        for i, value in enumerate(op.operands):
            source = rows.producer(value)
            if source is None or self._is_inside(source):
                continue
            if source.name == "linalg.fill":
                empty = rows.producer(source.operands[1])
                clone = source.clone(ir.InsertionPoint(op))
                if empty is not None and empty.name == "tensor.empty":
                    clone.operands[1] = empty.clone(ir.InsertionPoint(clone)).results[0]
                op.operands[i] = clone.results[0]
            elif source.name == "tensor.empty":
                op.operands[i] = source.clone(ir.InsertionPoint(op)).results[0]


def _erase_dead(graph: DataflowGraph) -> set[int]:
    """Erases what only pipelines used and now hold copies of, and folded transpositions; the nodes."""
    numbers = {hash(op.results[0]): number for number, op in enumerate(graph.ops)}
    erased = set()
    for op in reversed(operations_of(graph.block)):
        if op.name in (*rows.SUPPORT, *rows.STRUCTURED) and not any(list(result.uses) for result in op.results):
            if op.results and (number := numbers.get(hash(op.results[0]))) is not None:
                erased.add(number)
            op.erase()
    return erased


def _i64(value: int) -> ir.IntegerAttr:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
