"""Element types and sizes of tensors, as MLIR writes them, in the names that programs use."""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import end_of
from kitsune_mlir.program import ELEMENT_TYPES, TensorSpec

_NAMES = {text: name for name, (text, _) in ELEMENT_TYPES.items() if name != "u8"} | {"ui8": "u8", "si8": "i8"}


def spec_of(name: str, type_: ir.Type, symbols: Sequence[str | None] = ()) -> TensorSpec:
    """The spec of a ranked tensor type, its dynamic sizes named by `symbols`.

    Raises UnsupportedError for any other type or element type.
    """
    if not isinstance(type_, ir.RankedTensorType):
        raise UnsupportedError(f"{name} has the type {type_}; only ranked tensors can cross a program's boundary")
    element = str(type_.element_type)
    if element not in _NAMES:
        raise UnsupportedError(f"{name} has elements of type {element}; use one of {', '.join(ELEMENT_TYPES)}")
    shape = tuple(None if type_.is_dynamic_dim(i) else type_.get_dim_size(i) for i in range(type_.rank))
    return TensorSpec(name, _NAMES[element], shape, tuple(symbols))


def entry_function(module: ir.Module) -> ir.Operation | None:
    """The func.func named main, or the only one with a body; None when there is neither."""
    functions = [op for op in module.body.operations if op.operation.name == "func.func" and op.regions[0].blocks]
    named = [function for function in functions if ir.StringAttr(function.attributes["sym_name"]).value == "main"]
    found = named or functions
    return found[0].operation if len(found) == 1 else None


def retype(function: ir.Operation) -> None:
    """Gives a function the type that its block's arguments and what it returns have."""
    block = function.regions[0].blocks[0]
    inputs = [argument.type for argument in block.arguments]
    results = [value.type for value in end_of(block).operands]
    with function.context:
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))
        for name, count in (("arg_attrs", len(inputs)), ("res_attrs", len(results))):
            if name in function.attributes:
                known = list(ir.ArrayAttr(function.attributes[name]))[:count]
                missing = [ir.DictAttr.get({})] * (count - len(known))
                function.attributes[name] = ir.ArrayAttr.get(known + missing)
