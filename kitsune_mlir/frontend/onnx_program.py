"""ONNX files, through torch-mlir's importer. Initializers become constants of the program."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from kitsune_mlir import mlir
from kitsune_mlir.errors import UnsupportedError, UserError
from kitsune_mlir.program import Program

from .mlir_program import Symbols, program_of

_RIGHT = set(
    "Cast Concat DequantizeLinear Expand Flatten Gather GatherElements GatherND Identity QuantizeLinear Reshape Shape "
    "Slice Split Squeeze Tile Transpose Unsqueeze".split()
)


def import_onnx(path: str) -> Program:
    """The Program of an ONNX model; its graph inputs are the inputs, in order.

    Raises UserError when the file is no valid ONNX, UnsupportedError when the onnx package is not
    installed or an operator has no lowering.
    """
    name = os.path.basename(path)
    try:
        import onnx
    except ImportError as error:
        raise UnsupportedError(f"{name}: ONNX needs the onnx package: pip install kitsune-mlir[onnx]") from error

    importer = mlir.importer("onnx_importer")
    try:
        model = onnx.load(path)
        onnx.checker.check_model(model)
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception as error:
        raise UserError(f"{path} is not a valid ONNX model: {mlir.first_line(error)}") from error

    context = mlir.context()
    info = importer.ModelInfo(model)
    module = info.create_module(context=context)
    try:
        importer.NodeImporter.define_function(info.main_graph, module.operation).import_all()
    except Exception as error:
        raise UnsupportedError(f"{name}: torch-mlir cannot import the graph: {mlir.first_line(error)}") from error
    graph = info.main_graph
    symbols = {label: _symbols(value) for label, value in graph.input_map.items()}
    bytes_ = _uint8(model.graph, name)
    program = program_of(module, name, list(graph.input_map), list(graph.output_map), symbols)
    for value in (*program.arguments, *program.outputs):
        if value.spec.name in bytes_:
            value.spec = replace(value.spec, dtype="u8")  # linalg's 8-bit integers have no sign to tell it by
    return program


def _uint8(graph: Any, name: str) -> set[str]:
    """The values of type uint8. Raises UnsupportedError for arithmetic on them: torch-mlir takes them for signed."""
    from onnx import TensorProto

    types = {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.output, *graph.value_info)}
    types |= {value.name: value.data_type for value in graph.initializer}
    found = {label for label, type_ in types.items() if type_ == TensorProto.UINT8}
    for node in graph.node:
        if found & set(node.input) and node.op_type not in _RIGHT:
            raise UnsupportedError(
                f"{name}: the node '{node.name}' ({node.op_type}) computes with uint8; cast its operands to int32 first"
            )
    return found


def _symbols(value: Any) -> Symbols:
    """The names that the model gives to dynamic sizes of an input."""
    return tuple(size.dim_param or None for size in value.type.tensor_type.shape.dim)
