"""The kernel of a product that sums over the rows: a partial sum in the registers of each CTA, then a tree.

    @pipeline(maps: struct by value, tensors..., outputs..., workspace, rows: i32)

CTAs are in groups of as many as the sum has blocks, one a block; group s of n takes the tiles of 64 rows s, s + n, ....
A producer thread streams boxes of both operands; each of two warpgroups multiplies them across the rows into 64 rows of
the block, which stay in its registers. At the end tree.py adds the blocks of all groups up, in the same launch or in a
second one ("hbm"); with "dsmem" those of a cluster, whose CTAs then have the same block, are added first
(cluster_sum.py). Where the right tile is computed, or another product takes it, see multicast.py.

    shared memory: barriers | slots: boxes of the left tile, of the right tile's loads | weight of the product beside
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from kitsune_mlir import rows
from kitsune_mlir.codegen import index_checks
from kitsune_mlir.codegen.pipeline import counters, device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.codegen.pipeline.evaluate import Evaluator
from kitsune_mlir.codegen.pipeline.memory import Memory, element_of, shape_of
from kitsune_mlir.codegen.pipeline.watch import Waits
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.mlir import arith, ir
from kitsune_mlir.planning.target import Target

from . import accumulate, cluster, mbarrier, shares, tma, waits, warps, wgmma
from .accumulate import BARRIER_BYTES, BLOCK_ROWS, BOX_BYTES, GROUPS, TILE_ROWS, Accumulation
from .cluster_sum import SUMS, ClusterSum
from .fragments import BLOCK, HALVES
from .frame import Frame, build, pointer_count
from .mbarrier import Ring, Slot
from .multicast import BesideProduct, InPlace
from .shares import ClusterShares, L2Shares, Shares
from .stores import Boxes
from .tree import OTHERS_AT, Tree
from .wgmma import CHUNK

THREADS = (1 + GROUPS) * wgmma.THREADS
CONSUMERS = GROUPS * wgmma.THREADS
PRODUCER_REGISTERS, CONSUMER_REGISTERS = 24, 240
BARRIER = 1  # of all consumers; those of a warpgroup alone follow
STEPS = TILE_ROWS // wgmma.STEP
CLUSTER_BARRIERS = 3  # that the CTAs of a cluster come to after waits, at most
_ALIGN = 256


class AccumulateKernel:
    """Builds the gpu.module of a placed pipeline around one such product. Raises UnsupportedError for any other.
    `ends` are the values that its outputs take the place of."""

    def __init__(self, pipeline: kitsune.PipelineOp, target: Target, wait_budget: int = 0):
        self.pipeline, self.waits = pipeline, Waits(wait_budget)
        self.plan = accumulate.fit(pipeline, target, pipeline.cluster)
        self.tensors, self.results = self.plan.tensors, [output.result for output in self.plan.outputs]
        self.ends = [output.end for output in self.plan.outputs]
        self.groups = max(1, (pipeline.stages[0].replicas or 1) // self.plan.blocks)
        self.ctas = self.adders = self.groups * self.plan.blocks  # the latter add partial sums up
        self.cluster = pipeline.cluster
        self.apart = self.plan.total.transport == "hbm"  # a second launch adds the partial sums up
        self.added_first = self.cluster if self.plan.total.transport == "dsmem" else 1
        self.partials = self.groups // self.added_first
        self.slots = self.plan.slots(target)
        self.shared_bytes = BARRIER_BYTES + self.slots * self.plan.slot_bytes + self.plan.weight_bytes
        self.height, self.width = self.plan.blocks_down * BLOCK_ROWS, self.plan.blocks_across * self.plan.columns
        # The workspace: counters, partial sums, a ring of shares of tiles (shares.py).
        counted, ring_bytes = 0, 0
        if self.plan.tiles == "l2":
            counted, ring_bytes = shares.l2_bytes(self.ctas, self.groups, self.plan.right_boxes)
        self.counter_bytes = OTHERS_AT + counted
        self.ring_at = aligned(self.counter_bytes + self.partials * self.height * self.width * 4)
        self.workspace_bytes = self.ring_at + ring_bytes

    def streams(self) -> list[int]:
        """The numbers of the streamed tensors among the arguments; all have the same rows."""
        loads = (self.plan.left, *self.plan.loads)
        return sorted({self.plan.number(rows.producer(tile).operands[0]) for tile in loads})

    def launch(self) -> str:
        """What the runtime needs to launch the kernel, JSON."""
        return json.dumps(
            {
                "kernel": self.pipeline.label,
                "ctas": self.ctas,
                "cluster": self.cluster,
                "threads": THREADS,
                "shared_bytes": self.shared_bytes,
                "workspace_bytes": self.workspace_bytes,
                "counter_bytes": min(self.counter_bytes, self.workspace_bytes),
                "cooperative": not self.apart,
                "watched": self.waits.described,
                "streams": self.streams(),
                "tile_rows": TILE_ROWS,
                "maps": [map_.description() for map_ in self.plan.maps],
                "sums": True,
                **index_checks.sizes(self.pipeline, self.tensors),
            }
        )

    def shares(self, frame: Frame, block: Int, group: Int, barriers: Int, ring: Ring) -> Shares | None:
        """What CTA `block` of a group tells the others of a tile; None where each computes it all."""
        place = self.plan.blocks, block, self.plan.own_boxes, barriers, ring
        if self.plan.tiles == "dsmem":
            return ClusterShares(*place)
        if self.plan.tiles != "l2":
            return None
        own = []
        for start, end in ((OTHERS_AT, self.counter_bytes), (self.ring_at, self.workspace_bytes)):
            first, i8 = device.mul(group, (end - start) // self.groups), ir.IntegerType.get_signless(8)
            own.append(device.offset(device.offset(frame.workspace, start, i8), first, i8))
        return L2Shares(*place, *own)

    def build(self) -> ir.Operation:
        """The gpu.module, at the insertion point."""
        label, count, maps = self.pipeline.label, pointer_count(self.tensors, self.results), len(self.plan.maps)
        then = self._add_up_apart if self.apart else None
        return build(label, count, maps, THREADS, self._sum, self.cluster, then)

    def _sum(self, frame: Frame) -> None:
        """The code of the first launch."""
        with waits.watched(self.waits.watch(frame.workspace), barriers=CLUSTER_BARRIERS if self.cluster > 1 else 0):
            Body(self, frame).emit()

    def tree(self, frame: Frame, threads: int) -> Tree:
        """Adds partial sums up with so many threads of each CTA."""
        shape = self.height, self.width, self.plan.m, self.plan.n
        return Tree(frame.workspace, self.counter_bytes, self.partials, *shape, self.adders, threads, BARRIER)

    def finish(self, frame: Frame, leader: ir.Value) -> None:
        """A CTA waits on no counter any more; `leader` holds in one of its threads."""
        with device.when(leader):
            counters.finish(frame.workspace, self.counter_bytes, self.ctas)

    def _add_up_apart(self, frame: Frame) -> None:
        """The code of the second launch."""
        writer = TotalWriter(self.plan, frame.pointers)
        self.tree(frame, THREADS).add_up(device.cta(), device.thread(), writer.write)


class Body:
    """The code of a CTA: number `share` of the groups, block `block` of the sum, from `row` and `column` on. CTA `rank`
    of a cluster leaves a part of partial sum `partial`."""

    def __init__(self, kernel: AccumulateKernel, frame: Frame):
        self.kernel, self.plan, self.frame, self.cta = kernel, kernel.plan, frame, device.cta()
        data = device.add(frame.base, BARRIER_BYTES)
        self.ring = Ring(frame.base, data, kernel.slots, self.plan.slot_bytes, "tiles")
        self.weights = device.add(data, kernel.slots * self.plan.slot_bytes)
        self.weights_full = device.add(frame.base, self.ring.barrier_bytes)
        together = kernel.added_first
        self.rank, first = device.mod(self.cta, together), device.div(self.cta, together)
        self.block, self.partial = device.mod(first, self.plan.blocks), device.div(first, self.plan.blocks)
        self.share, self.step = device.add(device.mul(self.partial, together), self.rank), kernel.groups
        self.row = device.mul(device.div(self.block, self.plan.blocks_across), BLOCK_ROWS)
        self.column = device.mul(device.mod(self.block, self.plan.blocks_across), self.plan.columns)
        self.shares = kernel.shares(
            frame, self.block, self.share, device.add(self.weights_full, mbarrier.BYTES), self.ring
        )
        self.first_box = device.mul(self.block, self.plan.own_boxes) if self.shares else 0

    def emit(self) -> None:
        in_cluster = isinstance(self.shares, ClusterShares)
        with device.when(device.equal(device.thread(), 0)):
            self.ring.init(1, GROUPS * self.plan.blocks if in_cluster else GROUPS)
            mbarrier.init(self.weights_full, 1)
            if self.shares is not None:
                self.shares.init()
            mbarrier.fence_init()
        cluster.barrier() if in_cluster else device.barrier()
        group = device.div(device.thread(), wgmma.THREADS)
        branch = device.scf.IfOp(device.equal(group, 0), has_else=True)
        with ir.InsertionPoint(branch.then_block):
            warps.set_registers(PRODUCER_REGISTERS, grow=False)
            with device.when(device.equal(device.thread(), 0)):
                self._produce()
            device.scf.YieldOp([])
        with ir.InsertionPoint(branch.else_block):
            warps.set_registers(CONSUMER_REGISTERS, grow=True)
            with waits.together(BARRIER, CONSUMERS, device.equal(device.thread(), wgmma.THREADS)):
                SumConsumer(self, device.value(device.sub(group, 1))).emit()
            device.scf.YieldOp([])

    def tiles(
        self, body: Callable[[ir.Value, list[ir.Value]], list[ir.Value]], carried: list[ir.Value]
    ) -> list[ir.Value]:
        def tile(number: ir.Value, state: list[ir.Value]) -> list[ir.Value]:
            with waits.at_tile(number):
                return body(number, state)

        return device.loop(self.share, self.tile_count, self.step, tile, carried)

    @property
    def tile_count(self) -> Int:
        """How many tiles the call has."""
        return device.div(device.add(self.frame.rows, TILE_ROWS - 1), TILE_ROWS)

    def _produce(self) -> None:
        boxes = [(0, device.add(self.row, i * CHUNK), i) for i in range(GROUPS)]  # map, first column, place
        first = device.add(self.column, device.mul(self.first_box, CHUNK))
        for load in range(len(self.plan.loads)):
            boxes += [
                (1 + load, device.add(first, i * CHUNK), self.plan.box(load, i, self.first_box))
                for i in range(self.plan.own_boxes)
            ]
        ring = self.ring

        def tile(number: ir.Value, state: list[ir.Value]) -> list[ir.Value]:
            slot = Slot(*state)
            (self.shares or ring).wait_empty(slot)
            mbarrier.expect(ring.full(slot), len(boxes) * BOX_BYTES)
            for map_, start, place in boxes:
                at = [start, device.mul(number, TILE_ROWS)]
                self._load(map_, at, device.add(ring.place(slot), device.mul(place, BOX_BYTES)), ring.full(slot))
            slot = ring.advance(slot)
            return [slot.number, slot.parity]

        if self.plan.beside is not None:
            with device.when(self.any_rows):
                self._produce_weights()
        start = ring.start()
        self.tiles(tile, [start.number, start.parity])

    def _produce_weights(self) -> None:
        """The CTA's outputs of the weight, all inputs."""
        beside = self.plan.beside
        assert beside is not None
        mbarrier.expect(self.weights_full, self.plan.weight_bytes)
        start = device.mul(self.block, GROUPS * beside.columns)
        for i in range(self.plan.right_boxes):
            for j in range(beside.boxes):
                at = [device.add(start, j * CHUNK), i * CHUNK]
                place = device.add(self.weights, (i * beside.boxes + j) * BOX_BYTES)
                self._load(self.plan.weight_map, at[::-1] if beside.transposed else at, place, self.weights_full)

    def _load(self, map_: int, at: list[Int], place: Int, barrier: Int) -> None:
        tma.load(tma.map_pointer(self.frame.maps, map_), at, place, barrier)

    @property
    def any_rows(self) -> ir.Value:
        """Whether the call has rows; of none there are no maps."""
        return device.less(0, self.frame.rows)


class SumConsumer:
    """The code of warpgroup `group` of a CTA."""

    def __init__(self, body: Body, group: ir.Value):
        self.body, self.plan, self.frame, self.group = body, body.plan, body.frame, group
        self.thread = device.value(device.sub(device.thread(), wgmma.THREADS))  # among all consumers
        self.leader = device.equal(device.mod(self.thread, wgmma.THREADS), 0)
        self.writer = Boxes.of(self.thread, self.leader, BARRIER + 1)
        self.own_row, self.pair = self.writer.own_row, self.writer.pair
        self.beside = self._beside_product()

    def emit(self) -> None:
        if self.plan.beside is not None:
            with device.when(self.body.any_rows):
                waits.on_barrier(self.body.weights_full, 0, "the weight of the product beside")
        count, start = self.plan.columns // 2, self.body.ring.start()
        state, zero = [start.number, start.parity], arith.constant(ir.F32Type.get(), 0.0)
        alone = not self.plan.computes and self.plan.beside is None
        tile = self._tile_ahead if alone else self._tile
        results = self.body.tiles(tile, [*[zero] * count, *state, *state])
        sums = wgmma.wait_for(results[:count])
        if isinstance(self.body.shares, ClusterShares):
            cluster.barrier()  # nobody leaves while others may still write here
        self.add_up(sums)

    def multiply(self, sums: list[ir.Value], place: Int, number: ir.Value) -> list[ir.Value]:
        """Issues the products of a tile across its rows."""
        a = wgmma.descriptor(device.add(place, device.mul(self.group, BOX_BYTES)))
        b = wgmma.descriptor(device.add(place, GROUPS * BOX_BYTES), next_box=BOX_BYTES)
        first = device.equal(number, self.body.share)
        return wgmma.multiply(self.plan.element, sums, a, b, STEPS, first, across=(True, True))

    def _tile_ahead(self, number: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
        """Products alone: the slot before is released while those of this one run."""
        ring, count = self.body.ring, self.plan.columns // 2
        sums, before, slot = carried[:count], Slot(*carried[count : count + 2]), Slot(*carried[count + 2 :])
        ring.wait_full(slot)
        sums = self.multiply(sums, ring.place(slot), number)
        wgmma.wait(1)
        later = arith.xori(device.equal(number, self.body.share), arith.constant(self.leader.type, 1))
        mbarrier.arrive(ring.empty(before), arith.andi(self.leader, later))
        following = ring.advance(slot)
        return [*sums, slot.number, slot.parity, following.number, following.parity]

    def _tile(self, number: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
        """The right tile is computed, then taken by both products."""
        ring, shares, count = self.body.ring, self.body.shares, self.plan.columns // 2
        sums, slot, beside = carried[:count], Slot(*carried[count + 2 :]), self.beside
        ring.wait_full(slot)
        place, first_row = ring.place(slot), device.mul(number, TILE_ROWS)
        if self.plan.computes:
            valid = device.sub(self.frame.rows, first_row)
            InPlace(self.plan, self.thread, CONSUMERS, self.body.first_box).emit(place, valid)
            tma.fence()
            warps.barrier(BARRIER, CONSUMERS)
            if shares is not None:
                shares.exchange(slot, device.div(number, self.body.kernel.groups), device.equal(self.thread, 0))
                warps.barrier(BARRIER, CONSUMERS)  # with the warp whose thread waited for others' counters
        others = beside.multiply(place) if beside is not None else []
        sums = wgmma.wait_for(self.multiply(sums, place, number))
        if beside is not None:
            beside.store(place, wgmma.wait_for(others), first_row)
        if shares is not None:
            shares.release(slot, self.leader)
        else:
            mbarrier.arrive(ring.empty(slot), self.leader)
        following = ring.advance(slot)
        return [*sums, slot.number, slot.parity, following.number, following.parity]

    def _beside_product(self) -> BesideProduct | None:
        beside = self.plan.beside
        if beside is None:
            return None
        number = device.add(device.mul(self.body.block, GROUPS), self.group)
        start = device.value(device.mul(number, beside.columns))
        residents = {hash(value): pointer for value, pointer in zip(self.plan.tensors, self.frame.pointers)}
        weights = self.body.weights
        return BesideProduct(self.plan, beside, self.frame.maps, weights, self.group, start, self.writer, residents)

    def add_up(self, sums: Sequence[ir.Value]) -> None:
        kernel, blocks = self.body.kernel, self.plan.columns // BLOCK
        leader, tree = device.equal(self.thread, 0), kernel.tree(self.frame, CONSUMERS)
        if kernel.added_first == 1:
            self._leave(tree, 0, [sums[SUMS * block : SUMS * block + SUMS] for block in range(blocks)])
        else:
            whole = ClusterSum(kernel.added_first, self.body.rank, self.body.ring.data, blocks, self.thread, CONSUMERS)
            whole.exchange(sums)
            self._leave(tree, whole.first(), [whole.block(number) for number in range(whole.share)])
        if not kernel.apart:
            tree.sync(leader)
            tree.add_up(self.body.cta, self.thread, TotalWriter(self.plan, self.frame.pointers).write)
            kernel.finish(self.frame, leader)

    def _leave(self, tree: Tree, first: Int, blocks: Sequence[Sequence[ir.Value]]) -> None:
        """The thread's sums in blocks of 8 columns from number `first` on."""
        row = device.add(self.body.row, device.add(device.mul(self.group, wgmma.ROWS), self.own_row))
        column = device.add(device.add(self.body.column, self.pair), device.mul(first, BLOCK))
        for number, sums in enumerate(blocks):
            for h in HALVES:
                place = device.add(row, BLOCK * h), device.add(column, BLOCK * number)
                tree.leave(self.body.partial, *place, (sums[2 * h], sums[2 * h + 1]))


def aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGN) * _ALIGN


class TotalWriter:
    """Writes elements of the sum to its output, with what follows the sum applied."""

    def __init__(self, plan: Accumulation, pointers: list[ir.Value]):
        self.plan, total = plan, plan.total
        pointer = pointers[len(plan.tensors) + plan.outputs.index(total)]
        shape = shape_of(total.end)
        self.output = Memory(pointer, element_of(total.end), shape, shape[1])
        self.memories: dict[int, Memory] = {}
        for value, address in zip(plan.tensors, pointers):
            memory = Memory(address, element_of(value), shape_of(value), 0)
            if rows.DYNAMIC not in memory.shape:
                memory.stride = memory.columns
                self.memories[hash(value)] = memory

    def write(self, row: Int, column: Int, sums: list[ir.Value]) -> None:
        """Neighbouring elements of a row of left^T right."""
        total, evaluator = self.plan.total, Evaluator(self.memories)
        base = device.value(column)
        for e, x in enumerate(sums):
            index: list[Int] = [row, device.Offset(base, e)]
            if self.plan.transposed:
                index.reverse()
            evaluator.know(total.value, index, x)
            evaluator.know(total.result.results[0], index, evaluator(total.stored, index))
            self.output.store(index[0], index[1], evaluator(total.end, index))
