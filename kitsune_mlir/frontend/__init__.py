"""Front ends: one file for each kind of model, one function for all of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from kitsune_mlir import worker
from kitsune_mlir.errors import UserError
from kitsune_mlir.program import Program

__all__ = ["import_model"]


def import_model(
    model: Any,
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    dtype: str | None = None,
) -> Program:
    """A model of any supported kind as a Program.

    `model` is an nn.Module (with example `args` and `kwargs`), an ExportedProgram, the path of a .pt2, .onnx or .mlir
    file, or "module:function" / "file.py:function" that returns (nn.Module, args[, dynamic_shapes]).
    `dynamic_shapes` is torch.export's. `dtype` ("f32", "bf16", ...) casts a copy of an nn.Module and its
    floating-point arguments before the export.

    Raises UserError for a model that cannot be found, read or traced, UnsupportedError for one that
    torch-mlir cannot lower.
    """
    if isinstance(model, os.PathLike):
        model = os.fspath(model)
    if not (isinstance(model, str) and model.endswith((".mlir", ".mlirbc"))):  # those are mostly in linalg
        worker.warm_up()  # torch is imported meanwhile, and the model exported
    if not isinstance(model, str):
        from .torch_model import import_torch

        return import_torch(model, args, kwargs, dynamic_shapes=dynamic_shapes, dtype=dtype)
    if ":" in model and not os.path.exists(model):
        from .model_spec import load_model
        from .torch_model import import_torch

        module, example, shapes = load_model(model)
        example = example if args is None else args
        shapes = dynamic_shapes or shapes
        return import_torch(module, example, kwargs, dynamic_shapes=shapes, dtype=dtype, name=model)
    if dtype is not None or dynamic_shapes is not None:
        raise UserError(f"{model}: a model read from a file has its shapes and types already; export it with others")
    return _import_file(model)


def _import_file(path: str) -> Program:
    if not os.path.isfile(path):
        raise UserError(f"there is no model file '{path}': give a .pt2, .onnx or .mlir file, or module:function")
    suffix = os.path.splitext(path)[1]
    if suffix == ".pt2":
        from .torch_model import import_pt2

        return import_pt2(path)
    if suffix == ".onnx":
        from .onnx_program import import_onnx

        return import_onnx(path)
    if suffix in (".mlir", ".mlirbc"):
        from .mlir_program import import_mlir

        return import_mlir(path)
    raise UserError(f"'{path}' is no model file: its name must end in .pt2, .onnx or .mlir")
