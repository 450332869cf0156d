"""The kernel of a product that sums over the rows: a partial sum in the registers of each CTA, then a tree.

    @pipeline(maps: struct by value, tensors..., output, workspace, rows: i32)

CTAs are in groups of as many as the sum has blocks, one a block; group s of n takes the tiles of 64 rows s, s + n, ....
A producer thread streams boxes of both operands; each of two warpgroups multiplies them across the rows into 64 rows of
the block, which stay in its registers. At the end tree.py adds the blocks of all groups up.
"""

from __future__ import annotations

import json

from kitsune_mlir import rows
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.evaluate import Evaluator
from kitsune_mlir.codegen.pipeline.memory import Memory, element_of, shape_of
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.mlir import arith, ir
from kitsune_mlir.planning.target import Target

from . import accumulate, mbarrier, tma, warps, wgmma
from .accumulate import BARRIER_BYTES, BLOCK_ROWS, BOX_BYTES, GROUPS, TILE_ROWS, Total
from .fragments import BLOCK, HALVES
from .frame import Frame, build, pointer_count
from .mbarrier import Ring, Slot
from .tree import Tree, workspace_bytes
from .wgmma import CHUNK

THREADS = (1 + GROUPS) * wgmma.THREADS
CONSUMERS = GROUPS * wgmma.THREADS
PRODUCER_REGISTERS, CONSUMER_REGISTERS = 24, 240
BARRIER = 1  # of the consumers
STEPS = TILE_ROWS // wgmma.STEP


class AccumulateKernel:
    """Builds the gpu.module of a placed pipeline that is one such product. Raises UnsupportedError for any other."""

    padded: frozenset[int] = frozenset()

    def __init__(self, pipeline: kitsune.PipelineOp, target: Target):
        self.pipeline = pipeline
        self.plan = accumulate.fit(pipeline, target)
        self.tensors, self.results = self.plan.tensors, [self.plan.total.result]
        self.ends = [self.plan.total.end]
        self.ctas = pipeline.stages[0].replicas or self.plan.blocks
        self.groups = self.ctas // self.plan.blocks
        self.slots = self.plan.slots(target)
        self.height, self.width = self.plan.blocks_down * BLOCK_ROWS, self.plan.blocks_across * self.plan.columns

    def streams(self) -> list[int]:
        """The numbers of the streamed tensors among the arguments; all have the same rows."""
        return sorted({self.plan.left, self.plan.right})

    def launch(self) -> str:
        """What the runtime needs to launch the kernel, JSON."""
        return json.dumps(
            {
                "kernel": self.pipeline.label,
                "ctas": self.groups * self.plan.blocks,
                "threads": THREADS,
                "shared_bytes": BARRIER_BYTES + self.slots * self.plan.slot_bytes,
                "workspace_bytes": workspace_bytes(self.groups, self.height, self.width),
                "cooperative": True,
                "watched": [],
                "streams": self.streams(),
                "tile_rows": TILE_ROWS,
                "maps": [map_.description() for map_ in self.plan.maps],
                "sums": True,
            }
        )

    def build(self) -> ir.Operation:
        """The gpu.module, at the insertion point."""
        count = pointer_count(self.tensors, self.results)
        return build(self.pipeline.label, count, len(self.plan.maps), THREADS, self._body)

    def _body(self, frame: Frame) -> None:
        ring = Ring(frame.base, device.add(frame.base, BARRIER_BYTES), self.slots, self.plan.slot_bytes)
        with device.when(device.equal(device.thread(), 0)):
            ring.init(1, GROUPS)
            mbarrier.fence_init()
        device.barrier()
        group = device.div(device.thread(), wgmma.THREADS)
        block, share = device.mod(device.cta(), self.plan.blocks), device.div(device.cta(), self.plan.blocks)
        row = device.mul(device.div(block, self.plan.blocks_across), BLOCK_ROWS)
        column = device.mul(device.mod(block, self.plan.blocks_across), self.plan.columns)
        branch = device.scf.IfOp(device.equal(group, 0), has_else=True)
        with ir.InsertionPoint(branch.then_block):
            warps.set_registers(PRODUCER_REGISTERS, grow=False)
            with device.when(device.equal(device.thread(), 0)):
                self._produce(frame, ring, share, row, column)
            device.scf.YieldOp([])
        with ir.InsertionPoint(branch.else_block):
            warps.set_registers(CONSUMER_REGISTERS, grow=True)
            self._consume(frame, ring, share, device.sub(group, 1), row, column)
            device.scf.YieldOp([])

    def _tiles(self, frame: Frame, share: device.Int, body, carried: list[ir.Value]) -> list[ir.Value]:
        tiles = device.div(device.add(frame.rows, TILE_ROWS - 1), TILE_ROWS)
        return device.loop(share, tiles, self.groups, body, carried)

    def _produce(self, frame: Frame, ring: Ring, share: device.Int, row: device.Int, column: device.Int) -> None:
        """The copies of one operand's columns after the other's."""
        boxes = [(0, device.add(row, i * CHUNK)) for i in range(GROUPS)]
        boxes += [(1, device.add(column, i * CHUNK)) for i in range(self.plan.columns // CHUNK)]

        def tile(number: ir.Value, state: list[ir.Value]) -> list[ir.Value]:
            slot = Slot(*state)
            ring.wait_empty(slot)
            mbarrier.expect(ring.full(slot), self.plan.slot_bytes)
            for i, (map_, start) in enumerate(boxes):
                place = device.add(ring.place(slot), i * BOX_BYTES)
                at = [start, device.mul(number, TILE_ROWS)]
                tma.load(tma.map_pointer(frame.maps, map_), at, place, ring.full(slot))
            slot = ring.advance(slot)
            return [slot.number, slot.parity]

        start = ring.start()
        self._tiles(frame, share, tile, [start.number, start.parity])

    def _consume(
        self, frame: Frame, ring: Ring, share: device.Int, group: device.Int, row: device.Int, column: device.Int
    ) -> None:
        thread = device.sub(device.thread(), wgmma.THREADS)
        leader = device.equal(thread, 0)
        sums = self._multiply(frame, ring, share, group)
        shape = self.plan.total.shape
        ctas = self.groups * self.plan.blocks
        tree = Tree(frame.workspace, self.groups, self.height, self.width, *shape, ctas, CONSUMERS, BARRIER)
        lane, warp = device.mod(thread, 32), device.div(device.mod(thread, wgmma.THREADS), 32)
        in_group = device.add(device.mul(warp, 16), device.div(lane, 4))
        own_row = device.add(row, device.add(device.mul(group, wgmma.ROWS), in_group))
        own_column = device.add(column, device.mul(device.mod(lane, 4), 2))
        for block in range(self.plan.columns // BLOCK):
            for h in HALVES:
                pair = sums[4 * block + 2 * h], sums[4 * block + 2 * h + 1]
                tree.leave(share, device.add(own_row, BLOCK * h), device.add(own_column, BLOCK * block), pair)
        tree.sync(leader)
        writer = TotalWriter(self.plan.total, self.tensors, frame.pointers)
        tree.add_up(device.cta(), thread, writer.write)
        tree.finish(leader)

    def _multiply(self, frame: Frame, ring: Ring, share: device.Int, group: device.Int) -> list[ir.Value]:
        """The warpgroup's rows of the block, summed over the group's tiles."""
        count = self.plan.columns // 2
        last_thread = device.equal(device.mod(device.thread(), wgmma.THREADS), 0)
        wgmma.fence()

        def tile(number: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            sums, before, slot = carried[:count], Slot(*carried[count : count + 2]), Slot(*carried[count + 2 :])
            ring.wait_full(slot)
            left = ring.place(slot)
            a = wgmma.descriptor(device.add(left, device.mul(group, BOX_BYTES)))
            b = wgmma.descriptor(device.add(left, GROUPS * BOX_BYTES), next_box=BOX_BYTES)
            first = device.equal(number, share)
            sums = wgmma.multiply(self.plan.element, sums, a, b, STEPS, first, across=(True, True))
            wgmma.wait(1)
            free = arith.andi(last_thread, arith.xori(first, arith.constant(first.type, 1)))
            mbarrier.arrive(ring.empty(before), free)
            following = ring.advance(slot)
            return [*sums, slot.number, slot.parity, following.number, following.parity]

        start, zero = ring.start(), arith.constant(ir.F32Type.get(), 0.0)
        state = [start.number, start.parity]
        results = self._tiles(frame, share, tile, [*[zero] * count, *state, *state])
        return wgmma.wait_for(results[:count])


class TotalWriter:
    """Writes elements of a sum to the output, with what follows the sum applied."""

    def __init__(self, total: Total, tensors: list[ir.Value], pointers: list[ir.Value], output: int = 0):
        self.total, self.output = total, pointers[len(tensors) + output]
        self.memories = {
            hash(value): Memory(pointer, element_of(value), shape_of(value), 0)
            for value, pointer in zip(tensors, pointers)
            if rows.DYNAMIC not in shape_of(value)
        }
        for memory in self.memories.values():
            memory.stride = memory.columns

    def write(self, row: device.Int, column: device.Int, sums: list[ir.Value]) -> None:
        """Neighbouring elements of a row."""
        total, evaluator = self.total, Evaluator(self.memories)
        _, n = total.shape
        memory = Memory(self.output, element_of(total.end), shape_of(total.end), n)
        base = device.value(column)
        for e, x in enumerate(sums):
            index = [row, device.Offset(base, e)]
            evaluator.know(total.value, index, x)
            evaluator.know(total.result.results[0], index, evaluator(total.stored, index))
            memory.store(row, index[1], evaluator(total.end, index))
