"""The kernel of a chained pipeline on Hopper: persistent CTAs of one producer and two consumer warpgroups.

    @pipeline(maps: struct by value, tensors..., outputs..., workspace, rows: i32)

CTA c of n takes the tiles of 128 rows c, c + n, c + 2n, ... Each consumer warpgroup carries 64 of the rows through
all stages in its registers; one thread of the producer keeps the rings of weights filled. Shared memory:
barriers, vectors (biases and their like), rings.
"""

from __future__ import annotations

import json

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, ir, llvm
from kitsune_mlir.planning.target import Target

from . import mbarrier, stores, tma, warps, wgmma
from .consumer import Around, Consumer, Rings
from .fragments import Lanes
from .grid import Tiles
from .producer import Producer
from .program import TILE_ROWS, Program

CONSUMERS = 2
THREADS = (1 + CONSUMERS) * wgmma.THREADS
PRODUCER_REGISTERS, CONSUMER_REGISTERS = 24, 240
BARRIERS_AT, VECTORS_AT = 0, 1024
MOST_SLOTS = 8
TILE_SLOTS = 4
MAPS = "kitsune.maps"  # on a gpu.func: how many tensor maps its first parameter holds
CHAINED = "chained"


class ChainedKernel:
    """Builds the gpu.module of a pipeline placed as one role. Raises UnsupportedError for what has no code here."""

    def __init__(self, pipeline: kitsune.PipelineOp, target: Target):
        self.pipeline = pipeline
        self.ctas = pipeline.stages[0].replicas or 1
        if pipeline.tile_rows != TILE_ROWS or len({stage.role for stage in pipeline.stages}) > 1:
            raise UnsupportedError(f"warpgroups chain stages of one role on tiles of {TILE_ROWS} rows")
        self.program = Program(pipeline)
        self.tensors, self.results = self.program.tensors, self.program.results
        self.padded = self.program.padded
        self._lay_out(target)

    def _lay_out(self, target: Target) -> None:
        """The rings take what shared memory is left."""
        box = wgmma.CHUNK * 2
        slot = -(-self.program.weight_columns * box // tma.ALIGN) * tma.ALIGN
        start = -(-(VECTORS_AT + self.program.vector_bytes) // tma.ALIGN) * tma.ALIGN
        tiles = TILE_SLOTS * TILE_ROWS * box if self.program.streams else 0
        outboxes = CONSUMERS * stores.BYTES if self.program.store_maps else 0
        slots = min(MOST_SLOTS, (target.shared_bytes - start - tiles - outboxes) // slot)
        if slots < 2:
            raise UnsupportedError(f"{self.program.vector_bytes} bytes of vectors leave no room for weights")
        self._outbox_at, self._tiles_at, self._weights_at = start, start + outboxes, start + outboxes + tiles
        self._slots, self._slot_bytes = slots, slot
        self.shared_bytes = self._weights_at + slots * slot

    def streams(self) -> list[int]:
        """The numbers of the streamed tensors among the arguments; all have the same rows."""
        keys = [hash(value) for value in self.tensors]
        return sorted({keys.index(hash(load.operands[0])) for stage in self.pipeline.stages for load in stage.loads})

    def launch(self) -> str:
        """What the runtime needs to launch the kernel, JSON."""
        return json.dumps(
            {
                "kernel": self.pipeline.label,
                "ctas": self.ctas,
                "threads": THREADS,
                "shared_bytes": self.shared_bytes,
                "workspace_bytes": 0,
                "cooperative": False,
                "watched": [],
                "streams": self.streams(),
                "tile_rows": TILE_ROWS,
                "maps": [map_.description() for map_ in self.program.maps],
            }
        )

    def build(self) -> ir.Operation:
        """The gpu.module, at the insertion point."""
        name = self.pipeline.label
        module = device.gpu.GPUModuleOp(f"{name}_kernel")
        module.operation.attributes["kitsune.scheduled"] = ir.UnitAttr.get()
        pointer = device.pointer_type(device.GLOBAL)
        arguments = [ir.Type.parse("!llvm.ptr"), *[pointer] * (len(self.tensors) + len(self.results) + 1), device.i32()]
        with ir.InsertionPoint(module.bodyRegion.blocks.append()):
            shared = ir.Type.parse("!llvm.array<0 x i8>")
            linkage = ir.Attribute.parse("#llvm.linkage<external>")
            llvm.GlobalOp(shared, "shared", linkage, addr_space=device.SHARED, alignment=tma.ALIGN)
            kernel = device.gpu.GPUFuncOp(
                ir.FunctionType.get(arguments, []), name, kernel=True, known_block_size=[THREADS, 1, 1]
            )
            kernel.attributes["kitsune.fast_math"] = ir.UnitAttr.get()
            kernel.attributes[MAPS] = ir.IntegerAttr.get(device.i32(), len(self.program.maps))
            kernel.attributes["nvvm.minctasm"] = ir.IntegerAttr.get(device.i32(), 1)
            with ir.InsertionPoint(kernel.body.blocks.append(*arguments)):
                self._body(list(kernel.body.blocks[0].arguments))
                device.gpu.ReturnOp([])
        return module.operation

    def _body(self, arguments: list[ir.Value]) -> None:
        maps, *pointers, _, count = arguments
        i8 = ir.IntegerType.get_signless(8)
        shared = llvm.AddressOfOp(device.pointer_type(device.SHARED), "shared").result
        base = llvm.PtrToIntOp(device.i32(), shared).result
        weights = mbarrier.Ring(
            device.add(base, BARRIERS_AT), device.add(base, self._weights_at), self._slots, self._slot_bytes
        )
        tiles = None
        if self.program.streams:
            place = device.add(base, BARRIERS_AT + weights.barrier_bytes)
            tiles = mbarrier.Ring(place, device.add(base, self._tiles_at), TILE_SLOTS, TILE_ROWS * wgmma.CHUNK * 2)
        thread = device.thread()
        with device.when(device.equal(thread, 0)):
            for ring in filter(None, (weights, tiles)):
                ring.init(1, CONSUMERS)
            mbarrier.fence_init()
        vectors = device.offset(shared, VECTORS_AT, i8)
        self._copy_vectors(pointers, vectors)
        device.barrier()
        tiles_of = Tiles(self.program.grid_product, count)
        group = device.div(thread, wgmma.THREADS)
        branch = device.scf.IfOp(device.equal(group, 0), has_else=True)
        with ir.InsertionPoint(branch.then_block):
            warps.set_registers(PRODUCER_REGISTERS, grow=False)
            with device.when(device.equal(thread, 0)):
                self._produce(maps, weights, tiles, tiles_of)
            device.scf.YieldOp([])
        with ir.InsertionPoint(branch.else_block):
            warps.set_registers(CONSUMER_REGISTERS, grow=True)
            self._consume(maps, base, pointers, vectors, weights, tiles, device.sub(group, 1), tiles_of)
            device.scf.YieldOp([])

    def _copy_vectors(self, pointers: list[ir.Value], vectors: ir.Value) -> None:
        """All threads: the small residents into shared memory, 2 bytes at a time."""
        i16, i8 = ir.IntegerType.get_signless(16), ir.IntegerType.get_signless(8)
        for vector in self.program.vectors:
            target = device.offset(vectors, vector.offset, i8)
            unit, size = (i16, 2) if vector.nbytes % 2 == 0 else (i8, 1)

            def copy(i: ir.Value, _: list[ir.Value], target=target, unit=unit, vector=vector) -> list[ir.Value]:
                x = device.load(device.offset(pointers[vector.tensor], i, unit), unit)
                device.store(x, device.offset(target, i, unit))
                return []

            device.loop(device.thread(), vector.nbytes // size, THREADS, copy)

    def _rings(self, weights: mbarrier.Ring, tiles: mbarrier.Ring | None) -> Rings:
        return Rings(weights, tiles, weights.start(), tiles.start() if tiles else None)

    def _produce(self, maps: ir.Value, weights: mbarrier.Ring, tiles: mbarrier.Ring | None, tiles_of: Tiles) -> None:
        rings = self._rings(weights, tiles)

        def tile(number: ir.Value, state: list[ir.Value]) -> list[ir.Value]:
            rings.resume(state)
            row, column = tiles_of.start(number)
            Producer(self.program, maps, rings, row, column).emit()
            return rings.state()

        device.loop(device.cta(), tiles_of.count, self.ctas, tile, rings.state())

    def _consume(
        self,
        maps: ir.Value,
        base: ir.Value,
        pointers: list[ir.Value],
        vectors: ir.Value,
        weights: mbarrier.Ring,
        tiles: mbarrier.Ring | None,
        group: ir.Value,
        tiles_of: Tiles,
    ) -> None:
        i64 = ir.IntegerType.get_signless(64)
        rings = self._rings(weights, tiles)
        thread = device.mod(device.thread(), wgmma.THREADS)
        lane = device.mod(thread, 32)
        g, pair = device.div(lane, 4), device.mul(device.mod(lane, 4), 2)
        group_rows = device.mul(group, wgmma.ROWS)
        in_group = device.add(device.mul(device.div(thread, 32), 16), g)
        own = device.add(group_rows, in_group)
        split = len(self.tensors)
        tensors = {hash(value): pointer for value, pointer in zip(self.tensors, pointers)}
        outputs = {result.position: pointer for result, pointer in zip(self.results, pointers[split:])}
        leader = device.equal(thread, 0)
        outbox = None
        if self.program.store_maps:
            place = device.add(device.add(base, self._outbox_at), device.mul(group, stores.BYTES))
            outbox = stores.Outbox(maps, place, in_group, pair, leader, device.add(group, 1))

        def tile(number: ir.Value, state: list[ir.Value]) -> list[ir.Value]:
            rings.resume(state)
            row, column = tiles_of.start(number)
            valid = device.least(device.sub(tiles_of.rows, row), TILE_ROWS)
            own_rows = (own, device.add(own, 8))
            last = device.sub(valid, 1)
            lanes = Lanes(own_rows, tuple(device.least(row, last) for row in own_rows), pair)
            first_row = arith.extui(i64, row)
            around = Around(tensors, outputs, vectors, first_row, valid, group_rows, leader, outbox, column)
            zero = arith.constant(ir.F32Type.get(), 0.0)
            sums = [zero] * (self.program.weight_columns // 2)
            Consumer(self.program, lanes, rings, around, sums).emit()
            return rings.state()

        device.loop(device.cta(), tiles_of.count, self.ctas, tile, rings.state())
        if outbox is not None:
            outbox.finish()
