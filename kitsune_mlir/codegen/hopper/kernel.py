"""The kernel of a chained pipeline on Hopper: persistent CTAs of one producer and one or two consumer warpgroups.

    @pipeline(maps: struct by value, tensors..., outputs..., workspace, rows: i32, rows of tables: i64...)

Each role has a range of CTAs. Cluster c of a role's n takes the tiles of 64 or 128 rows c, c + n, c + 2n, ...: its CTAs
share the columns of a tile. Each consumer warpgroup carries 64 of the rows through all stages of the role in its
registers; a thread of the producer keeps the ring of weights filled, one of another warp that of streamed tiles: before
the kernel before has ended, the one may begin (passes/overlap_launches.py). Between roles, tiles go through rings in L2
(tile_ring.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from kitsune_mlir.codegen import index_checks
from kitsune_mlir.codegen.pipeline import counters, device
from kitsune_mlir.codegen.pipeline.role import streamed
from kitsune_mlir.codegen.pipeline.watch import Waits
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, ir, vector
from kitsune_mlir.planning.target import Target

from . import cluster, exchange, mbarrier, tma, waits, warps, wgmma
from .consumer import Consumer
from .exchange import Exchange
from .fragments import Lanes
from .frame import Frame, build, pointer_count, when_reading
from .grid import Tiles
from .layout import VECTORS_AT, Layout, lay_out
from .maps import TILE_ROWS, padded_row
from .mbarrier import Ring
from .outgoing import Around
from .producer import Producer
from .program import Program
from .rings import Rings
from .stores import Boxes, Outbox
from .tile_ring import TileRing, ring_places
from .tma import TensorMap
from .vectors import Vectors

PRODUCER_REGISTERS, CONSUMER_REGISTERS = 24, 240  # of the 168 each that a launch gives
CHAINED = "chained"
WORD = 16  # bytes that a thread stores at once
Body = Callable[[ir.Value, ir.Value, ir.Value | None], None]


@dataclass(frozen=True)
class _Role:
    """Stages that run on the CTAs from `first` on; `first_map` is where its tensor maps begin."""

    program: Program
    layout: Layout
    first: int
    ctas: int
    first_map: int


@dataclass(frozen=True)
class _Frame:
    """What the warps of a CTA share. `base` is the address of shared memory."""

    role: _Role
    maps: ir.Value
    pointers: list[ir.Value]
    workspace: ir.Value
    base: ir.Value
    vectors: Vectors
    weights: Ring
    tiles: Ring | None
    grid: Tiles

    def rings(self) -> Rings:
        tiles = self.tiles
        return Rings(self.weights, tiles, self.weights.start(), tiles.start() if tiles else None)

    def queues(self) -> dict[str, TileRing]:
        places = self.role.program.rings.items()
        return {label: TileRing(place, self.workspace, TILE_ROWS) for label, place in places}


class ChainedKernel:
    """Builds the gpu.module of a placed pipeline. Raises UnsupportedError for what has no code here."""

    def __init__(self, pipeline: kitsune.PipelineOp, target: Target, wait_budget: int = 0):
        self.pipeline, self.waits = pipeline, Waits(wait_budget)
        if pipeline.tile_rows not in (wgmma.ROWS, TILE_ROWS):
            allowed = f"{wgmma.ROWS} or {TILE_ROWS}"
            raise UnsupportedError(f"warpgroups work on tiles of {allowed} rows, found {pipeline.tile_rows}")
        self.tile_rows = pipeline.tile_rows
        self._consuming = self.tile_rows // wgmma.ROWS * wgmma.THREADS
        self._threads = wgmma.THREADS + self._consuming
        self.roles: list[_Role] = []
        ctas = maps = 0
        replicas = {stage.role: stage.replicas or 1 for stage in pipeline.stages}
        for role in sorted(replicas):
            program = Program(pipeline, target.sms, pipeline.cluster, role, self.tile_rows)
            layout = lay_out(program, target.shared_bytes)
            self.roles.append(_Role(program, layout, ctas, replicas[role], maps))
            ctas, maps = ctas + replicas[role], maps + len(program.maps)
        self.ctas, self.cluster = ctas, pipeline.cluster
        self.tensors, self.results = self.roles[0].program.tensors, self.roles[0].program.results
        self.padded = set().union(*(role.program.padded for role in self.roles))
        self.packed = {number: packing for role in self.roles for number, packing in role.program.packed.items()}
        _, self.counter_bytes, ring_bytes = ring_places(pipeline)
        self.workspace_bytes = max(ring_bytes, counters.FIRST_AT if wait_budget else 0)

    @property
    def maps(self) -> list[TensorMap]:
        return [map_ for role in self.roles for map_ in role.program.maps]

    def streams(self) -> list[int]:
        """The numbers of the streamed tensors among the arguments; all have the same rows."""
        return streamed(self.pipeline, self.tensors)

    def zeroed(self) -> list[int]:
        """The numbers of the results that rows are added to, which are zero before."""
        return [n for n, result in enumerate(self.results) if isinstance(result.store, kitsune.ScatterOp)]

    def launch(self) -> str:
        """What the runtime needs to launch the kernel, JSON."""
        return json.dumps(
            {
                "kernel": self.pipeline.label,
                "ctas": self.ctas,
                "cluster": self.cluster,
                "threads": self._threads,
                "shared_bytes": max(role.layout.nbytes for role in self.roles),
                "workspace_bytes": self.workspace_bytes,
                "counter_bytes": min(self.counter_bytes, self.workspace_bytes),
                "cooperative": len(self.roles) > 1,
                "strided": len(self.roles) == 1,  # any number of whole clusters does
                "watched": self.waits.described,
                "streams": self.streams(),
                "tile_rows": self.tile_rows,
                "zeroed": self.zeroed(),
                "maps": [map_.description() for map_ in self.maps],
                **index_checks.sizes(self.pipeline, self.tensors),
            }
        )

    def build(self) -> ir.Operation:
        """The gpu.module, at the insertion point."""
        pointers = pointer_count(self.tensors, self.results)
        fast = all(segment.nbytes == 2 for role in self.roles for segment in role.program.segments())
        return build(
            self.pipeline.label, pointers, len(self.maps), self._threads, self._watched, self.cluster, fast=fast
        )

    def _watched(self, kernel: Frame) -> None:
        with waits.watched(self.waits.watch(kernel.workspace), barriers=self.cluster > 1):
            self._body(kernel)

    def _body(self, kernel: Frame) -> None:
        frames = [self._role_frame(role, kernel) for role in self.roles]
        with device.when(device.equal(device.thread(), 0)):
            self._each_role(frames, self._init_barriers)
        cluster.barrier() if self.cluster > 1 else device.barrier()
        group = device.div(device.thread(), wgmma.THREADS)
        branch = device.scf.IfOp(device.equal(group, 0), has_else=True)
        with ir.InsertionPoint(branch.then_block):
            self._set_registers(PRODUCER_REGISTERS, grow=False)
            if len(frames) > 1:
                with device.when(device.equal(device.thread(), 0)):
                    self._each_role(frames, partial(self._produce, "all"))
            else:
                self._produce_early(*frames)
            device.scf.YieldOp([])
        with ir.InsertionPoint(branch.else_block):
            self._set_registers(CONSUMER_REGISTERS, grow=True)
            leader = device.equal(device.mod(device.thread(), wgmma.THREADS), 0)
            with waits.together(group, wgmma.THREADS, leader):
                self._each_role(frames, self._consume)
            device.scf.YieldOp([])
        if self.cluster > 1:
            cluster.barrier()  # nobody leaves while others may still write here
        if len(self.roles) > 1:
            self._finish(kernel)

    def _set_registers(self, count: int, grow: bool) -> None:
        """With one consumer warpgroup every thread has as many as an instruction can name."""
        if self.tile_rows == TILE_ROWS:
            warps.set_registers(count, grow)

    def _role_frame(self, role: _Role, kernel: Frame) -> _Frame:
        layout, base = role.layout, kernel.base
        place, barrier = device.add(base, VECTORS_AT), device.add(base, VECTORS_AT - mbarrier.BYTES)
        vectors = Vectors(role.program.vectors, kernel.pointers, place, barrier)
        program, slots = role.program, device.add(base, layout.weights)
        weights = Ring(base, slots, layout.slots, layout.slot_bytes, "weights")
        tiles = None
        if layout.tile_slots:
            barriers = device.add(base, weights.barrier_bytes)
            place, by_warps = device.add(base, layout.tiles), program.reads_tiles
            tiles = Ring(barriers, place, layout.tile_slots, layout.tile_slot_bytes, "tiles", by_warps)
        own_maps = tma.map_pointer(kernel.maps, role.first_map)
        grid = Tiles(program.grid_product, kernel.rows, self.tile_rows)
        return _Frame(role, own_maps, kernel.pointers, kernel.workspace, base, vectors, weights, tiles, grid)

    def _each_role(self, frames: list[_Frame], emit: Callable[[_Frame], None]) -> None:
        """Code for the CTAs of each role."""
        if len(frames) == 1:
            emit(frames[0])
            return
        for frame in frames:
            below = device.less(device.cta(), frame.role.first + frame.role.ctas)
            inside = arith.andi(below, device.less(device.value(frame.role.first - 1), device.cta()))
            with device.when(inside):
                emit(frame)

    def _receive(self, frame: _Frame) -> None:
        """Consumers, before the first tile: what lies in shared memory from then on."""
        clears = frame.role.layout.tile_slot_bytes > frame.role.program.box_rows * wgmma.BOX_ROW
        if not clears and not frame.vectors.vectors:
            return
        thread = device.value(device.sub(device.thread(), wgmma.THREADS))
        if clears:
            self._clear_tiles(frame, thread)
        frame.vectors.receive(thread, self._consuming)
        warps.barrier(1 + frame.role.program.consumers, self._consuming)

    def _clear_tiles(self, frame: _Frame, thread: ir.Value) -> None:
        """Consumers: zeros in the rows of tiles' slots that no box reaches, before products read them."""
        layout, reached = frame.role.layout, frame.role.program.box_rows * wgmma.BOX_ROW
        zero = vector.from_elements(ir.VectorType.get([WORD // 4], device.i32()), [device.value(0)] * (WORD // 4))

        def clear(i: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            for slot in range(layout.tile_slots):
                start = device.add(frame.base, layout.tiles + slot * layout.tile_slot_bytes + reached)
                device.store(zero, device.shared(device.add(start, device.mul(i, WORD))), align=WORD)
            return []

        device.loop(thread, (layout.tile_slot_bytes - reached) // WORD, self._consuming, clear)
        tma.fence()

    def _init_barriers(self, frame: _Frame) -> None:
        frame.vectors.init()
        for ring in filter(None, (frame.weights, frame.tiles)):
            ring.init(1, frame.role.program.consumers * (wgmma.THREADS // warps.WARP if ring.by_warps else 1))
        if frame.role.program.cluster > 1:
            boxes = frame.role.program.exchanged_boxes
            for group in range(frame.role.program.consumers):
                barriers = self._exchange_barriers(frame) + group * exchange.barrier_bytes(boxes)
                exchange.init(device.add(frame.base, barriers), self.cluster, boxes)
        mbarrier.fence_init()

    def _exchange_barriers(self, frame: _Frame) -> int:
        """After those of the rings."""
        return frame.weights.barrier_bytes + (frame.tiles.barrier_bytes if frame.tiles else 0)

    def _tiles(self, frame: _Frame, rings: Rings, body: Body) -> None:
        """A loop over the cluster's tiles; `body` takes a tile's number, the CTA's first row and first column."""
        clusters = device.div(device.ctas() if len(self.roles) == 1 else frame.role.ctas, self.cluster)

        def tile(number: ir.Value, state: list[ir.Value]) -> list[ir.Value]:
            rings.resume(state)
            with waits.at_tile(number):
                body(number, *frame.grid.start(number))
            return rings.state()

        first = device.div(device.sub(device.cta(), frame.role.first), self.cluster)
        rings.resume(device.loop(first, frame.grid.count, clusters, tile, rings.state()))

    def _produce_early(self, frame: _Frame) -> None:
        """Copies weights in a thread that reads nothing else, and streamed tiles in one of another warp."""
        program = frame.role.program
        reads = program.weights | {vector.tensor for vector in program.vectors if vector.is_sent}
        first = device.equal(device.thread(), 0)
        if frame.tiles is None:
            with when_reading(first, reads):
                self._produce("all", frame)
            return
        with device.when(first):
            for number, map_ in enumerate(program.maps):
                if map_.tensor not in program.weights:
                    tma.prefetch_map(tma.map_pointer(frame.maps, number))
        with when_reading(device.equal(device.thread(), warps.WARP), reads):
            self._produce("weights", frame)
        with device.when(first):
            self._produce("tiles", frame)

    def _produce(self, copies: str, frame: _Frame) -> None:
        rings, queues = frame.rings(), frame.queues()
        if copies != "tiles":
            frame.vectors.send()

        def body(number: ir.Value, row: ir.Value, column: ir.Value | None) -> None:
            Producer(frame.role.program, frame.maps, rings, row, column, number, queues, copies).emit()

        self._tiles(frame, rings, body)

    def _consume(self, frame: _Frame) -> None:
        self._receive(frame)
        leader = device.equal(device.mod(device.thread(), wgmma.THREADS), 0)
        boxes = Boxes.of(device.thread(), leader)
        rings = frame.rings()
        if frame.role.program.cluster > 1:
            rings.exchange = self._exchange(frame, boxes)
        outbox = self._outbox(frame, boxes)
        split = len(self.tensors)
        tensors = {hash(value): pointer for value, pointer in zip(self.tensors, frame.pointers)}
        strides = {hash(self.tensors[number]): padded_row(self.tensors[number]) for number in self.padded}
        outputs = {result.position: pointer for result, pointer in zip(self.results, frame.pointers[split:])}

        queues, program = frame.queues(), frame.role.program
        stashes = device.add(frame.base, frame.role.layout.stashes)

        def consumer(number: ir.Value, row: ir.Value, column: ir.Value | None) -> Consumer:
            valid = device.least(device.sub(frame.grid.rows, row), self.tile_rows)
            own = device.add(boxes.first_row, Boxes.of(warps.thread(), leader).own_row)
            own_rows, last = (device.value(own), device.value(device.add(own, 8))), device.sub(valid, 1)
            lanes = Lanes(own_rows, tuple(device.least(row, last) for row in own_rows), boxes.pair)
            first_row = arith.extui(ir.IntegerType.get_signless(64), row)
            around = Around(
                *(
                    tensors,
                    strides,
                    outputs,
                    device.shared(frame.vectors.place),
                    first_row,
                    valid,
                    boxes,
                    outbox,
                    column,
                ),
                *(number, queues, stashes),
            )
            return Consumer(program, lanes, rings, around)

        self._tiles(frame, rings, lambda number, row, column: consumer(number, row, column).emit())
        if outbox is not None:
            outbox.finish()

    def _exchange(self, frame: _Frame, own: Boxes) -> Exchange:
        layout, boxes = frame.role.layout, frame.role.program.exchanged_boxes
        places = layout.boxes, layout.outboxes, layout.sums, self._exchange_barriers(frame)
        zero = device.value(0)
        return Exchange(self.cluster, boxes, frame.base, *places, own, zero, zero)

    def _outbox(self, frame: _Frame, boxes: Boxes) -> Outbox | None:
        if not frame.role.program.uses_outboxes:
            return None
        return Outbox(frame.maps, device.add(frame.base, frame.role.layout.outboxes), boxes)

    def _finish(self, kernel: Frame) -> None:
        device.barrier()
        waits.leave_if_reported()
        with device.when(device.equal(device.thread(), 0)):
            counters.finish(kernel.workspace, self.counter_bytes, self.ctas)
