"""gpu.module -> PTX, in a process (`kitsune_mlir.worker`) that may die without taking the caller along."""

from __future__ import annotations

import tempfile

from kitsune_mlir import worker
from kitsune_mlir.errors import InternalError
from kitsune_mlir.mlir import bytecode, ir
from kitsune_mlir.planning.target import Target

from . import kept_code


def to_ptx(gpu_module: ir.Operation, target: Target) -> str:
    """PTX text of a gpu.module in the gpu, nvgpu, nvvm, llvm, scf, memref, vector, arith and math dialects.

    Raises InternalError, with the path of a reproducer, when it does not lower.
    """
    if kept_code.folder() is None:
        return _emit(gpu_module, target, "ptx")
    key = kept_code.key_of(kept_code.generator(), target.chip, target.ptx_features, bytecode(gpu_module))
    if (kept := kept_code.find(key)) is not None:
        return kept[0].decode()
    text = _emit(gpu_module, target, "ptx")
    kept_code.keep(key, text.encode())
    return text


def to_llvm(gpu_module: ir.Operation, target: Target) -> str:
    """LLVM IR text of a gpu.module, before LLVM's optimiser. Raises as `to_ptx`."""
    return _emit(gpu_module, target, "llvm")


def _emit(gpu_module: ir.Operation, target: Target, emit: str) -> str:
    request = {"module": bytecode(gpu_module), "chip": target.chip, "features": target.ptx_features, "emit": emit}
    try:
        answer = worker.call("kitsune_mlir.codegen.ptx_worker:answer", request)
    except worker.Died as death:
        reason = f"the code generator died on it ({death})"
    else:
        if "text" in answer:
            return answer["text"]
        reason = answer["error"]
    name = gpu_module.operation.attributes["sym_name"]
    raise InternalError(
        f"gpu.module {name} does not lower to {emit} for {target.name}: {reason}", _reproducer(gpu_module, target, emit)
    )


def _reproducer(gpu_module: ir.Operation, target: Target, emit: str) -> str:
    body = gpu_module.operation.get_asm(enable_debug_info=True)  # errors then name the model's line
    text = f"module attributes {{gpu.container_module}} {{\n{body}\n}}\n"
    with tempfile.NamedTemporaryFile("w", prefix="kitsune-", suffix=".mlir", delete=False) as file:
        file.write(f"// kitsune-opt --emit={emit} --target={target.name} {file.name}\n{text}")
    return file.name
