"""The kernel of a sum over the rows whose stages run on CTAs of their own: one computes tiles, two take them.

    first CTAs: loads -> the right tile, in place -> ring in L2
    next CTAs:  ring -> product beside, its whole weight in shared memory -> output
    last CTAs:  ring, left tile -> product across the rows -> partial sums -> tree

CTA i of n of the first two takes the tiles of 64 rows i, i + n, ...; of the last, a group of as many as the sum has
blocks does. The ring holds tiles as they lie in shared memory; it is written and read by bulk copies.
"""

from __future__ import annotations

import contextlib
import dataclasses

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.counters import COUNTER_BYTES
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, ir, location
from kitsune_mlir.planning.target import Target

from . import accumulate, bulk, mbarrier, tma, waits, warps, wgmma
from .accumulate import BARRIER_BYTES, BLOCK_ROWS, BOX_BYTES, GROUPS, LEAST_SLOTS, MOST_SLOTS, TILE_ROWS, Accumulation
from .accumulate_kernel import (
    BARRIER,
    CONSUMER_REGISTERS,
    CONSUMERS,
    PRODUCER_REGISTERS,
    AccumulateKernel,
    Body,
    SumConsumer,
    aligned,
)
from .frame import Frame
from .mbarrier import Ring, Slot
from .multicast import InPlace
from .tile_ring import RingPlace, TileRing
from .tree import OTHERS_AT
from .wgmma import CHUNK, MOST_COLUMNS

LEFT_BYTES = GROUPS * BOX_BYTES


def fit(pipeline: kitsune.PipelineOp, target: Target) -> Accumulation:
    """The accumulation, with the product beside whole in one CTA. Raises UnsupportedError for what has no such form."""
    plan, beside = accumulate.fit(pipeline, target, 1), None
    stages_of(pipeline)
    if plan.beside is not None and plan.computes:
        beside = dataclasses.replace(plan.beside, columns=plan.beside.columns * plan.blocks_down)
    if beside is None or beside.columns > MOST_COLUMNS or beside.boxes > plan.right_boxes:
        raise UnsupportedError("a product beside a sum over the rows is not given CTAs of its own")
    plan.beside = beside
    if any(slots < LEAST_SLOTS for _, slots in slots_of(plan, target)):
        raise UnsupportedError("shared memory does not hold the tiles of stages on CTAs of their own")
    return plan


def stages_of(pipeline: kitsune.PipelineOp) -> tuple[kitsune.StageOp, ...]:
    """Those that compute tiles, multiply them, and sum. Raises UnsupportedError unless these are all but the last."""
    *stages, last = pipeline.stages
    kinds = [(bool(stage.puts), bool(stage.stores), bool(stage.accumulates)) for stage in stages]
    if kinds != [(True, False, False), (False, True, False), (False, False, True)] or not last.reduces:
        raise UnsupportedError("the stages around a sum over the rows are not one that computes, two that multiply")
    return tuple(stages)


def slots_of(plan: Accumulation, target: Target) -> list[tuple[int, int]]:
    """For each role the bytes of a slot in shared memory, and how many there are."""
    tile, room = plan.right_boxes * BOX_BYTES, target.shared_bytes - BARRIER_BYTES
    sizes = [(len(plan.loads) * tile, room), (tile, room - plan.weight_bytes), (LEFT_BYTES + tile, room)]
    return [(size, min(MOST_SLOTS, room // size)) for size, room in sizes]


class SpatialSumKernel(AccumulateKernel):
    """Builds the gpu.module of a pipeline placed so. Raises UnsupportedError for any other."""

    def __init__(self, pipeline: kitsune.PipelineOp, target: Target, wait_budget: int = 0):
        super().__init__(pipeline, target, wait_budget)
        self.plan = fit(pipeline, target)
        self.replicas = [stage.replicas or 1 for stage in stages_of(pipeline)]
        self.layouts = slots_of(self.plan, target)
        self.ctas, self.adders = sum(self.replicas), self.replicas[2]
        self.groups = self.partials = self.adders // self.plan.blocks
        weights = (0, self.plan.weight_bytes, 0)
        sizes = [size * slots + extra for (size, slots), extra in zip(self.layouts, weights)]
        self.shared_bytes = BARRIER_BYTES + max(sizes)
        queue = next(queue for queue in pipeline.queues if queue.label == self._queue_name())
        self.counter_bytes = OTHERS_AT + 2 * COUNTER_BYTES * queue.ring.slots
        self.ring_at = aligned(self.counter_bytes + self.partials * self.height * self.width * 4)
        self.tile_bytes = self.plan.right_boxes * BOX_BYTES
        self.workspace_bytes = self.ring_at + queue.ring.slots * self.tile_bytes
        where = location(queue.operation.location)
        self.place = RingPlace(queue.label, where, OTHERS_AT, self.ring_at, queue.ring.slots, 1)

    def _queue_name(self) -> str:
        (put,) = stages_of(self.pipeline)[0].puts
        return put.operands[0].owner.opview.label

    def _sum(self, frame: Frame) -> None:
        with waits.watched(self.waits.watch(frame.workspace)):
            first, roles = 0, []
            for kind, replicas, layout in zip((_Maker, _Multiplier, _Adder), self.replicas, self.layouts):
                roles.append(kind(self, frame, first, replicas, *layout))
                first += replicas
            self._roles(roles)

    def _roles(self, roles: list[_Role]) -> None:
        for role in roles:
            with role.here():
                role.init()
        device.barrier()
        group = device.div(device.thread(), wgmma.THREADS)
        branch = device.scf.IfOp(device.equal(group, 0), has_else=True)
        with ir.InsertionPoint(branch.then_block):
            warps.set_registers(PRODUCER_REGISTERS, grow=False)
            with device.when(device.equal(device.thread(), 0)):
                for role in roles:
                    with role.here():
                        role.produce()
            device.scf.YieldOp([])
        with ir.InsertionPoint(branch.else_block):
            warps.set_registers(CONSUMER_REGISTERS, grow=True)
            with waits.together(BARRIER, CONSUMERS, device.equal(device.thread(), wgmma.THREADS)):
                for role in roles:
                    with role.here():
                        role.consume(device.value(device.sub(group, 1)))
            device.scf.YieldOp([])


class _Role(Body):
    """The code of CTA `cta` of the `ctas` of a role, which are the grid's from `first` on."""

    arrivals = GROUPS  # that empty a slot
    takes = True  # tiles from the ring in L2

    def __init__(self, kernel: SpatialSumKernel, frame: Frame, first: int, ctas: int, slot_bytes: int, slots: int):
        self.kernel, self.plan, self.frame, self.first, self.ctas = kernel, kernel.plan, frame, first, ctas
        self.cta = device.sub(device.cta(), first)
        self.share, self.step, self.block, self.row = device.value(self.cta), ctas, 0, 0
        data = device.add(frame.base, BARRIER_BYTES)
        self.ring = Ring(frame.base, data, slots, slot_bytes, "tiles")
        self.weights = device.add(data, slots * slot_bytes)
        self.weights_full = device.add(frame.base, self.ring.barrier_bytes)
        takers = 1 + self.plan.blocks
        self.queue = TileRing(kernel.place, frame.workspace, TILE_ROWS, makers=1, takers=takers)

    def here(self) -> contextlib.AbstractContextManager[None]:
        """Code for the CTAs of the role."""
        below = device.less(device.cta(), self.first + self.ctas)
        return device.when(arith.andi(below, device.less(self.first - 1, device.cta())))

    def init(self) -> None:
        with device.when(device.equal(device.thread(), 0)):
            self.ring.init(1, self.arrivals)
            mbarrier.init(self.weights_full, 1)
            mbarrier.fence_init()

    def produce(self) -> None:
        def tile(number: ir.Value, state: list[ir.Value]) -> list[ir.Value]:
            slot = Slot(*state)
            self.ring.wait_empty(slot)
            if self.takes:
                self.queue.wait_full(number)  # before the arrival, whose waiters then come after the tile's maker
            mbarrier.expect(self.ring.full(slot), self.ring.slot_bytes)
            self.load(number, self.ring.place(slot), self.ring.full(slot))
            slot = self.ring.advance(slot)
            return [slot.number, slot.parity]

        start = self.ring.start()
        self.tiles(tile, [start.number, start.parity])

    def load(self, number: ir.Value, place: Int, full: Int) -> None:
        """One thread: fills a slot."""
        raise NotImplementedError

    def take(self, number: ir.Value, place: Int, full: Int) -> None:
        """One thread: copies a tile in from the ring in L2."""
        bulk.load(self.in_l2(number), place, self.kernel.tile_bytes, full)

    def in_l2(self, number: ir.Value) -> ir.Value:
        at = device.mul(device.mod(number, self.queue.place.slots), self.kernel.tile_bytes)
        i8 = ir.IntegerType.get_signless(8)
        return device.offset(device.offset(self.frame.workspace, self.queue.place.data, i8), at, i8)

    def consume(self, group: ir.Value) -> None:
        """The code of a warpgroup."""
        raise NotImplementedError


class _Maker(_Role):
    """Computes tiles. A tile is published once the next one is computed: its copy then has ended."""

    arrivals, takes = 1, False

    def load(self, number: ir.Value, place: Int, full: Int) -> None:
        boxes = self.plan.right_boxes
        for i in range(len(self.plan.loads) * boxes):
            at = [i % boxes * CHUNK, device.mul(number, TILE_ROWS)]
            self._load(1 + i // boxes, at, device.add(place, i * BOX_BYTES), full)

    def consume(self, group: ir.Value) -> None:
        thread = device.value(device.sub(device.thread(), wgmma.THREADS))
        leader = device.equal(thread, 0)

        def tile(number: ir.Value, state: list[ir.Value]) -> list[ir.Value]:
            slot, before = Slot(*state[:2]), Slot(*state[2:])
            self.ring.wait_full(slot)
            place = self.ring.place(slot)
            valid = device.sub(self.frame.rows, device.mul(number, TILE_ROWS))
            InPlace(self.plan, thread, CONSUMERS, 0).emit(device.sub(place, LEFT_BYTES), valid)
            tma.fence()
            warps.barrier(BARRIER, CONSUMERS)
            with device.when(leader):
                with device.when(device.less(self.share, number)):
                    self._publish(device.sub(number, self.step), before)
                self.queue.wait_empty(number)
                bulk.store(place, self.in_l2(number), self.kernel.tile_bytes)
                tma.commit()
            following = self.ring.advance(slot)
            return [following.number, following.parity, slot.number, slot.parity]

        start = self.ring.start()
        *_, number, parity = self.tiles(tile, [start.number, start.parity] * 2)
        count = self.tile_count
        with device.when(arith.andi(leader, device.less(self.share, count))):
            rounds = device.div(device.sub(device.sub(count, 1), self.share), self.step)
            self._publish(device.add(self.share, device.mul(rounds, self.step)), Slot(number, parity))
        waits.leave_if_reported()
        self.kernel.finish(self.frame, leader)

    def _publish(self, number: Int, slot: Slot) -> None:
        self.queue.publish(device.value(number))
        mbarrier.arrive(self.ring.empty(slot), arith.constant(ir.IntegerType.get_signless(1), 1))


class _Multiplier(_Role):
    """The product beside."""

    def produce(self) -> None:
        with device.when(self.any_rows):
            self._produce_weights()
        super().produce()

    def load(self, number: ir.Value, place: Int, full: Int) -> None:
        self.take(number, place, full)

    def consume(self, group: ir.Value) -> None:
        with device.when(self.any_rows):
            waits.on_barrier(self.weights_full, 0, "the weight of the product beside")
        warpgroup, ring = SumConsumer(self, group), self.ring
        beside, leader = warpgroup.beside, device.equal(warpgroup.thread, 0)
        assert beside is not None

        def tile(number: ir.Value, state: list[ir.Value]) -> list[ir.Value]:
            slot = Slot(*state)
            ring.wait_full(slot)
            with device.when(leader):
                self.queue.release(number)
            place = device.sub(ring.place(slot), LEFT_BYTES)
            sums = wgmma.wait_for(beside.multiply(place))
            warps.barrier(BARRIER, CONSUMERS)  # the output leaves from where the tile lies
            beside.store(device.sub(place, self.kernel.tile_bytes), sums, device.mul(number, TILE_ROWS))
            mbarrier.arrive(ring.empty(slot), warpgroup.leader)
            slot = ring.advance(slot)
            return [slot.number, slot.parity]

        start = ring.start()
        self.tiles(tile, [start.number, start.parity])
        waits.leave_if_reported()
        self.kernel.finish(self.frame, leader)


class _Adder(_Role):
    """The sum."""

    def __init__(self, kernel: SpatialSumKernel, *given: object):
        super().__init__(kernel, *given)
        self.block = device.mod(self.cta, self.plan.blocks)
        self.share = device.value(device.div(self.cta, self.plan.blocks))
        self.step, self.partial = kernel.groups, self.share
        self.row, self.column = device.mul(self.block, BLOCK_ROWS), 0

    def load(self, number: ir.Value, place: Int, full: Int) -> None:
        for i in range(GROUPS):
            at = [device.add(self.row, i * CHUNK), device.mul(number, TILE_ROWS)]
            self._load(0, at, device.add(place, i * BOX_BYTES), full)
        self.take(number, device.add(place, LEFT_BYTES), full)

    def consume(self, group: ir.Value) -> None:
        warpgroup, ring, count = SumConsumer(self, group), self.ring, self.plan.columns // 2
        leader = device.equal(warpgroup.thread, 0)

        def tile(number: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            slot = Slot(*carried[count:])
            ring.wait_full(slot)
            with device.when(leader):
                self.queue.release(number)
            sums = wgmma.wait_for(warpgroup.multiply(carried[:count], ring.place(slot), number))
            mbarrier.arrive(ring.empty(slot), warpgroup.leader)
            slot = ring.advance(slot)
            return [*sums, slot.number, slot.parity]

        start, zero = ring.start(), arith.constant(ir.F32Type.get(), 0.0)
        results = self.tiles(tile, [*[zero] * count, start.number, start.parity])
        warpgroup.add_up(results[:count])
