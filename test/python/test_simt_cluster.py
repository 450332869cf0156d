"""Copies between CTAs on the stand-in GPU: rings over a cluster's shared memory and over global memory, boxes
that leave them, and what is broken is found."""

from __future__ import annotations

import numpy as np
import pytest
import simt_case

from kitsune_mlir.codegen.hopper import bulk, cluster, mbarrier, tma, waits, warps
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.mlir import ir
from kitsune_mlir.tools.gpusim.faults import MemoryFault

THREADS, PAYLOADS, SLOTS = 64, 9, 2
NBYTES = 4 * THREADS  # of a payload
DATA = 256
SHARED = DATA + SLOTS * NBYTES


class Hand:
    """CTA 0 of a cluster hands x, payload after payload, to CTA 1, which adds 1 and stores it. What a test breaks
    is a method."""

    def body(self, x, y, workspace, rows) -> None:
        self.shared = simt_case.shared_pointer()
        base = simt_case.shared_base()
        self.ring = mbarrier.Ring(base, device.add(base, DATA), SLOTS, NBYTES)
        with device.when(device.equal(device.thread(), 0)):
            self.ring.init(1, 1)
            for number in range(SLOTS):
                mbarrier.expect(self.ring.full(mbarrier.Slot(device.value(number), device.value(0))), NBYTES)
            mbarrier.fence_init()
        self.barrier_at_start()
        rank = cluster.rank()
        with device.when(device.equal(rank, 0)):
            self.over_payloads(lambda number, slot: self.send(x, number, slot))
        with device.when(device.equal(rank, 1)):
            self.over_payloads(lambda number, slot: self.receive(y, number, slot))
        self.barrier_at_end()

    def over_payloads(self, body) -> None:
        def one(number, state):
            slot = mbarrier.Slot(*state)
            body(number, slot)
            slot = self.ring.advance(slot)
            return [slot.number, slot.parity]

        start = mbarrier.Slot.first()
        device.loop(0, PAYLOADS, 1, one, [start.number, start.parity])

    def word(self, slot):
        at = device.add(device.mul(slot.number, NBYTES), device.add(device.mul(device.thread(), 4), DATA))
        return device.offset(self.shared, at, ir.IntegerType.get_signless(8))

    def element(self, tensor, number):
        return device.offset(tensor, device.add(device.mul(number, THREADS), device.thread()), device.i32())

    def send(self, x, number, slot) -> None:
        self.wait_free(slot)
        device.store(device.load(self.element(x, number), device.i32()), self.word(slot))
        self.fence()
        warps.barrier(1, THREADS)
        with device.when(device.equal(device.thread(), 0)):
            full, place = cluster.remote(self.ring.full(slot), 1), self.ring.place(slot)
            cluster.copy(place, cluster.remote(place, 1), NBYTES, full)

    def receive(self, y, number, slot) -> None:
        self.wait_full(slot)
        word = device.load(self.word(slot), device.i32())
        device.store(device.value(device.add(word, 1)), self.element(y, number))
        self.barrier_of_readers()
        leader = device.equal(device.thread(), 0)
        with device.when(leader):
            mbarrier.expect(self.ring.full(slot), NBYTES)
        self.free(cluster.remote(self.ring.empty(slot), 0), leader)

    def free(self, empty, leader) -> None:
        cluster.remote_arrive(empty, leader)

    def wait_free(self, slot) -> None:
        self.ring.wait_empty(slot, waits.on_cluster)

    def wait_full(self, slot) -> None:
        waits.on_cluster(self.ring.full(slot), slot.parity)

    def fence(self) -> None:
        tma.fence()

    def barrier_of_readers(self) -> None:
        warps.barrier(1, THREADS)

    def barrier_at_start(self) -> None:
        cluster.barrier()

    def barrier_at_end(self) -> None:
        cluster.barrier()


def hand(seed: int = 0) -> None:
    x = np.arange(PAYLOADS * THREADS, dtype=np.int32).reshape(PAYLOADS, THREADS)
    y = np.zeros_like(x)
    simt_case.run(Hand().body, [x], [y], ctas=2, threads=THREADS, shared_bytes=SHARED, cluster=2, seed=seed)
    np.testing.assert_array_equal(y, x + 1)


@pytest.mark.parametrize("seed", range(5))
def test_payloads_through_the_shared_memory_of_a_cluster(seed):
    hand(seed)


def nothing(*_) -> None:
    pass


def free_without_fence(self, empty, leader) -> None:
    with device.when(leader):
        text = "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [$0];"
        device.assembly(text, empty)


def wait_for_the_own(self, slot) -> None:
    self.ring.wait_empty(slot, waits.on_barrier)


def wait_without_fence(self, slot) -> None:
    waits._on_phase(waits._CLUSTER, self.ring.full(slot), slot.parity, "", None)


MUTATIONS = {
    "no wait for a payload": ("wait_full", nothing, MemoryFault, "reads what (nobody|is) w"),
    "no fence after the wait": ("wait_full", wait_without_fence, MemoryFault, "reads what is written"),
    "a wait for the own CTA": ("wait_free", wait_for_the_own, MemoryFault, "writes what is read"),
    "no fence before the arrival": ("free", free_without_fence, MemoryFault, "writes what is read"),
    "no proxy fence": ("fence", nothing, MemoryFault, "no proxy fence"),
    "no barrier of the readers": ("barrier_of_readers", nothing, MemoryFault, "writes what is read"),
    "no barrier at the start": ("barrier_at_start", nothing, MemoryFault, "no mbarrier at|while it is made"),
    "a barrier of one CTA": ("barrier_at_start", lambda _: device.barrier(), MemoryFault, "no mbarrier at|while"),
    "no barrier at the end": ("barrier_at_end", nothing, MemoryFault, "may end before|which ended"),
    "half a barrier": ("barrier_at_end", lambda _: cluster.wait(), MemoryFault, "without having arrived"),
}


@pytest.mark.parametrize("name", MUTATIONS)
@pytest.mark.parametrize("seed", range(3))
def test_finds_broken_clusters(name, seed, monkeypatch):
    method, broken, error, said = MUTATIONS[name]
    monkeypatch.setattr(Hand, method, broken)
    with pytest.raises(error, match=said):
        hand(seed)


ROWS, COLUMNS = 16, 64
BOX = tma.TensorMap(0, "f16", (COLUMNS, ROWS), (2 * COLUMNS,), (COLUMNS, ROWS), 128)
OUT = tma.TensorMap(1, "f16", (COLUMNS, 2 * ROWS), (2 * COLUMNS,), (COLUMNS, ROWS), 128)
BOX_BYTES = 2 * COLUMNS * ROWS


def box_there_and_back(ends_early: bool):
    """Each CTA has the box brought to it, and stores it to its rows of the output."""

    def body(maps, x, y, workspace, rows) -> None:
        rank, first, base = cluster.rank(), device.equal(device.thread(), 0), simt_case.shared_base()
        place = device.add(base, 1024)
        with device.when(first):
            mbarrier.init(base, 1)
            mbarrier.fence_init()
            mbarrier.expect(base, BOX_BYTES)
            tma.load(tma.map_pointer(maps, 0), (0, 0), place, base)
            waits.on_barrier(base, 0)
            tma.store(tma.map_pointer(maps, 1), (0, device.mul(rank, ROWS)), place)
            tma.commit()
            if not ends_early:
                tma.wait_read(0)
        cluster.barrier()

    return body


def run_box(ends_early: bool = False) -> None:
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float16)
    y = np.zeros((2 * ROWS, COLUMNS), np.float16)
    shape = {"ctas": 2, "threads": 32, "shared_bytes": 1024 + BOX_BYTES, "cluster": 2}
    simt_case.run(box_there_and_back(ends_early), [x], [y], maps=[BOX, OUT], **shape)
    np.testing.assert_array_equal(y, np.concatenate([x, x]))


def test_a_cta_that_ends_while_its_box_leaves():
    run_box()
    with pytest.raises(MemoryFault, match="may end before stores of CTA . thread 0"):
        run_box(ends_early=True)


def publish(counter, value) -> None:
    device.assembly("st.release.gpu.global.u32 [$0], $1;", counter, value)


def relay(waits_for_reads: bool = False):
    """CTA 0 puts x into the workspace by a bulk copy, says so in a counter, and CTA 1 fetches it."""

    def body(x, y, workspace, rows) -> None:
        shared, first = simt_case.shared_pointer(), device.equal(device.thread(), 0)
        i8 = ir.IntegerType.get_signless(8)
        own = device.offset(shared, device.thread(), device.i32())
        counter, data = workspace, device.offset(workspace, 128, i8)
        with device.when(first):
            mbarrier.init(NBYTES, 1)
            mbarrier.fence_init()
        device.barrier()
        with device.when(device.equal(device.cta(), 0)):
            device.store(device.load(device.offset(x, device.thread(), device.i32()), device.i32()), own)
            tma.fence()
            device.barrier()
            with device.when(first):
                bulk.store(0, data, NBYTES)
                tma.commit()
                tma.wait_read(0) if waits_for_reads else bulk.wait(0)
                publish(counter, 1)
        with device.when(device.equal(device.cta(), 1)):
            with device.when(first):
                waits.on_counter(counter, 1)
                bulk.fence_global()
                mbarrier.expect(NBYTES, NBYTES)
                bulk.load(data, 0, NBYTES, NBYTES)
                publish(counter, 0)
            waits.on_barrier(NBYTES, 0)
            device.store(device.load(own, device.i32()), device.offset(y, device.thread(), device.i32()))

    return body


@pytest.mark.parametrize("seed", range(3))
def test_bulk_copies_through_global_memory(seed):
    x = np.arange(THREADS, dtype=np.int32)
    y = np.zeros_like(x)
    shape = {"ctas": 2, "threads": THREADS, "shared_bytes": NBYTES + 8, "workspace_bytes": 128 + NBYTES}
    simt_case.run(relay(), [x], [y], seed=seed, **shape)
    np.testing.assert_array_equal(y, x)
    with pytest.raises(MemoryFault, match="a copy that lands .* reads what is written at the same time, by stores"):
        simt_case.run(relay(waits_for_reads=True), [x], [y], seed=seed, **shape)
