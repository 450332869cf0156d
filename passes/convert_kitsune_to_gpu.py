"""convert-kitsune-to-gpu: a placed pipeline becomes one persistent kernel and a call of it.

    %p = "kitsune.pipeline"() ({...})              func.func private @pipeline0(tensor<?x64xf32> {bufferization.
      {sym_name = "pipeline0", tile_rows = 64}       access = "read"}, ...) -> tensor<?x8xf32>
    %y = "kitsune.result"(%p) {index = 0}     =>   %y = func.call @pipeline0(%x, %w0, ...)
                                                   gpu.module @pipeline0_kernel attributes {kitsune.launch = "{...}",
                                                     kitsune.pipeline = "pipeline0"} { gpu.func @pipeline0(...) kernel }

Pipelines of equal form are calls of the first one's kernel. A pipeline that has no kernel form is declined with a
remark and becomes plain linalg again, which convert-linalg-to-gpu compiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kitsune_mlir import rows
from kitsune_mlir.codegen import index_checks
from kitsune_mlir.codegen.pipeline.kernel import PipelineKernel
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.errors import UnsupportedError, UserError
from kitsune_mlir.form import Form, pipeline_form
from kitsune_mlir.mlir import ir, remark
from kitsune_mlir.planning import target as targets

from . import kernel_call
from .base import ModulePass
from .flow import target_of
from .inline_pipeline import inline_pipeline
from .kernel_call import call, declare


@dataclass(frozen=True)
class ConvertKitsuneToGpu(ModulePass):
    """target: what the pipelines were placed for when empty, else a name or the path of a description.
    wait_budget: for debugging, how often a wait asks before the kernel gives up and the call ends in an error that says
    what was waited for; 0 for ever.
    """

    name: ClassVar[str] = "convert-kitsune-to-gpu"
    target: str = ""
    wait_budget: int = 0

    def run(self, module: ir.Module) -> None:
        known: dict[Form, tuple[str, ir.Operation]] = {}
        for pipeline in kitsune.pipelines(module):
            if not pipeline.is_placed:
                raise UserError(f"pipeline '{pipeline.label}' is not placed; run place-stages before {self.name}")
            target = target_of(pipeline, self.target, self.name)
            form = pipeline_form(pipeline)
            with pipeline.operation.location:
                operands, results = [value for value in pipeline.inputs if rows.is_tensor(value)], pipeline.result_ops
                ends = [result.results[0] for result in results]
                if form in known:
                    name, gpu_module = known[form]
                    index_checks.add_places(gpu_module, pipeline)
                    call(pipeline, name, operands, results, ends)
                    continue
                try:
                    kernel, gpu_module = _build(pipeline, target, self.wait_budget)
                except UnsupportedError as error:
                    remark(pipeline, f"pipeline '{pipeline.label}' runs bulk-synchronously: {error}")
                    inline_pipeline(pipeline)
                    continue
                name = pipeline.label
                declare(module, name, operands, ends, kernel, gpu_module)
                if not self.wait_budget:
                    known[form] = name, gpu_module
                call(pipeline, name, operands, results, ends)


def _build(
    pipeline: kitsune.PipelineOp, target: targets.Target, wait_budget: int
) -> tuple[PipelineKernel, ir.Operation]:
    """The kernel of a pipeline of this shape, and its module. Raises UnsupportedError when it has none."""
    if pipeline.shape == "chained":
        raise UnsupportedError("it is a chain, of which schedule-chains makes a kernel")
    with index_checks.of_pipeline(pipeline) as checks:
        made = kernel_call.built(PipelineKernel(pipeline, target, wait_budget))
        checks.write(made[1])
    return made
