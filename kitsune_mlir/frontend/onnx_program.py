"""ONNX files, through torch-mlir's importer. Initializers become constants of the program."""

from __future__ import annotations

import os
from typing import Any

from kitsune_mlir import mlir
from kitsune_mlir.errors import UnsupportedError, UserError
from kitsune_mlir.program import Program

from .mlir_program import Symbols, program_of


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
    return program_of(module, name, list(graph.input_map), list(graph.output_map), symbols)


def _symbols(value: Any) -> Symbols:
    """The names that the model gives to dynamic sizes of an input."""
    return tuple(size.dim_param or None for size in value.type.tensor_type.shape.dim)
