"""The kernel of a placed pipeline: one persistent launch, a role a range of CTAs.

    @pipeline(tensors..., outputs..., workspace, rows: i32, rows of tables: i64...)

CTA c of role r's n takes row tiles c, c + n, c + 2n, ... A workspace holds the rings that lie in L2:
a counter of finished CTAs, the slots' counters, the slots. It starts zeroed; the CTA that finishes last
zeroes the counters again, so launches need nothing from the host between them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from kitsune_mlir import rows
from kitsune_mlir.codegen import index_checks
from kitsune_mlir.codegen.math_simplify import FAST, SHORT
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, ir, llvm, location
from kitsune_mlir.planning.target import Target
from kitsune_mlir.traffic import element_bytes

from . import counters, device, loops
from .ring import Ring
from .role import ON_CHIP, Role, Surroundings, streamed
from .watch import FLAG_BYTES, QueueWatch, Waits

_ALIGN = 256


@dataclass(frozen=True)
class _RingPlace:
    """Byte offsets of a ring in the workspace."""

    counters: int
    data: int


class PipelineKernel:
    """Builds the gpu.module of one pipeline. Raises UnsupportedError for what has no code here."""

    def __init__(self, pipeline: kitsune.PipelineOp, target: Target, wait_budget: int = 0):
        self.pipeline, self.waits = pipeline, Waits(wait_budget)
        members: dict[int, list[kitsune.StageOp]] = {}
        for stage in pipeline.stages:
            members.setdefault(stage.role, []).append(stage)
        self.roles = [Role(stages, stages[0].replicas) for _, stages in sorted(members.items())]
        self.shared_bytes = max(role.shared_bytes for role in self.roles) + (FLAG_BYTES if wait_budget else 0)
        if self.shared_bytes > target.shared_bytes:
            raise UnsupportedError(
                f"a stage wants {self.shared_bytes} bytes of shared memory, {target.name} has {target.shared_bytes}"
            )
        if pipeline.tile_rows % 16:
            raise UnsupportedError(f"tile_rows must be a multiple of 16 on a GPU, found {pipeline.tile_rows}")
        self.queues = [queue for queue in pipeline.queues if queue.transport not in ON_CHIP]
        self._lay_out()
        self.tensors = [value for value in pipeline.inputs if rows.is_tensor(value)]
        self.results = pipeline.result_ops

    def _lay_out(self) -> None:
        """All counters first, then the slots."""
        at, counted = counters.FIRST_AT, {}
        for queue in self.queues:
            counted[queue.label] = at
            at += 2 * counters.COUNTER_BYTES * queue.ring.slots
        self.counter_bytes = at
        self.places: dict[str, _RingPlace] = {}
        for queue in self.queues:
            at = -(-at // _ALIGN) * _ALIGN
            self.places[queue.label] = _RingPlace(counted[queue.label], at)
            tile = queue.ring.tile
            count = 1
            for size in tile.shape:
                count *= size
            at += queue.ring.slots * count * element_bytes(tile.element_type)
        self.workspace_bytes = at if self.queues else 0

    @property
    def ctas(self) -> int:
        return sum(role.replicas for role in self.roles)

    def launch(self) -> str:
        """What the runtime needs to launch the kernel, JSON."""
        return json.dumps(
            {
                "kernel": self.pipeline.label,
                "ctas": self.ctas,
                "threads": loops.THREADS,
                "shared_bytes": self.shared_bytes,
                "workspace_bytes": self.workspace_bytes,
                "counter_bytes": min(self.counter_bytes, self.workspace_bytes),
                "cooperative": len(self.roles) > 1,
                "watched": self.waits.described,
                "streams": self.streams(),
                "tile_rows": self.pipeline.tile_rows,
                **index_checks.sizes(self.pipeline, self.tensors),
            }
        )

    def streams(self) -> list[int]:
        """The numbers of the streamed tensors among the arguments; all have the same rows."""
        return streamed(self.pipeline, self.tensors)

    def build(self) -> ir.Operation:
        """The gpu.module, at the insertion point."""
        name = self.pipeline.label
        module = device.gpu.GPUModuleOp(f"{name}_kernel")
        # LLVM's optimiser hoists addresses of all products out of the tile loop, which spills; ptxas does not.
        module.operation.attributes["kitsune.scheduled"] = ir.UnitAttr.get()
        pointer, i32 = device.pointer_type(device.GLOBAL), device.i32()
        arguments = [pointer] * (len(self.tensors) + len(self.results) + 1) + [i32]
        arguments += [ir.IntegerType.get_signless(64)] * index_checks.open_tables()
        with ir.InsertionPoint(module.bodyRegion.blocks.append()):
            shared = ir.Type.parse("!llvm.array<0 x i8>")
            linkage = ir.Attribute.parse("#llvm.linkage<external>")
            llvm.GlobalOp(shared, "shared", linkage, addr_space=device.SHARED, alignment=1024)
            kernel = device.gpu.GPUFuncOp(
                ir.FunctionType.get(arguments, []), name, kernel=True, known_block_size=[loops.THREADS, 1, 1]
            )
            # There is a CTA an SM at most: else ptxas may spill a little so that a second one would fit.
            kernel.attributes["nvvm.minctasm"] = ir.IntegerAttr.get(i32, 1)
            kernel.attributes[FAST if self._computes_bf16() else SHORT] = ir.UnitAttr.get()
            with ir.InsertionPoint(kernel.body.blocks.append(*arguments)):
                self._body(list(kernel.body.blocks[0].arguments))
                device.gpu.ReturnOp([])
        return module.operation

    def _computes_bf16(self) -> bool:
        """Whether every product is of 16-bit floats, so that bf16-grade functions lose nothing."""
        products = [
            op.operation
            for stage in self.pipeline.stages
            for op in stage.block.operations
            if op.operation.name == "linalg.matmul"
        ]
        return all(ir.RankedTensorType(op.operands[0].type).element_type.width == 16 for op in products)

    def _body(self, arguments: list[ir.Value]) -> None:
        end = len(arguments) - index_checks.open_tables()
        index_checks.know_sizes(arguments[end:])
        *pointers, workspace, count = arguments[:end]
        split = len(self.tensors)
        shared = llvm.AddressOfOp(device.pointer_type(device.SHARED), "shared").result
        around = Surroundings(
            pointers={hash(value): pointer for value, pointer in zip(self.tensors, pointers)},
            outputs={result.position: pointer for result, pointer in zip(self.results, pointers[split:])},
            rings={queue.label: self._ring(queue, workspace, shared) for queue in self.queues},
            shared=shared,
        )
        tile_rows = self.pipeline.tile_rows
        tiles = device.div(device.add(count, tile_rows - 1), tile_rows)
        first, cta = 0, device.cta()
        for role in self.roles:
            inside = arith.cmpi(
                arith.CmpIPredicate.ult, device.value(device.sub(cta, first)), device.value(role.replicas)
            )
            with device.when(inside):
                device.loop(device.sub(cta, first), tiles, role.replicas, self._tile(role, count, around))
            first += role.replicas
        if self.queues:
            self._finish(workspace)

    def _tile(self, role: Role, count: ir.Value, around: Surroundings):
        i64, tile_rows = ir.IntegerType.get_signless(64), self.pipeline.tile_rows

        def body(tile: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            start = device.mul(tile, tile_rows)
            valid = device.least(device.sub(count, start), tile_rows)
            role.emit(tile, valid, arith.extui(i64, start), around)
            return []

        return body

    def _ring(self, queue: kitsune.QueueOp, workspace: ir.Value, shared: ir.Value) -> Ring:
        place, byte = self.places[queue.label], ir.IntegerType.get_signless(8)
        tile, watch = queue.ring.tile, None
        if (watched := self.waits.watch(workspace)) is not None:
            flag = device.offset(shared, self.shared_bytes - FLAG_BYTES, byte)
            watch = QueueWatch(watched, queue.label, location(queue.operation.location), flag)
        return Ring(
            device.offset(workspace, place.data, byte),
            device.offset(workspace, place.counters, byte),
            queue.ring.slots,
            len(queue.consumers),
            tuple(tile.shape),
            tile.element_type,
            watch,
        )

    def _finish(self, workspace: ir.Value) -> None:
        device.barrier()
        with device.when(device.equal(device.thread(), 0)):
            counters.finish(workspace, self.counter_bytes, self.ctas)
