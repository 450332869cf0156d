"""Builds a run of consecutive stages of a designed pipeline as a pipeline of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kitsune_mlir import rows
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.mlir import clone_on, in_block_order, ir


class PipelineRun:
    """Builds `stages` of the pipeline `old` as the new pipeline `name`, at the insertion point, with the results of
    it. A queue that comes in is loaded from `wholes`, by the key of the queue; one that goes out, whatever else it
    does, is stored as a tensor of `row_count` rows that `wholes` then holds. `old` is not changed."""

    def __init__(
        self,
        old: kitsune.PipelineOp,
        stages: Sequence[kitsune.StageOp],
        name: str,
        row_count: int,
        wholes: dict[int, ir.Value],
    ):
        self.members = {stage.label for stage in stages}
        self.row_count, self.wholes = row_count, wholes
        self.values: dict[ir.Value, ir.Value] = {}
        self.stored: list[_Stored] = []
        self.replacements: list[tuple[kitsune.ResultOp, ir.Value]] = []  # results of `old` and what takes their place
        with old.operation.location:
            self.pipeline = kitsune.PipelineOp(ir.StringAttr.get(name), kitsune.Outputs.get())
        with ir.InsertionPoint(self.pipeline.regions[0].blocks.append()):
            for queue in in_block_order(_filled(stages)):
                if any(map(self._holds, queue.opview.consumers)):
                    self._clone(queue)
            for stage in stages:
                self._stage(stage)
        self._results(old)

    def _holds(self, stage: kitsune.StageOp) -> bool:
        return stage.label in self.members

    def _clone(self, op: ir.Operation) -> ir.Operation:
        """Clones an operation with its regions, whatever it names of `old` replaced."""
        return clone_on(op, self.values)

    def _stage(self, old: kitsune.StageOp) -> None:
        with old.operation.location:
            stage = kitsune.StageOp(old.attributes["sym_name"], old.attributes["kind"])
        with ir.InsertionPoint(stage.regions[0].blocks.append()):
            for op in old.block.operations:
                self._operation(op.operation)

    def _operation(self, op: ir.Operation) -> None:
        view = op.opview
        with op.location:
            if isinstance(view, kitsune.StoreOp):
                self._store(op.operands[0]).positions.append(view.position)
            elif isinstance(view, kitsune.GetOp) and op.operands[0] not in self.values:
                whole = self.wholes[hash(op.operands[0])]
                self.values[op.results[0]] = kitsune.LoadOp(whole, op.results[0].type).results[0]
            elif isinstance(view, kitsune.PutOp):
                queue, tile = op.operands
                if queue in self.values:
                    self._clone(op)
                if not all(map(self._holds, rows.producer(queue).opview.consumers)):
                    self._store(tile).queues.append(queue)
            else:
                self._clone(op)

    def _store(self, tile: ir.Value) -> _Stored:
        """Stores a tile once, however many ask for it."""
        for stored in self.stored:
            if stored.tile == tile:
                return stored
        i64 = ir.IntegerType.get_signless(64)
        kitsune.StoreOp(self.values[tile], ir.IntegerAttr.get(i64, len(self.stored)))
        self.stored.append(_Stored(tile))
        return self.stored[-1]

    def _results(self, old: kitsune.PipelineOp) -> None:
        taken = old.result_ops
        for index, stored in enumerate(self.stored):
            results = [result for result in taken if result.position in stored.positions]
            if not results and not stored.queues:
                continue
            type_ = results[0].results[0].type if results else whole_type(stored.tile.type, self.row_count)
            origin = results[0].operation if results else old.operation
            with origin.location:
                new = kitsune.result(self.pipeline.results[0], index, type_)
            self.replacements += [(result, new) for result in results]
            self.wholes.update((hash(queue), new) for queue in stored.queues)


@dataclass
class _Stored:
    """A tile that leaves: as outputs of the old pipeline, by position, through queues, or both."""

    tile: ir.Value
    positions: list[int] = field(default_factory=list)
    queues: list[ir.Value] = field(default_factory=list)


def _filled(stages: Sequence[kitsune.StageOp]) -> set[ir.Operation]:
    """The queues that stages put tiles or partial sums into."""
    return {rows.producer(op.operands[0]) for stage in stages for op in (*stage.puts, *stage.accumulates)}


def whole_type(tile: ir.Type, row_count: int) -> ir.RankedTensorType:
    """The tensor of all rows that a tile is of."""
    kind = ir.RankedTensorType(tile)
    return ir.RankedTensorType.get([row_count, *list(kind.shape)[1:]], kind.element_type)
