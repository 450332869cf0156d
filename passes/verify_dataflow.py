"""verify-dataflow: proves that every placed pipeline and every scheduled kernel can be launched, or says what is wrong.

The proof of pipelines is `kitsune_mlir/planning/verify.py`: structure, rates, freedom from deadlock, resources; that of
kernels `kitsune_mlir/planning/schedule_proof.py`. What they find is reported at the operation it is about, with the
model's line; warnings are remarks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from kitsune_mlir.dialects import kitsune
from kitsune_mlir.dialects import schedule as dialect
from kitsune_mlir.errors import UserError
from kitsune_mlir.mlir import ir, remark
from kitsune_mlir.planning import schedule_proof
from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.schedule import Refused
from kitsune_mlir.planning.verify import verify

from .base import ModulePass
from .flow import flow_of, target_of
from .schedule_events import Reading


@dataclass(frozen=True)
class VerifyDataflow(ModulePass):
    """target: what pipelines and kernels were made for when empty, else a name or the path of a description."""

    name: ClassVar[str] = "verify-dataflow"
    target: str = ""

    def run(self, module: ir.Module) -> None:
        failed = [self._pipeline(pipeline) for pipeline in kitsune.pipelines(module)]
        _refuse([*failed, *map(self._kernel, dialect.kernels(module))])

    def prove(self, kernels: Iterable[dialect.KernelOp]) -> None:
        """Proves these kernels alone."""
        _refuse(list(map(self._kernel, kernels)))

    def _pipeline(self, pipeline: kitsune.PipelineOp) -> bool:
        if not pipeline.is_placed:
            raise UserError(f"pipeline '{pipeline.label}' is not placed; run place-stages before verify-dataflow")
        failed = False
        target = target_of(pipeline, self.target, self.name)
        named = {op.label: op for op in (*pipeline.stages, *pipeline.queues)}
        for finding in verify(flow_of(pipeline), target):
            op = named.get(finding.subject, pipeline)
            if finding.severity == "error":
                failed = True
                op.operation.location.emit_error(f"'{op.operation.name}' op '{finding.subject}' {finding.message}")
            else:
                remark(op, f"'{finding.subject}' {finding.message}")
        return failed

    def _kernel(self, kernel: dialect.KernelOp) -> bool:
        asked = self.target or kernel.target
        if not asked:
            raise UserError(f"kernel '{kernel.label}' names no target; give {self.name} one: --{self.name}=target=NAME")
        reading = Reading(kernel)
        try:
            faults = schedule_proof.verify(reading.schedule(), targets.load(asked))
        except Refused as refused:
            faults = [refused.fault]
        for fault in faults:
            op = reading.ops[fault.place.op]
            op.location.emit_error(f"'{op.name}' op {fault.message}")
        return bool(faults)


def _refuse(failed: list[bool]) -> None:
    if any(failed):
        raise ir.MLIRError("verify-dataflow found what must not be launched", [])
