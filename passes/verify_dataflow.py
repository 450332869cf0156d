"""verify-dataflow: proves that every placed pipeline can be launched, or says what is wrong with it.

The proof is `kitsune_mlir/planning/verify.py`: structure, rates, freedom from deadlock, resources. What
it finds is reported at the queue or stage it names, with the model's line; warnings are remarks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kitsune_mlir.dialects import kitsune
from kitsune_mlir.errors import UserError
from kitsune_mlir.mlir import ir, remark
from kitsune_mlir.planning.verify import verify

from .base import ModulePass
from .flow import flow_of, target_of


@dataclass(frozen=True)
class VerifyDataflow(ModulePass):
    """target: what the pipelines were placed for when empty, else a name or the path of a description."""

    name: ClassVar[str] = "verify-dataflow"
    target: str = ""

    def run(self, module: ir.Module) -> None:
        failed = False
        for pipeline in kitsune.pipelines(module):
            if not pipeline.is_placed:
                raise UserError(f"pipeline '{pipeline.label}' is not placed; run place-stages before verify-dataflow")
            target = target_of(pipeline, self.target, self.name)
            named = {op.label: op for op in (*pipeline.stages, *pipeline.queues)}
            for finding in verify(flow_of(pipeline), target):
                op = named.get(finding.subject, pipeline)
                if finding.severity == "error":
                    failed = True
                    op.operation.location.emit_error(f"'{op.operation.name}' op '{finding.subject}' {finding.message}")
                else:
                    remark(op, f"'{finding.subject}' {finding.message}")
        if failed:
            raise ir.MLIRError("verify-dataflow found pipelines that must not be launched", [])
