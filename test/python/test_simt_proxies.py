"""Threads and the copy engine in the same global memory, on the stand-in GPU: which fences between their proxies are
wanted, and which are none (PTX ISA, Memory Consistency Model: Proxies, Causality order; Async proxy)."""

from __future__ import annotations

import numpy as np
import pytest
import simt_case

from kitsune_mlir.codegen.hopper import bulk, mbarrier, tma, waits
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.mlir import ir
from kitsune_mlir.tools.gpusim.faults import MemoryFault

THREADS = 64
NBYTES = 4 * THREADS
FULL = NBYTES  # where the mbarrier lies
SHAPE = {"threads": THREADS, "shared_bytes": NBYTES + 8, "workspace_bytes": 256 + NBYTES}
THREAD, ENGINE = "threads", "the copy engine"


class Case:
    """CTAs that hand on what lies in the workspace. `fences` says where there is one."""

    def __init__(self, *fences: str):
        self.fences = fences

    def run(self, seed: int, ctas: int = 2) -> None:
        x = np.arange(THREADS, dtype=np.int32)
        y = np.zeros_like(x)
        simt_case.run(self.body, [x], [y], ctas=ctas, seed=seed, **SHAPE)
        np.testing.assert_array_equal(y, x)

    def body(self, x, y, workspace, rows) -> None:
        i8 = ir.IntegerType.get_signless(8)
        self.x, self.y = (device.offset(tensor, device.thread(), device.i32()) for tensor in (x, y))
        self.own = device.offset(simt_case.shared_pointer(), device.thread(), device.i32())
        self.counters = [workspace, device.offset(workspace, 128, i8)]
        self.data = device.offset(workspace, 256, i8)
        self.word = device.offset(self.data, device.thread(), device.i32())
        self.first = device.equal(device.thread(), 0)
        with device.when(self.first):
            mbarrier.init(FULL, 1)
            mbarrier.fence_init()
        device.barrier()
        self.hand_on()

    def hand_on(self) -> None:
        raise NotImplementedError

    def fence(self, where: str) -> None:
        if where in self.fences:
            bulk.fence_global()

    def write(self, by: str) -> None:
        """Puts x where it is handed on; its end is known to the first thread, at least."""
        if by == THREAD:
            device.store(device.load(self.x, device.i32()), self.word)
            self.fence("behind the write")
            device.barrier()
            return
        device.store(device.load(self.x, device.i32()), self.own)
        tma.fence()
        device.barrier()
        with device.when(self.first):
            bulk.store(0, self.data, NBYTES)
            tma.commit()
            bulk.wait(0)
            self.fence("behind the write")

    def read(self, by: str) -> None:
        """Puts what is handed on into y, behind what the first thread has waited for."""
        if by == ENGINE:
            with device.when(self.first):
                self.fence("before the read")
                mbarrier.expect(FULL, NBYTES)
                bulk.load(self.data, 0, NBYTES, FULL)
            waits.on_barrier(FULL, 0)
            device.store(device.load(self.own, device.i32()), self.y)
            return
        device.barrier()
        device.store(device.load(self.word, device.i32()), self.y)

    def signal(self, number: int) -> None:
        text = "red.release.gpu.global.add.u32 [$0], $1;"
        with device.when(self.first):
            device.assembly(text, self.counters[number], device.value(1))

    def wait(self, number: int) -> None:
        """For another CTA; the counter is zero for the next launch."""
        with device.when(self.first):
            waits.on_counter(self.counters[number], 1)
            text = "st.release.gpu.global.u32 [$0], $1;"
            device.assembly(text, self.counters[number], device.value(0))


class Between(Case):
    """A tile goes from one CTA to another."""

    def __init__(self, written: str, read: str, *fences: str):
        super().__init__(*fences)
        self.written, self.by = written, read

    def hand_on(self) -> None:
        with device.when(device.equal(device.cta(), 0)):
            self.write(self.written)
            self.signal(0)
        with device.when(device.equal(device.cta(), 1)):
            self.fence("before the wait")
            self.wait(0)
            self.read(self.by)


class Within(Case):
    """A tile goes from threads of a CTA to its copy engine."""

    def hand_on(self) -> None:
        self.write(THREAD)
        with device.when(device.equal(device.thread(), THREADS - 1)):
            self.fence("in another warp")
        self.read(ENGINE)


class Again(Case):
    """CTA 0 hands a word less one to CTA 1, and when that has read it, x in the same place by the copy engine."""

    def __init__(self, read: str, *fences: str):
        super().__init__(*fences)
        self.by = read

    def hand_on(self) -> None:
        with device.when(device.equal(device.cta(), 0)):
            self.write(ENGINE)
            self.signal(0)
            with device.when(self.first):
                self.wait(1)
                self.fence("before the second write")
                bulk.store(0, self.data, NBYTES)
                tma.commit()
                bulk.wait(0)
        with device.when(device.equal(device.cta(), 1)):
            self.wait(0)
            self.read(self.by)
            device.barrier()
            self.signal(1)


RIGHT = [
    Between(THREAD, THREAD),
    Between(ENGINE, THREAD),  # the end of a copy is a fence
    Between(THREAD, ENGINE, "before the read"),
    Between(ENGINE, ENGINE, "before the read"),
    Within("behind the write"),
    Within("before the read"),
    Again(THREAD, "before the second write"),
    Again(ENGINE, "before the read", "before the second write"),
]
UNSEEN = "reads what no proxy fence made visible to it, by {}: byte 256 of the workspace, at "
OF_THREADS, OF_ENGINE = UNSEEN.format("CTA 0 warp 0 thread 0"), UNSEEN.format("stores of CTA 0 thread 0")
OVER = "writes what is read with no proxy fence between, by {}: byte 256 of the workspace, at "
WRONG = [
    (Between(THREAD, ENGINE), OF_THREADS),
    (Between(THREAD, ENGINE, "behind the write"), OF_THREADS),  # that is another CTA's proxy
    (Between(THREAD, ENGINE, "before the wait"), OF_THREADS),
    (Between(ENGINE, ENGINE), OF_ENGINE),
    (Between(ENGINE, ENGINE, "behind the write"), OF_ENGINE),
    (Within(), OF_THREADS),
    (Within("in another warp"), OF_THREADS),
    (Again(THREAD), OVER.format("CTA 1 warp 0 thread 0")),
    (Again(ENGINE, "before the read"), OVER.format("a copy that lands on the mbarrier .* of CTA 1")),
]


def name(case: Case) -> str:
    return "-".join([type(case).__name__, *map(str, vars(case).values())])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", RIGHT, ids=name)
def test_what_is_in_order(case, seed):
    case.run(seed, 1 if isinstance(case, Within) else 2)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case, said", WRONG, ids=[name(case) for case, _ in WRONG])
def test_what_wants_a_fence(case, said, seed):
    with pytest.raises(MemoryFault, match=said):
        case.run(seed, 1 if isinstance(case, Within) else 2)
