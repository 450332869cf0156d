"""MLIR files: linalg is taken as it is, the torch dialect is lowered. Works without torch."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence

from kitsune_mlir import mlir, signature, worker
from kitsune_mlir.errors import UnsupportedError, UserError
from kitsune_mlir.mlir import PassManager, ir
from kitsune_mlir.program import Argument, Output, Program

from .lower_torch import FROM_EXPORT, FROM_ONNX, lower_torch
from .tensor_specs import entry_function, spec_of

Symbols = tuple[str | None, ...]

_BYTECODE = b"ML\xefR"
_BYTECODE_SECONDS = 60

# What there is a lowering for.
_DIALECTS = frozenset(
    "affine arith bufferization builtin cf func index kitsune linalg math memref ml_program scf tensor tm_tensor "
    "torch_c ub vector".split()
)


def import_mlir(path: str) -> Program:
    """The Program of MLIR text or bytecode; every argument of its function is an input.

    The function is @main, or the only one there is. Raises UserError when the file does not parse or
    has no such function, UnsupportedError for an operator or an argument type without a lowering.
    """
    name = os.path.basename(path)
    try:
        with open(path, "rb") as file:
            bytecode = file.read(len(_BYTECODE)) == _BYTECODE
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    if bytecode:
        _try_bytecode(path)
    try:
        module = ir.Module.parseFile(path, mlir.context())  # a file, so that locations name it
    except (ir.MLIRError, ValueError, RuntimeError) as error:
        raise UserError(f"{path} is not valid MLIR: {mlir.first_line(error)}") from error
    return program_of(module, name)


def program_of(
    module: ir.Module,
    name: str,
    inputs: Sequence[str] = (),
    results: Sequence[str] = (),
    symbols: Mapping[str, Symbols] | None = None,
) -> Program:
    """The Program of a module in the torch dialect or already in linalg, with names for its values and, by
    input, for their dynamic sizes, if known."""
    pipelines = _pipelines(module)
    if pipelines:
        module = lower_torch(module, name, pipelines)
    function = entry_function(module)
    if function is None:
        raise UserError(f"{name} needs a function @main, or one function only")
    function.attributes["sym_name"] = ir.StringAttr.get("main", module.context)
    _inline(module)
    _check_operators(module, name)
    function = entry_function(module)
    kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    inputs = inputs or [f"arg{i}" for i in range(len(kind.inputs))]
    symbols = symbols or {}
    results = results or [f"result{i}" for i in range(len(kind.results))]
    return Program(
        name,
        module,
        [
            Argument(spec_of(label, type_, symbols.get(label, ())), "input")
            for label, type_ in zip(inputs, kind.inputs, strict=True)
        ],
        [Output(spec_of(label, type_)) for label, type_ in zip(results, kind.results, strict=True)],
        signature.positional(len(inputs), len(results)),
    )


def _inline(module: ir.Module) -> None:
    """Leaves @main alone in the module, with the bodies of what it calls."""
    for op in module.body.operations:
        if op.operation.name == "func.func" and op.attributes["sym_name"].value != "main":
            op.attributes["sym_visibility"] = ir.StringAttr.get("private", module.context)
    with module.context:
        PassManager.parse("builtin.module(inline,symbol-dce)").run(module.operation)


def _check_operators(module: ir.Module, name: str) -> None:
    for op in mlir.walk(module):
        if op.name == "func.call" or op.name.partition(".")[0] not in _DIALECTS:
            raise UnsupportedError(
                f"{name}: {op.name} at {mlir.location(op.location)} has no lowering; bring the model to linalg first"
            )


def _try_bytecode(path: str) -> None:
    """Reads bytecode where it does no harm first: on damaged files MLIR's reader can abort or never end."""
    try:
        worker.call("kitsune_mlir.frontend.mlir_program:read_bytecode", path, _BYTECODE_SECONDS)
    except worker.Died as error:
        raise UserError(f"{path} is damaged MLIR bytecode: write it again") from error


def read_bytecode(path: str) -> None:
    """Reads the file, whatever comes of it. Runs in the worker."""
    with contextlib.suppress(ir.MLIRError, ValueError, RuntimeError):
        ir.Module.parseFile(path, mlir.context())


def _pipelines(module: ir.Module) -> tuple[str, ...]:
    """What lowers the module to linalg; nothing when it has no torch operation."""
    operators = [op for op in mlir.walk(module) if op.name.startswith("torch.")]
    types = (str(op.attributes["function_type"]) for op in mlir.walk(module, "func.func"))
    if any("name" in op.attributes and '"onnx.' in str(op.attributes["name"]) for op in operators):
        return FROM_ONNX
    return FROM_EXPORT if operators or any("!torch." in text for text in types) else ()
