"""Small kernels of the building blocks for Hopper on the stand-in GPU: right numbers, and what is broken is found."""

from __future__ import annotations

from unittest import mock

import ml_dtypes
import numpy as np
import pytest
import simt_case

from kitsune_mlir.codegen.hopper import mbarrier, tma, warps, wgmma
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.mlir import arith, ir
from kitsune_mlir.tools.gpusim.faults import Deadlock, MemoryFault

K, N, ROWS = 128, 64, 64  # a tile is 64 rows; weights are N by K, in boxes of N by 64
SLOTS, CTAS = 2, 2
BOX = tma.TensorMap(1, "bf16", (K, N), (2 * K,), (wgmma.CHUNK, N))
SLOT_BYTES = N * 128
BARRIERS, DATA = 0, 1024
SHARED = DATA + SLOTS * SLOT_BYTES


class Kernel:
    """y = x W^T, x [rows, K] and W [N, K] of bf16, y [rows, N] of f32: a producer thread in the last warp, a consumer
    warpgroup before it. What a test breaks is a method."""

    def __init__(self, from_shared: bool = False):
        self.from_shared = from_shared
        self.ring = mbarrier.Ring(BARRIERS, DATA, SLOTS, SLOT_BYTES)
        self.threads = wgmma.THREADS + 32
        self.a_at = SHARED
        self.shared_bytes = SHARED + (2 * ROWS * 128 if from_shared else 0)

    def body(self, maps, x, w, y, workspace, rows) -> None:
        self.shared = simt_case.shared_pointer()
        self.x, self.y, self.maps, self.rows = x, y, maps, rows
        with device.when(device.equal(device.thread(), 0)):
            self.ring.init(1, self.consumers())
            mbarrier.fence_init()
        self.after_init()
        self.tiles = device.div(device.add(rows, ROWS - 1), ROWS)
        with device.when(device.equal(device.thread(), wgmma.THREADS)):
            self.over_tiles(self.produce)
        with device.when(device.less(device.thread(), wgmma.THREADS)):
            self.over_tiles(self.consume)

    def over_tiles(self, body) -> None:
        start = mbarrier.Slot.first()

        def one(tile, carried):
            slot = body(tile, mbarrier.Slot(*carried))
            return [slot.number, slot.parity]

        device.loop(device.cta(), self.tiles, CTAS, one, [start.number, start.parity])

    def after_init(self) -> None:
        device.barrier()

    def consumers(self) -> int:
        return 1

    # The producer.

    def produce(self, tile, slot):
        for chunk in range(K // wgmma.CHUNK):
            self.wait_empty(slot)
            mbarrier.expect(self.ring.full(slot), self.expected())
            at = [chunk * wgmma.CHUNK, 0]
            tma.load(tma.map_pointer(self.maps, 0), at, self.place(slot), self.ring.full(slot))
            slot = self.ring.advance(slot)
        return slot

    def wait_empty(self, slot) -> None:
        self.ring.wait_empty(slot)

    def expected(self) -> int:
        return SLOT_BYTES

    def place(self, slot):
        return self.ring.place(slot)

    # The consumers.

    def consume(self, tile, slot):
        thread = device.thread()
        warp, lane = device.div(thread, 32), device.mod(thread, 32)
        group, pair = device.div(lane, 4), device.mul(device.mod(lane, 4), 2)
        row = device.add(device.mul(warp, 16), group)
        first = device.mul(tile, ROWS)
        sums = [arith.constant(ir.F32Type.get(), 0.0)] * (N // 2)
        if self.from_shared:
            self.fill_shared(first)
        else:
            words = [
                self.word(device.add(first, device.add(row, half)), device.add(pair, step * 16 + side))
                for step in range(K // 16)
                for side in (0, 8)
                for half in (0, 8)
            ]
        last = slot
        for chunk in range(K // wgmma.CHUNK):
            self.wait_full(slot)
            b = wgmma.descriptor(self.ring.place(slot))
            a = self.a_chunk(chunk) if self.from_shared else words[16 * chunk : 16 * chunk + 16]
            sums = self.multiply(sums, a, b, self.first(chunk))
            if chunk:
                wgmma.wait(1)
                mbarrier.arrive(self.ring.empty(last), self.signals(thread))
            last, slot = slot, self.ring.advance(slot)
        sums = self.wait_sums(sums)
        mbarrier.arrive(self.ring.empty(last), self.signals(thread))
        for i, x in enumerate(sums):
            at = device.add(first, device.add(row, 8 * (i // 2 % 2)))
            with device.when(device.less(at, self.rows)):
                column = device.add(pair, 8 * (i // 4) + i % 2)
                device.store(x, device.offset(self.y, device.add(device.mul(at, N), column), ir.F32Type.get()))
        return slot

    def first(self, chunk):
        return chunk == 0 or arith.constant(ir.IntegerType.get_signless(1), 0)

    def signals(self, thread):
        return device.equal(thread, 0)

    def word(self, row, column):
        """Two neighbouring columns of x."""
        row = device.least(row, device.sub(self.rows, 1))
        at = device.offset(self.x, device.add(device.mul(row, K), column), ir.BF16Type.get())
        return device.load(at, device.i32(), 4)

    def fill_shared(self, first) -> None:
        """A tile of x with the swizzle: word i of a row of 32 words, rows of 128 bytes."""
        self.warpgroup_barrier()

        def one(i, _):
            row, word = device.div(i, K // 2), device.mod(i, K // 2)
            chunk, inside = device.div(word, 32), device.mod(word, 32)
            swapped = arith.xori(device.div(inside, 4), device.mod(row, 8))
            place = device.add(device.mul(swapped, 4), device.mod(inside, 4))
            place = device.add(device.mul(device.add(device.mul(chunk, ROWS), row), 32), place)
            at = device.add(device.mul(place, 4), self.a_at)
            pointer = device.offset(self.shared, at, ir.IntegerType.get_signless(8))
            device.store(self.word(device.add(first, row), device.mul(word, 2)), pointer)
            return []

        device.loop(device.thread(), ROWS * K // 2, wgmma.THREADS, one)
        self.fence_proxy()
        self.warpgroup_barrier()

    def a_chunk(self, chunk):
        return wgmma.descriptor(self.a_at + chunk * ROWS * 128)

    def fence_proxy(self) -> None:
        device.assembly("fence.proxy.async.shared::cta;")

    def warpgroup_barrier(self) -> None:
        warps.barrier(1, wgmma.THREADS)

    def multiply(self, *operands):
        sums, a, b, first = operands
        return wgmma.multiply("bf16", sums, a, b, 4, first)

    def wait_full(self, slot) -> None:
        self.ring.wait_full(slot)

    def wait_sums(self, sums):
        return wgmma.wait_for(sums)


def launch(kernel: Kernel, rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """What the kernel makes of random data, and what is right."""
    rng = np.random.default_rng(seed)
    x, w = (rng.standard_normal((n, K)).astype(ml_dtypes.bfloat16) for n in (rows, N))
    y = np.zeros((rows, N), np.float32)
    shape = {"ctas": CTAS, "threads": kernel.threads, "shared_bytes": kernel.shared_bytes}
    simt_case.run(kernel.body, [x, w], [y], maps=[BOX], seed=seed, **shape)
    return y, x.astype(np.float32) @ w.astype(np.float32).T


@pytest.mark.parametrize("from_shared", [False, True], ids=["registers", "shared"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rows", [1, 64, 500])
def test_product_of_streamed_weights(rows, seed, from_shared):
    found, wanted = launch(Kernel(from_shared), rows, seed)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def nothing(*_) -> None:
    pass


def without_fence(multiply):
    def broken(*operands):
        with mock.patch.object(wgmma, "FENCE", ""):
            return multiply(*operands)

    return broken


# What is broken, in which kernel, and what is found.
MUTATIONS = {
    "no wait for a box": ("wait_full", nothing, False, MemoryFault, "a product .* reads what (nobody|is) w"),
    "no wait for a slot": ("wait_empty", nothing, False, MemoryFault, "a copy .* writes what is"),
    "too many bytes expected": ("expected", lambda _: SLOT_BYTES + 16, False, Deadlock, "0 arrivals and 16 bytes"),
    "too few bytes expected": ("expected", lambda _: SLOT_BYTES - 16, False, MemoryFault, "more bytes land"),
    "sums before the wait": ("wait_sums", lambda _, sums: sums, False, MemoryFault, "sums of a product are read"),
    "no barrier after init": ("after_init", nothing, False, MemoryFault, "there is no mbarrier|while it is made"),
    "nobody empties slots": ("signals", lambda _, thread: device.less(thread, 0), False, Deadlock, "1 arrivals"),
    "all threads arrive": ("signals", lambda _, thread: device.less(-1, thread), False, MemoryFault, "too many"),
    "more arrivals wanted": ("consumers", lambda _: 2, False, Deadlock, "phase 0: 1 arrivals"),
    "misplaced boxes": ("place", lambda k, slot: device.add(k.ring.place(slot), 512), False, MemoryFault, "aligned"),
    "no wgmma.fence": ("multiply", without_fence(Kernel.multiply), False, MemoryFault, "without a wgmma.fence"),
    "no proxy fence": ("fence_proxy", nothing, True, MemoryFault, "no proxy fence"),
    "no barrier of the warpgroup": ("warpgroup_barrier", nothing, True, MemoryFault, "a product .* at the same time"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_finds_broken_kernels(name, monkeypatch):
    method, broken, from_shared, error, said = MUTATIONS[name]
    monkeypatch.setattr(Kernel, method, broken)
    with pytest.raises(error, match=said):
        launch(Kernel(from_shared), 500)


def test_zeros_that_no_product_was_added_to_are_f32():
    """Sums that leave before the first product are stored as pairs of f32, which begin at 8 bytes."""
    threads = 32

    def body(x, y, workspace, rows):
        pair = wgmma.zeros(4)
        at = device.mul(device.thread(), 8)
        device.assembly("st.shared.v2.f32 [$0], {$1, $2};", at, *pair)
        stored = device.load(device.shared(device.add(at, 4)), ir.F32Type.get())
        device.store(stored, device.offset(y, device.thread(), ir.F32Type.get()))
        warps.sync()

    y = np.ones((threads, 1), np.float32)
    simt_case.run(body, [np.zeros((threads, 1), np.float32)], [y], ctas=1, threads=threads, shared_bytes=8 * threads)
    assert not y.any()
