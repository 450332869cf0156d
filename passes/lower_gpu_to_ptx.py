"""Generates PTX: each gpu.module becomes a gpu.binary.

    gpu.module @kernels attributes {kitsune.launch = "..."} { gpu.func @scale(...) kernel { ... } }

becomes

    gpu.binary @kernels <#gpu.select_object<0>> {kitsune.launch = "..."}
        [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".version 8.6 ...">]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kitsune_mlir.codegen.ptx import to_ptx
from kitsune_mlir.errors import UserError
from kitsune_mlir.mlir import gpu, ir, walk
from kitsune_mlir.planning import target as targets

from .base import ModulePass


@dataclass(frozen=True)
class LowerGpuToPtx(ModulePass):
    """gpu.module -> gpu.binary for `target`, a GPU's name or the path of a target description."""

    name: ClassVar[str] = "lower-gpu-to-ptx"

    target: str = "sm_90a"

    def run(self, module: ir.Module) -> None:
        target = targets.load(self.target)
        if target.kind != "gpu":
            raise UserError(f"lower-gpu-to-ptx needs a GPU as its target, and '{self.target}' is none")
        with module.context:
            handler = ir.Attribute.parse("#gpu.select_object<0>")
            chip = ir.Attribute.parse(f'#nvvm.target<chip = "{target.chip}">')
        for op in walk(module, "gpu.module"):
            text = to_ptx(op, target)
            with module.context, op.location, ir.InsertionPoint(op):
                code = gpu.ObjectAttr.get(chip, gpu.CompilationTarget.Assembly, text.encode())
                name = ir.StringAttr(op.attributes["sym_name"])
                binary = gpu.BinaryOp(name, ir.ArrayAttr.get([code]), offloadingHandler=handler)
                for attribute in op.attributes:
                    if attribute.startswith("kitsune."):
                        binary.operation.attributes[attribute] = op.attributes[attribute]
            op.erase()
