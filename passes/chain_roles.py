"""The kernel of a pipeline whose stages have CTAs of their own, at the schedule level: for each role what
chain_kernel.py makes of its stages, and rings in L2 where a queue leaves a role."""

from __future__ import annotations

from kitsune_mlir.codegen.hopper.tile_ring import crosses
from kitsune_mlir.dialects import kitsune, schedule
from kitsune_mlir.dialects.roles import RoleOp
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import i64, ir
from kitsune_mlir.planning.target import Target

from .chain_kernel import Body, ChainKernel, ctas_of, kernel_of


class RolesKernel:
    """Builds the kernel in the place of a placed pipeline. Raises UnsupportedError for what has no such kernel."""

    def __init__(self, pipeline: kitsune.PipelineOp, target: Target):
        self.pipeline = pipeline
        for queue in filter(crosses, pipeline.queues):
            _check(queue)
        self.rings: dict[str, schedule.AllocRingOp] = {}
        numbers = sorted({stage.role for stage in pipeline.stages})
        self.roles = {
            number: ChainKernel(pipeline, target, 1, pipeline.tile_rows, number, self.rings) for number in numbers
        }

    def build(self, body: Body) -> schedule.KernelOp:
        """The kernel, at the insertion point; `body` as of ChainKernel.build."""
        for role in self.roles.values():
            role.prepare()
        kernel = kernel_of(self.pipeline)
        with ir.InsertionPoint(kernel.regions[0].blocks.append()):
            for queue in filter(crosses, self.pipeline.queues):
                with queue.operation.location:
                    names = map(ir.StringAttr.get, (queue.label, schedule.L2, "rows", "all"))
                    self.rings[queue.label] = schedule.AllocRingOp(*names, queue.results[0].type)
            for number, role in self.roles.items():
                name = "_".join(stage.label for stage in role.program.stages)
                made = RoleOp(ir.StringAttr.get(name), i64(ctas_of(self.pipeline, number)))
                with ir.InsertionPoint(made.regions[0].blocks.append()):
                    role.emit(body)
        return kernel


def _check(queue: kitsune.QueueOp) -> None:
    """Raises UnsupportedError for a queue that is no ring between roles, each of which takes it once."""
    roles = [stage.role for stage in (*queue.producers, *queue.consumers)]
    if len(set(roles)) < len(roles):
        raise UnsupportedError(f"queue '{queue.label}' has two stages of one role")
