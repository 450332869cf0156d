"""What kitsune-opt prints besides MLIR: LLVM IR, PTX, plans and drawings of the module as it stands."""

from __future__ import annotations

import json

from kitsune_mlir import drawing, plan
from kitsune_mlir.errors import UserError
from kitsune_mlir.mlir import ir, walk
from kitsune_mlir.planning import target as targets


def text(module: ir.Module, form: str, target: str) -> str:
    """The module as `form` ("llvm", "ptx", "plan" or "dot") for the target of that name or file.

    Raises UserError when the module is not yet what the form shows.
    """
    if form in ("plan", "dot"):
        machine = targets.load(target or "cpu")
        if not walk(module, "kitsune.pipeline"):
            raise UserError(
                f"--emit={form} wants kitsune.pipelines, which --partition-dataflow makes and conversions replace"
            )
        described = plan.describe(plan.partitioned(module, []), plan.pipelines(module), machine)
        return json.dumps(described, indent=2) + "\n" if form == "plan" else drawing.dot(described)
    from kitsune_mlir.codegen import ptx

    found = walk(module, "gpu.module")
    if not found:
        raise UserError(f"--emit={form} wants a gpu.module, which --convert-kitsune-to-gpu makes")
    machine = targets.load(target or "sm_90a")
    emit = ptx.to_llvm if form == "llvm" else ptx.to_ptx
    return "\n".join(emit(kernels, machine) for kernels in found)
