"""The kernels of the queue benchmark, made of the building blocks in kitsune_mlir/codegen/hopper.

    @case(ring, counters, sums, count: i32)

`ring` and `counters` are global memory of the rings in L2, `sums` [PAIRS, GROUP] u32 takes the receivers' checksums,
`count` is the number of pieces that every pair hands over. With a budget for waits the report of one in vain comes
after all pairs' counters.
"""

from __future__ import annotations

from collections.abc import Callable

from bench.queue_cases import (
    BARRIER_BYTES,
    BATCHED,
    BY_NUMBER,
    BY_PAIR,
    BY_WORD,
    COUNTERS_BYTES,
    FREE,
    GROUP,
    PAIRS,
    WORD,
    Case,
)
from bench.queue_dsmem import ClusterQueue
from bench.queue_l2 import GlobalReceiver, GlobalRing, GlobalSender
from bench.queue_ring import CounterRing, QueueWatch
from bench.queue_sides import Receiver, Sender
from bench.queue_smem import SharedQueue
from bench.queue_words import Words, byte, make_vector, mix, wrapped
from kitsune_mlir.codegen.hopper import bulk, cluster, mbarrier, tma, waits, warps
from kitsune_mlir.codegen.hopper.mbarrier import Ring, Slot
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.counters import COUNTER_BYTES
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.codegen.pipeline.watch import Waits, Watch
from kitsune_mlir.mlir import arith, ir, llvm

WRITERS, READERS = 1, 2  # named barriers


def true() -> ir.Value:
    return arith.constant(ir.IntegerType.get_signless(1), 1)


class QueueKernel:
    """Emits one case's kernel body."""

    def __init__(
        self, case: Case, ring: ir.Value, counters: ir.Value, sums: ir.Value, count: Int, budget: Waits | None = None
    ):
        self.case, self.ring, self.counters, self.sums, self.count = case, ring, counters, sums, count
        self.watch = None
        if budget is not None and budget.budget:
            self.watch = Watch(device.offset(counters, PAIRS * COUNTERS_BYTES, byte()), budget)
        self.group = device.div(device.thread(), GROUP)
        thread = device.value(device.mod(device.thread(), GROUP))
        paired = case.ctas == 2 * PAIRS
        self.pair = device.value(device.div(device.cta(), 2)) if paired else device.cta()
        self.side = device.mod(device.cta(), 2) if paired else None
        self.words = Words(case, self.pair, thread)
        self.leader = device.equal(thread, 0)

    def emit(self) -> None:
        body = {"reg": self._registers, "l2_ldst": self._loads_and_stores}.get(self.case.transport, self._queue)
        with waits.watched(self.watch, barriers=self.case.transport == "dsmem"):
            body()

    # Queues of payloads in shared memory.

    def _queue(self) -> None:
        case = self.case
        shared = llvm.AddressOfOp(device.pointer_type(device.SHARED), "shared").result
        base = llvm.PtrToIntOp(device.i32(), shared).result
        batches = 2 if case.mode == BATCHED else case.slots
        slots = Ring(base, device.add(base, BARRIER_BYTES), batches, case.slot_bytes)
        sender, receiver = self._ends(slots)
        with device.when(device.equal(device.thread(), 0)):
            if case.transport != "l2":
                sender.init()
            else:
                with device.when(device.equal(self.side, 0)):
                    sender.init()
                with device.when(device.equal(self.side, 1)):
                    receiver.init()
            mbarrier.fence_init()
        barrier = cluster.barrier if case.transport == "dsmem" else device.barrier
        barrier()
        if case.sides != "receive":
            with device.when(self._role(0, 0)):
                self._one_or_all(WRITERS, lambda: self._send(sender))
        if case.sides != "send":
            with device.when(self._role(1, 1)):
                self._one_or_all(READERS, lambda: self._receive(receiver))
            if receiver.fetches:
                fetch = self._fetch_freely if case.mode == FREE else receiver.fetch
                first = device.equal(device.thread(), 2 * GROUP)
                with device.when(arith.andi(first, device.equal(self.side, 1))):
                    fetch(self.count)
        if case.transport == "dsmem":
            cluster.barrier()

    def _ends(self, slots: Ring) -> tuple[Sender, Receiver]:
        case = self.case
        if case.transport == "smem":
            both = SharedQueue(slots)
            return both, both
        if case.transport == "dsmem":
            both = ClusterQueue(slots, device.sub(1, self.side), case.batch * case.slot_bytes)
            return both, both
        data = device.offset(self.ring, _wide(self.pair, case.ring_bytes), byte())
        counters = device.offset(self.counters, device.mul(self.pair, COUNTERS_BYTES), byte())
        self.link = GlobalRing(data, counters, case.depth, case.slot_bytes)
        self.slots = slots
        return GlobalSender(slots, self.link, case.lag), GlobalReceiver(slots, self.link, lag=case.lag)

    def _role(self, group: int, side: int) -> ir.Value:
        mine = device.equal(self.group, group)
        return mine if self.side is None else arith.andi(mine, device.equal(self.side, side))

    def _one_or_all(self, barrier: int, emit: Callable[[], None]) -> None:
        """An agent's code. Stamps are one thread's work."""
        if self.case.touch == "stamp":
            leader = self.leader
            with device.when(leader):
                self.leader = true()
                emit()
            self.leader = leader
        else:
            with waits.together(barrier, GROUP, self.leader):
                emit()

    def _agent_barrier(self, number: int) -> None:
        if self.case.touch == "all":
            warps.barrier(number, GROUP)

    def _send(self, sender: Sender) -> None:
        case = self.case

        def piece(number: ir.Value, state: list[ir.Value]) -> list[ir.Value]:
            slot = Slot(*state[:2])
            sender.resume(state[2:])
            if case.mode == FREE:
                self._send_freely(slot, number, sender)
            elif case.mode == BATCHED:
                self._send_batch(slot, sender)
            else:
                sender.wait_free(slot)
                self.words.fill(device.shared(sender.place(slot)), number)
                tma.fence()
                self._agent_barrier(WRITERS)
                sender.send(slot, number, self.leader)
            following = self._following(slot)
            return [following.number, following.parity, *sender.state()]

        start = self._start()
        state = device.loop(0, self._handshakes(), 1, piece, [start.number, start.parity, *sender.state()])
        sender.resume(state[2:])
        if case.mode != FREE:
            with device.when(self.leader):
                sender.finish(self.count)
        elif case.transport == "l2":
            bulk.wait(0)

    def _receive(self, receiver: Receiver) -> None:
        case = self.case

        def piece(number: ir.Value, state: list[ir.Value]) -> list[ir.Value]:
            slot, sums = Slot(*state[:2]), state[2]
            if case.mode != FREE or case.transport == "l2":
                receiver.wait(slot)
            if case.mode != BATCHED:
                sums = self.words.total(device.shared(receiver.place(slot)), sums)
            if case.mode != FREE or case.transport == "l2":
                self._agent_barrier(READERS)
                receiver.release(slot, self.leader)
            following = self._following(slot)
            return [following.number, following.parity, sums]

        start = self._start()
        state = [start.number, start.parity, device.value(0)]
        *_, sums = device.loop(0, self._handshakes(), 1, piece, state)
        self._store_sums(sums)

    def _handshakes(self) -> Int:
        """In `count` pieces; the host gives whole batches."""
        return device.div(self.count, self.case.batch)

    def _start(self) -> Slot:
        return Slot(device.value(0), device.value(0))

    def _following(self, slot: Slot) -> Slot:
        slots = 2 if self.case.mode == BATCHED else self.case.slots
        return Ring(0, 0, slots, 0).advance(slot)

    def _store_sums(self, sums: ir.Value) -> None:
        at = device.add(device.mul(self.pair, GROUP), self.words.thread)
        device.store(sums, device.offset(self.sums, at, device.i32()))

    # Bounds: what transports do without waits and signals.

    def _send_freely(self, slot: Slot, number: ir.Value, sender: Sender) -> None:
        if self.case.transport == "smem":
            self.words.fill(device.shared(sender.place(slot)), number)
            return
        bulk.store(sender.place(slot), self.link.place(number), self.case.slot_bytes)
        tma.commit()
        tma.wait_read(self.case.lag)

    def _fetch_freely(self, count: Int) -> None:
        """Copies pieces in as the readers free their slots, whatever lies in the ring."""

        def piece(number: ir.Value, state: list[ir.Value]) -> list[ir.Value]:
            slot = Slot(*state)
            self.slots.wait_empty(slot)
            mbarrier.expect(self.slots.full(slot), self.case.slot_bytes)
            bulk.load(self.link.place(number), self.slots.place(slot), self.case.slot_bytes, self.slots.full(slot))
            slot = self.slots.advance(slot)
            return [slot.number, slot.parity]

        start = Slot.first()
        device.loop(0, count, 1, piece, [start.number, start.parity])

    def _send_batch(self, slot: Slot, sender: Sender) -> None:
        """Copies that no one waits for one by one: the bytes of a whole batch count on one phase of a barrier."""
        assert isinstance(sender, ClusterQueue)
        sender.wait_free(slot)
        ring, case = sender.ring, self.case
        full = cluster.remote(ring.full(slot), sender.peer)

        def piece(number: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            place = device.add(device.mul(device.mod(number, case.slots), case.slot_bytes), ring.data)
            cluster.copy(place, cluster.remote(place, sender.peer), case.slot_bytes, full)
            return []

        device.loop(0, case.batch, 1, piece)

    # The ring with ordinary loads and stores.

    def _loads_and_stores(self) -> None:
        case = self.case
        shared = llvm.AddressOfOp(device.pointer_type(device.SHARED), "shared").result
        data = device.offset(self.ring, _wide(self.pair, case.ring_bytes), byte())
        counters = device.offset(self.counters, device.mul(self.pair, COUNTERS_BYTES), byte())
        watch = QueueWatch(self.watch, case.name, "no model", shared) if self.watch is not None else None
        ring = CounterRing(data, counters, case.depth, 1, case.slot_bytes // 4, watch)
        synchronised = case.mode != FREE
        if case.sides != "receive":
            with device.when(device.equal(self.side, 0)):

                def send(tile: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
                    if synchronised:
                        ring.wait_empty(tile)
                    self.words.fill(ring.slot(tile), tile)
                    if synchronised:
                        ring.publish(tile)
                    return []

                device.loop(0, self.count, 1, send)
                if synchronised:
                    self._reset(ring, counters)
        if case.sides != "send":
            with device.when(device.equal(self.side, 1)):

                def receive(tile: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
                    if synchronised:
                        ring.wait_full(tile)
                    sums = self.words.total(ring.slot(tile), carried[0])
                    if synchronised:
                        ring.release(tile)
                    return [sums]

                self._store_sums(device.loop(0, self.count, 1, receive, [device.value(0)])[0])

    def _reset(self, ring: CounterRing, counters: ir.Value) -> None:
        """The sender, once every slot was released for the last time."""

        def one(tile: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            ring.wait_empty(tile)
            return []

        device.loop(self.count, device.add(self.count, self.case.depth), 1, one)
        device.barrier()
        with device.when(device.less(device.thread(), 2 * self.case.depth)):
            at = device.mul(device.thread(), COUNTER_BYTES // 4)
            device.store(device.value(0), device.offset(counters, at, device.i32()))

    # Registers.

    def _registers(self) -> None:
        """Each word is made, handed on and summed by the same thread."""
        case = self.case
        count = max(1, case.slot_bytes // WORD // GROUP)

        def piece(number: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            salt = device.add(device.mul(number, wrapped(BY_NUMBER)), device.mul(self.pair, wrapped(BY_PAIR)))

            def word(i: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
                index = device.add(device.mul(i, GROUP), self.words.thread)
                first = device.value(device.add(device.mul(index, wrapped(BY_WORD)), salt))
                lane = device.mod(self.words.thread, 32)
                parts = [warps.hand(arith.xori(first, device.value(j)), lane) for j in range(4)]
                total = mix([make_vector(parts)], sums[0])
                return [arith.select(device.less(index, case.slot_bytes // WORD), total, sums[0])]

            return device.loop(0, count, 1, word, carried)

        self._store_sums(device.loop(0, self.count, 1, piece, [device.value(0)])[0])


def _wide(number: ir.Value, nbytes: int) -> ir.Value:
    """An offset of more than 31 bits."""
    i64 = ir.IntegerType.get_signless(64)
    return arith.muli(arith.extui(i64, number), arith.constant(i64, nbytes))


def build(cases: list[Case], name: str, budget: Waits | None = None) -> ir.Operation:
    """A gpu.module of the cases' kernels, at the insertion point; for debugging, with a budget for waits."""
    module = device.gpu.GPUModuleOp(name)
    pointer = device.pointer_type(device.GLOBAL)
    arguments = [pointer] * 3 + [device.i32()]
    with ir.InsertionPoint(module.bodyRegion.blocks.append()):
        shared, linkage = ir.Type.parse("!llvm.array<0 x i8>"), ir.Attribute.parse("#llvm.linkage<external>")
        llvm.GlobalOp(shared, "shared", linkage, addr_space=device.SHARED, alignment=tma.ALIGN)
        for case in cases:
            kernel = device.gpu.GPUFuncOp(
                ir.FunctionType.get(arguments, []), case.name, kernel=True, known_block_size=[case.threads, 1, 1]
            )
            if case.transport == "dsmem":
                cluster.set_size(kernel, 2)
            with ir.InsertionPoint(kernel.body.blocks.append(*arguments)):
                QueueKernel(case, *kernel.body.blocks[0].arguments, budget).emit()
                device.gpu.ReturnOp([])
    return module.operation
