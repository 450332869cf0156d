"""Large constants outside of a module while it is lowered: they would only be copied, which takes longer than the rest.

func @main(%x) { %w = torch.vtensor.literal(dense_resource<w>) ... }
func @main(%x, %w) { ... }                                              after `lift`
func @main(%x) { %w = arith.constant dense_resource<w> ... }            lowered, after `put_back`
"""

from __future__ import annotations

import math

from kitsune_mlir import mlir
from kitsune_mlir.mlir import ir

from .tensor_specs import entry_function, retype

_LARGE_BYTES = 1 << 16
_HOLDERS = ("torch.operator", "torch.vtensor.literal")  # the first is what the ONNX importer makes

Constants = list[tuple[ir.Attribute, ir.Location]]


def lift(module: ir.Module) -> tuple[ir.Module, Constants]:
    """A copy of the module with its large constants of floats as arguments after the others, and these constants."""
    module = mlir.clone(module)
    function = entry_function(module)
    if function is None:
        return module, []
    block = function.regions[0].blocks[0]
    constants: Constants = []
    for op in list(block.operations):
        value = _large_value(op.operation)
        if value is not None:
            constants.append((value, op.location))
            op.results[0].replace_all_uses_with(block.add_argument(op.results[0].type, op.location))
            op.operation.erase()
    if constants:
        retype(function)
    return module, constants


def put_back(module: ir.Module, constants: Constants) -> None:
    """Makes the last arguments constants again, now in linalg."""
    if not constants:
        return
    function = entry_function(module)
    block = function.regions[0].blocks[0]
    first = len(block.arguments) - len(constants)
    for argument, (value, location) in zip(list(block.arguments)[first:], constants, strict=True):
        with location, ir.InsertionPoint.at_block_begin(block):
            constant = ir.Operation.create("arith.constant", [argument.type], attributes={"value": value})
        argument.replace_all_uses_with(constant.result)
    for _ in constants:
        block.erase_argument(first)
    retype(function)


def _large_value(op: ir.Operation) -> ir.Attribute | None:
    if op.name not in _HOLDERS or len(op.operands) or len(op.results) != 1:
        return None
    return next((op.attributes[name] for name in op.attributes if _is_large(op.attributes[name])), None)


def _is_large(attribute: ir.Attribute) -> bool:
    kind = attribute.type
    if not isinstance(kind, ir.RankedTensorType) or not isinstance(kind.element_type, ir.FloatType):
        return False
    if isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat:
        return False  # one number, which passes may fold
    return math.prod(kind.shape) * kind.element_type.width >= _LARGE_BYTES * 8
