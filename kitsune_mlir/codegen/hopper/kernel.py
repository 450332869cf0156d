"""The kernel of a chained pipeline on Hopper: persistent CTAs of one producer and two consumer warpgroups.

    @pipeline(maps: struct by value, tensors..., outputs..., workspace, rows: i32)

Cluster c of n takes the tiles of 128 rows c, c + n, c + 2n, ... Each consumer warpgroup carries 64 of the rows through
all stages in its registers; one thread of the producer keeps the rings of weights filled.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, ir, llvm
from kitsune_mlir.planning.target import Target

from . import cluster, exchange, mbarrier, stores, tma, warps, wgmma
from .consumer import Around, Consumer, Rings
from .exchange import Exchange
from .fragments import Lanes
from .grid import Tiles
from .layout import CONSUMERS, TILE_SLOT_BYTES, VECTORS_AT, lay_out
from .mbarrier import Ring
from .producer import Producer
from .program import TILE_ROWS, Program
from .stores import BoxWriter, Outbox

THREADS = (1 + CONSUMERS) * wgmma.THREADS
PRODUCER_REGISTERS, CONSUMER_REGISTERS = 24, 240
MAPS = "kitsune.maps"  # on a gpu.func: how many tensor maps its first parameter holds
CHAINED = "chained"


@dataclass(frozen=True)
class _Frame:
    """What the warps of a CTA share. `base` is the address of shared memory, `rank` the CTA's in its cluster."""

    maps: ir.Value
    pointers: list[ir.Value]
    base: Int
    rank: Int
    vectors: ir.Value
    weights: Ring
    tiles: Ring | None
    grid: Tiles

    def rings(self) -> Rings:
        tiles = self.tiles
        return Rings(self.weights, tiles, self.weights.start(), tiles.start() if tiles else None)


class ChainedKernel:
    """Builds the gpu.module of a pipeline placed as one role. Raises UnsupportedError for what has no code here."""

    def __init__(self, pipeline: kitsune.PipelineOp, target: Target):
        self.pipeline = pipeline
        self.ctas = pipeline.stages[0].replicas or 1
        if pipeline.tile_rows != TILE_ROWS or len({stage.role for stage in pipeline.stages}) > 1:
            raise UnsupportedError(f"warpgroups chain stages of one role on tiles of {TILE_ROWS} rows")
        self.program = Program(pipeline, pipeline.cluster)
        self.tensors, self.results = self.program.tensors, self.program.results
        self.padded = self.program.padded
        self.layout = lay_out(self.program, target.shared_bytes)

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
                "cluster": self.program.cluster,
                "threads": THREADS,
                "shared_bytes": self.layout.nbytes,
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
            if self.program.cluster > 1:
                cluster.set_size(kernel, self.program.cluster)
            with ir.InsertionPoint(kernel.body.blocks.append(*arguments)):
                self._body(list(kernel.body.blocks[0].arguments))
                device.gpu.ReturnOp([])
        return module.operation

    def _body(self, arguments: list[ir.Value]) -> None:
        maps, *pointers, _, count = arguments
        shared = llvm.AddressOfOp(device.pointer_type(device.SHARED), "shared").result
        base = llvm.PtrToIntOp(device.i32(), shared).result
        vectors = device.offset(shared, VECTORS_AT, ir.IntegerType.get_signless(8))
        layout, clustered = self.layout, self.program.cluster > 1
        weights = Ring(base, device.add(base, layout.weights), layout.slots, layout.slot_bytes)
        tiles = None
        if layout.tile_slots:
            barriers = device.add(base, weights.barrier_bytes)
            tiles = Ring(barriers, device.add(base, layout.tiles), layout.tile_slots, TILE_SLOT_BYTES)
        rank = cluster.rank() if clustered else 0
        frame = _Frame(maps, pointers, base, rank, vectors, weights, tiles, Tiles(self.program.grid_product, count))
        self._copy_vectors(pointers, vectors)
        with device.when(device.equal(device.thread(), 0)):
            self._init_barriers(frame)
        cluster.barrier() if clustered else device.barrier()
        group = device.div(device.thread(), wgmma.THREADS)
        branch = device.scf.IfOp(device.equal(group, 0), has_else=True)
        with ir.InsertionPoint(branch.then_block):
            warps.set_registers(PRODUCER_REGISTERS, grow=False)
            with device.when(device.equal(device.thread(), 0)):
                self._produce(frame)
            device.scf.YieldOp([])
        with ir.InsertionPoint(branch.else_block):
            warps.set_registers(CONSUMER_REGISTERS, grow=True)
            self._consume(frame, device.sub(group, 1))
            device.scf.YieldOp([])
        if clustered:
            cluster.barrier()  # nobody leaves while others may still write here

    def _init_barriers(self, frame: _Frame) -> None:
        for ring in filter(None, (frame.weights, frame.tiles)):
            ring.init(1, CONSUMERS)
        if self.program.cluster > 1:
            for group in range(CONSUMERS):
                exchange.init(self._exchange_barriers(frame, group), self.program.cluster)
        mbarrier.fence_init()

    def _exchange_barriers(self, frame: _Frame, group: Int) -> Int:
        """After those of the rings."""
        start = frame.weights.barrier_bytes + (frame.tiles.barrier_bytes if frame.tiles else 0)
        return device.add(device.add(frame.base, start), device.mul(group, exchange.BARRIER_BYTES))

    def _copy_vectors(self, pointers: list[ir.Value], vectors: ir.Value) -> None:
        """All threads: the small residents into shared memory, 2 bytes at a time where that divides them."""
        i16, i8 = ir.IntegerType.get_signless(16), ir.IntegerType.get_signless(8)
        for vector in self.program.vectors:
            target = device.offset(vectors, vector.offset, i8)
            unit, size = (i16, 2) if vector.nbytes % 2 == 0 else (i8, 1)

            def copy(i: ir.Value, _: list[ir.Value], target=target, unit=unit, vector=vector) -> list[ir.Value]:
                x = device.load(device.offset(pointers[vector.tensor], i, unit), unit)
                device.store(x, device.offset(target, i, unit))
                return []

            device.loop(device.thread(), vector.nbytes // size, THREADS, copy)

    def _tiles(self, frame: _Frame, rings: Rings, body) -> None:
        """A loop over the cluster's tiles; `body` takes the first row and column of one."""
        ctas = self.program.cluster

        def tile(number: ir.Value, state: list[ir.Value]) -> list[ir.Value]:
            rings.resume(state)
            body(*frame.grid.start(number))
            return rings.state()

        device.loop(device.div(device.cta(), ctas), frame.grid.count, self.ctas // ctas, tile, rings.state())

    def _produce(self, frame: _Frame) -> None:
        rings = frame.rings()

        def body(row: ir.Value, column: ir.Value | None) -> None:
            Producer(self.program, frame.maps, rings, row, frame.rank, column).emit()

        self._tiles(frame, rings, body)

    def _consume(self, frame: _Frame, group: ir.Value) -> None:
        thread = device.mod(device.thread(), wgmma.THREADS)
        lane = device.mod(thread, 32)
        g, pair = device.div(lane, 4), device.mul(device.mod(lane, 4), 2)
        group_rows = device.mul(group, wgmma.ROWS)
        in_group = device.add(device.mul(device.div(thread, 32), 16), g)
        own = device.add(group_rows, in_group)
        writer = BoxWriter(in_group, pair, device.equal(thread, 0), device.add(group, 1))
        rings = frame.rings()
        rings.exchange = self._exchange(frame, group, writer)
        outbox = self._outbox(frame, group, writer, rings.exchange)
        split = len(self.tensors)
        tensors = {hash(value): pointer for value, pointer in zip(self.tensors, frame.pointers)}
        outputs = {result.position: pointer for result, pointer in zip(self.results, frame.pointers[split:])}

        def body(row: ir.Value, column: ir.Value | None) -> None:
            valid = device.least(device.sub(frame.grid.rows, row), TILE_ROWS)
            own_rows = (own, device.add(own, 8))
            last = device.sub(valid, 1)
            lanes = Lanes(own_rows, tuple(device.least(row, last) for row in own_rows), pair)
            first_row = arith.extui(ir.IntegerType.get_signless(64), row)
            around = Around(
                tensors, outputs, frame.vectors, first_row, valid, group_rows, writer.leader, outbox, column
            )
            zero = arith.constant(ir.F32Type.get(), 0.0)
            Consumer(self.program, lanes, rings, around, [zero] * (self.program.weight_columns // 2)).emit()

        self._tiles(frame, rings, body)
        if outbox is not None:
            outbox.finish()

    def _exchange(self, frame: _Frame, group: ir.Value, writer: BoxWriter) -> Exchange | None:
        ctas, columns = self.program.cluster, self.program.exchanged_columns
        if ctas == 1:
            return None
        room = ctas * exchange.boxes_of(columns) * stores.BOX_BYTES
        boxes = device.add(device.add(frame.base, self.layout.boxes), device.mul(group, room))
        sums = device.add(device.add(frame.base, self.layout.sums), device.mul(group, exchange.sums_bytes(ctas)))
        barriers = self._exchange_barriers(frame, group)
        zero = device.value(0)
        return Exchange(ctas, device.value(frame.rank), columns, boxes, sums, barriers, writer, zero, zero)

    def _outbox(self, frame: _Frame, group: ir.Value, writer: BoxWriter, shared: Exchange | None) -> Outbox | None:
        if not self.program.store_maps:
            return None
        if self.layout.own_outbox:
            place = device.add(device.add(frame.base, self.layout.outboxes), device.mul(group, stores.BYTES))
            return Outbox(frame.maps, place, writer)
        assert shared is not None
        return Outbox(frame.maps, shared.box(shared.rank, 0), writer, shared.wait_empty)
