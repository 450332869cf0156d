"""One stage of a placed pipeline as a function on row tiles, for the CPU runtime to call."""

from __future__ import annotations

from typing import Any

from kitsune_mlir import rows
from kitsune_mlir.codegen import cpu_bounds
from kitsune_mlir.contraction import NAMES, Contraction, is_zero_filled, match_product
from kitsune_mlir.cpu_symbols import PANELS, PRODUCT, STAGE, row_bytes
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.generics import elementwise
from kitsune_mlir.mlir import arith, func, ir, linalg, tensor, walk
from kitsune_mlir.operations import element_type, end_of

from .cpu_pipeline import PipelineArguments, declare, unique


class StageBuilder:
    """Builds the function from the stage's results back to its operands, so that nothing dead comes along."""

    def __init__(self, pipeline: kitsune.PipelineOp, stage: kitsune.StageOp, arguments: PipelineArguments):
        self.stage, self.arguments, self.module = stage, arguments, arguments.module
        self.queues = {hash(queue.results[0]): i for i, queue in enumerate(pipeline.queues)}
        self.tile_rows = pipeline.tile_rows
        self.function = declare(self.module, unique(self.module, f"{pipeline.label}.{stage.label}"), [], [])
        self.block = self.function.add_entry_block()
        self.values: dict[int, ir.Value] = {}  # by the original's key
        self.inputs: dict[tuple, ir.Value] = {}  # by operand: (kind, index, bytes of a row)
        self.streamed: set[int] = set()  # originals that hold this tile's rows

    def build(self) -> dict[str, Any]:
        """Fills the function and describes the stage: symbol, role, replicas, operands in pointer order
        (kind, index of the argument, queue or output, bytes of a row)."""
        outputs, results = [], []
        self._find_streamed()
        with ir.InsertionPoint(self.block):
            for op in self.stage.block.operations:
                if (output := self._output(op.operation.opview)) is not None:
                    outputs.append(output)
                    results.append(self._value(op.operation.opview.tile))
            func.ReturnOp(results)
        types = [argument.type for argument in self.block.arguments], [value.type for value in results]
        self.function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*types))
        self.function.attributes[STAGE] = ir.UnitAttr.get()
        return {
            "name": self.stage.label,
            "symbol": self.function.name.value,
            "role": self.stage.role or 0,
            "replicas": self.stage.replicas or 1,
            "operands": [list(operand) for operand in (*self.inputs, *outputs)],
        }

    def _output(self, op: ir.OpView) -> tuple | None:
        if isinstance(op, kitsune.PutOp):
            return "put", self.queues[hash(op.operands[0])], 0
        if isinstance(op, kitsune.AccumulateOp):
            return "accumulate", self.queues[hash(op.operands[0])], 0
        if isinstance(op, kitsune.StoreOp):
            if self.stage.fires_once:
                return "whole", op.position, 0
            return "store", op.position, row_bytes(op.tile.type)
        return None

    def _find_streamed(self) -> None:
        for op in self.stage.block.operations:
            opens = isinstance(op.operation.opview, kitsune.LoadOp | kitsune.GetOp)
            if opens or any(hash(value) in self.streamed for value in rows.used_values(op.operation)):
                self.streamed.update(hash(result) for result in op.operation.results)

    def _input(self, operand: tuple, kind: ir.Type) -> ir.Value:
        if operand not in self.inputs:
            self.inputs[operand] = self.block.add_argument(kind, self.function.location)
        return self.inputs[operand]

    def _value(self, value: ir.Value) -> ir.Value:
        """The value in the function that stands for one in or around the stage; made when first needed."""
        key = hash(value)
        if key not in self.values:
            op = rows.producer(value)
            inside = op is not None and kitsune.parent_of(op, kitsune.StageOp.OPERATION_NAME) is not None
            if inside:
                with op.location:
                    self._build(op)
            else:
                self.values[key] = self._captured(value, op)
        return self.values[key]

    def _captured(self, value: ir.Value, op: ir.Operation | None) -> ir.Value:
        if op is not None and op.name in ("arith.constant", "tensor.empty") and not list(op.operands):
            return op.clone(ir.InsertionPoint.current).results[0]
        if isinstance(value.type, ir.RankedTensorType):
            if not value.type.has_static_shape:
                raise UnsupportedError(
                    f"stage '{self.stage.label}' keeps a tensor of type {value.type} at hand, and the CPU target wants"
                    " resident tensors of fixed shape; compile the model with that dimension fixed"
                )
            return self._input(("resident", self.arguments.position(value), 0), value.type)
        kind = ir.RankedTensorType.get([], value.type)
        return tensor.extract(self._input(("resident", self.arguments.scalar_position(value), 0), kind), [])

    def _build(self, op: ir.Operation) -> None:
        """Makes the results of an operation of the stage."""
        view = op.opview
        if isinstance(view, kitsune.LoadOp):
            position = self.arguments.position(op.operands[0])
            self.values[hash(op.results[0])] = self._input(
                ("load", position, row_bytes(op.results[0].type)), op.results[0].type
            )
        elif isinstance(view, kitsune.GetOp | kitsune.ReduceOp):
            kind = "get" if isinstance(view, kitsune.GetOp) else "reduce"
            operand = kind, self.queues[hash(op.operands[0])], 0
            self.values[hash(op.results[0])] = self._input(operand, op.results[0].type)
        elif (found := self._resident_product(op)) is not None:
            self.values[hash(op.results[0])] = self._multiply(found, op.results[0].type)
        else:
            self._clone(op)

    def _clone(self, op: ir.Operation) -> None:
        for value in rows.used_values(op):
            self._value(value)
        new = op.clone(ir.InsertionPoint.current)
        for inner in walk(new):
            for i, value in enumerate(inner.operands):
                if (known := self.values.get(hash(value))) is not None:
                    inner.operands[i] = known
        if new.name == "linalg.generic":
            cpu_bounds.clamp_gathers(new)
        if self._sums_rows(op):
            self._leave_out_invalid_rows(new)
        for old, result in zip(op.results, new.results, strict=True):
            self.values[hash(old)] = result

    def _resident_product(self, op: ir.Operation) -> Contraction | None:
        """A product whose right operand is the same for all tiles and whose sum starts at zero."""
        found = match_product(op) if op.name in NAMES else None
        if found is None or not is_zero_filled(found.init) or "b" in found.left_roles or self._sums_rows(op):
            return None
        if self.arguments.has_few_rows:
            return None  # packing would cost more than it saves
        owner = rows.producer(found.right)
        inside = owner is not None and kitsune.parent_of(owner, kitsune.StageOp.OPERATION_NAME) is not None
        return None if inside or op.results[0].type.element_type.width < 32 else found

    def _multiply(self, found: Contraction, result: ir.RankedTensorType) -> ir.Value:
        position = self.arguments.packed_position(found.right, found.right_roles, result.element_type)
        packed = self._input(("resident", position, 0), self.arguments.values[position].type)
        left = self._value(found.left)
        name = unique(self.module, "packed_product")
        function = declare(self.module, name, [left.type, packed.type], [result])
        roles = [[ir.StringAttr.get(role) for role in side] for side in (found.left_roles, PANELS)]
        function.attributes[PRODUCT] = ir.ArrayAttr.get([ir.ArrayAttr.get(side) for side in roles])
        return func.CallOp(function, [left, packed]).result

    def _sums_rows(self, op: ir.Operation) -> bool:
        """Whether `op` sums over this tile's rows, some of which lie past the end in the last tile."""
        streams = any(hash(value) in self.streamed for value in op.operands)
        return streams and rows.reduces_rows(op) is not None and not self.stage.fires_once

    def _leave_out_invalid_rows(self, op: ir.Operation) -> None:
        """Makes a sum over the tile's rows stop at the last valid one."""
        count = ir.RankedTensorType.get([], ir.IntegerType.get_signless(64))
        valid = self._input(("valid", 0, 0), count)
        with ir.InsertionPoint(op):
            stop = arith.index_cast(ir.IndexType.get(), tensor.extract(valid, []))
        if op.name == "linalg.matmul":
            for i in range(2):
                with ir.InsertionPoint(op):
                    op.operands[i] = self._zero_rows(op.operands[i], self._summed_dimension(op, i), stop)
            return
        loop = rows.Structured(op).iterators.index("reduction")
        end = end_of(op.regions[0].blocks[0])
        before = op.regions[0].blocks[0].arguments[len(op.operands) - 1]
        with ir.InsertionPoint(end):
            inside = arith.cmpi(arith.CmpIPredicate.slt, linalg.IndexOp(loop).result, stop)
            end.operands[0] = arith.select(inside, end.operands[0], before)

    def _summed_dimension(self, op: ir.Operation, operand: int) -> int:
        structured = rows.Structured(op)
        loop = structured.iterators.index("reduction")
        return [expr.position for expr in structured.maps[operand].results].index(loop)

    def _zero_rows(self, value: ir.Value, dimension: int, stop: ir.Value) -> ir.Value:
        def element(x: ir.Value) -> ir.Value:
            nothing = arith.constant(x.type, 0 if isinstance(x.type, ir.IntegerType) else 0.0)
            inside = arith.cmpi(arith.CmpIPredicate.slt, linalg.IndexOp(dimension).result, stop)
            return arith.select(inside, x, nothing)

        return elementwise([value], element_type(value), element)
