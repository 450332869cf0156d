"""The arguments and results of a pipeline as a call, collected while its stages are built."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from kitsune_mlir.contraction import Roles
from kitsune_mlir.cpu_symbols import FEW_ROWS, PACK, STAGE, panel_width
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.mlir import func, ir, linalg, tensor


class PipelineArguments:
    """Gives every value from around the pipeline a place among the call's arguments.

    What has to be made of such a value first, a packed weight say, is made in front of the pipeline.
    """

    def __init__(self, module: ir.Module, pipeline: kitsune.PipelineOp):
        self.module, self.pipeline = module, pipeline
        self.values: list[ir.Value] = []
        self._positions: dict[Hashable, int] = {}

    @property
    def rows_of(self) -> int:
        """The place of a streamed argument: its dimension 0 is the pipeline's rows."""
        return self.position(self._first_load.operands[0])

    @property
    def has_few_rows(self) -> bool:
        """Whether the pipeline streams no more rows than a product wants to pack its weights for."""
        count = ir.RankedTensorType(self._first_load.operands[0].type).shape[0]
        return 0 <= count <= FEW_ROWS  # a dynamic size is negative

    def position(self, value: ir.Value) -> int:
        """The place of a tensor, as it is."""
        return self._place(hash(value), lambda: value)

    def scalar_position(self, value: ir.Value) -> int:
        """The place of a scalar, which travels as a tensor without dimensions."""
        kind = ir.RankedTensorType.get([], value.type)
        return self._place(hash(value), lambda: tensor.FromElementsOp(kind, [value]).result)

    def packed_position(self, right: ir.Value, roles: Roles, element: ir.Type) -> int:
        """The place of a product's right operand in panels of `element`."""
        return self._place((hash(right), roles, str(element)), lambda: self._pack(right, roles, element))

    def output_type(self, store: kitsune.StoreOp) -> ir.RankedTensorType:
        """The whole tensor of an output."""
        tile = ir.RankedTensorType(store.operands[0].type)
        if kitsune.parent_of(store, kitsune.StageOp.OPERATION_NAME).opview.fires_once:
            return tile
        rows = ir.RankedTensorType(self._first_load.operands[0].type).shape[0]
        return ir.RankedTensorType.get([rows, *tile.shape[1:]], tile.element_type)

    def adder(self, tile: ir.RankedTensorType) -> str:
        """The name of a stage function that adds two tensors; made when first asked for."""
        name = "add_" + "x".join(map(str, [*tile.shape, tile.element_type]))
        if name not in symbols(self.module):
            function = declare(self.module, name, [tile, tile], [tile])
            function.attributes[STAGE] = ir.UnitAttr.get()
            with ir.InsertionPoint(function.add_entry_block()):
                out = tensor.empty(tile.shape, tile.element_type)
                func.ReturnOp([linalg.add(*function.arguments, outs=[out])])
        return name

    @property
    def _first_load(self) -> kitsune.LoadOp:
        return next(load for stage in self.pipeline.stages for load in stage.loads)

    def _place(self, key: Hashable, make: Callable[[], ir.Value]) -> int:
        if key not in self._positions:
            with ir.InsertionPoint(self.pipeline):
                self.values.append(make())
            self._positions[key] = len(self.values) - 1
        return self._positions[key]

    def _pack(self, right: ir.Value, roles: Roles, element: ir.Type) -> ir.Value:
        sizes = dict(zip(roles, ir.RankedTensorType(right.type).shape, strict=True))
        width = panel_width(element.width)
        packed = ir.RankedTensorType.get([-(-sizes["n"] // width), sizes["k"], width], element)
        function = declare(self.module, unique(self.module, "pack"), [right.type], [packed])
        function.attributes[PACK] = ir.ArrayAttr.get([ir.StringAttr.get(role) for role in roles])
        return func.CallOp(function, [right]).result


def declare(module: ir.Module, name: str, inputs: list[ir.Type], results: list[ir.Type]) -> func.FuncOp:
    """A private function at the top of the module, without a body yet."""
    top = ir.InsertionPoint.at_block_begin(module.body)
    return func.FuncOp(name, (inputs, results), visibility="private", ip=top)


def symbols(module: ir.Module) -> set[str]:
    """Every symbol at the top of the module."""
    names = [op.attributes["sym_name"] for op in module.body.operations if "sym_name" in op.attributes]
    return {name.value for name in names}


def unique(module: ir.Module, name: str) -> str:
    """A symbol that nothing at the top of the module has yet: `name`, or `name` and a number."""
    taken, found, count = symbols(module), name, 0
    while found in taken:
        count += 1
        found = f"{name}_{count}"
    return found
