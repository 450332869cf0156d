"""convert-kitsune-to-gpu: a kernel at the schedule level becomes a gpu.module and a call of it.

    %p = "kitsune.kernel"() ({...})                func.func private @product0(tensor<8x100x64xbf16> {bufferization.
    %y = "kitsune.result"(%p) {index = 0}     =>     access = "read"}, ...) -> tensor<8x100x72xf32>
                                                   %y = func.call @product0(%a, %b)
                                                   gpu.module @product0_kernel attributes {kitsune.launch = "{...}",
                                                     kitsune.pipeline = "product0"} { gpu.func @product0(...) kernel }

Nothing is lowered that verify-dataflow does not prove. Kernels of equal form are calls of the first one's, and are
proven once. Tensors that lie among the columns of longer rows (place-columns) are marked at the functions, their types
become plain ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from kitsune_mlir.codegen import gpu_placed, index_checks
from kitsune_mlir.codegen.schedule.kernel import ScheduledKernel, tensors_of
from kitsune_mlir.dialects import kitsune, schedule
from kitsune_mlir.dialects.windows import WindowsOp
from kitsune_mlir.errors import UserError
from kitsune_mlir.form import Form, form_of
from kitsune_mlir.mlir import ir, walk
from kitsune_mlir.operations import erase_unused, made_by, only_user
from kitsune_mlir.planning import target as targets
from kitsune_mlir.rows import RESHAPES
from kitsune_mlir.weights import is_weight

from .base import ModulePass
from .kernel_call import built, call, declare
from .verify_dataflow import VerifyDataflow


@dataclass(frozen=True)
class ConvertKitsuneToGpu(ModulePass):
    """target: what the kernels are for, a name or the path of a description.
    wait_budget: for debugging, how often a wait asks before the kernel gives up and the call ends in an error that says
    what was waited for; 0 for ever.
    """

    name: ClassVar[str] = "convert-kitsune-to-gpu"
    target: str = "sm_90a"
    wait_budget: int = 0

    def run(self, module: ir.Module) -> None:
        for pipeline in kitsune.pipelines(module):
            raise UserError(f"pipeline '{pipeline.label}' has no schedule; run schedule-chains before {self.name}")
        target = targets.load(self.target)
        known: dict[object, str] = {}
        found = list(schedule.kernels(module))
        kernels = [(kernel, form_of([kernel]) if len(found) > 1 else ()) for kernel in found]
        firsts: dict[Form, schedule.KernelOp] = {}
        for kernel, form in kernels:
            firsts.setdefault(form, kernel)
        VerifyDataflow(self.target).prove(firsts.values())
        constant = _constant(kernels)
        for kernel, form in kernels:
            with kernel.operation.location:
                with index_checks.of_pipeline(kernel) as checks:
                    code = ScheduledKernel(kernel, target, self.wait_budget, constant[form])
                    ends = [_end(result.results[0]) for result in code.results]
                    positions = [result.position for result in code.results]
                    sizes = [code.sizes.all, *(code.sizes_from(n, end.type) for n, end in enumerate(ends))]
                    key = form, tuple(end.type for end in ends), tuple(positions), tuple(map(tuple, sizes))
                    name = known.get(key)
                    if name is None:
                        name = kernel.label
                        made, gpu_module = built(code)
                        checks.write(gpu_module)
                        declare(module, name, code.tensors, ends, made, gpu_module)
                        if not self.wait_budget and not checks.places:  # else a report names the kernel's own lines
                            known[key] = name
                call(kernel, name, code.tensors, code.results, ends)
        gpu_placed.mark(module)
        for matrix in walk(module, WindowsOp.OPERATION_NAME):
            erase_unused(matrix)


def _constant(kernels: Sequence[tuple[schedule.KernelOp, Form]]) -> dict[Form, frozenset[int]]:
    """By form the numbers of the tensors that are the program's arguments, or computed of its weights alone, wherever a
    kernel of that form stands."""
    found: dict[Form, frozenset[int]] = {}
    for kernel, form in kernels:
        given = frozenset(number for number, value in enumerate(tensors_of(kernel)) if _is_constant(value))
        found[form] = found.get(form, given) & given
    return found


def _is_constant(value: ir.Value) -> bool:
    if is_weight(value):
        return True
    while made_by(value, *RESHAPES) is not None:
        value = value.owner.operation.operands[0]
    return isinstance(value.owner, ir.Block)


def _end(value: ir.Value) -> ir.Value:
    """What a result is where all that reads it gives it another shape: a kernel writes elements one after another. The
    first size of one that is open until the call is the kernel's own."""
    while ir.RankedTensorType(value.type).has_static_shape:
        reader = only_user(value)
        if reader is None or reader.name not in RESHAPES:
            break
        value = reader.results[0]
    return value
