"""Queues on every transport: kernels assemble without spills; on the stand-in GPU what is sent arrives, launch after
launch, and what is broken is found."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
import simt_case

from bench import queue_cases, queue_dsmem, queue_kernels, queue_l2, queue_smem
from bench.queue_cases import BATCHED, FREE, GROUP, PAIRS, WORD, Case
from kitsune_mlir import mlir
from kitsune_mlir.codegen import ptx, ptxas
from kitsune_mlir.codegen.hopper import tma
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.watch import Waits
from kitsune_mlir.mlir import ir
from kitsune_mlir.planning import target as targets
from kitsune_mlir.tools.gpusim.faults import Deadlock, MemoryFault

CASES = list(queue_cases.cases())


@pytest.mark.skipif(ptxas.find() is None, reason="needs ptxas")
@pytest.mark.parametrize("transport", sorted({case.transport for case in CASES}))
@pytest.mark.parametrize("budget", [0, 1000])
def test_kernels_assemble_without_spills(transport, budget):
    every = [case for case in CASES if case.transport == transport]
    chosen, target = every[:: 3 if budget else 1], targets.load("sm_90a")  # waits are as many in each
    waits = Waits(budget)
    ctx = mlir.context()
    with ctx, ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            gpu_module = queue_kernels.build(chosen, transport, waits)
        assert module.operation.verify()
        assembled = ptxas.assemble(ptx.to_ptx(gpu_module, target), target)
    assert set(assembled.kernels) == {case.name for case in chosen}
    for name, info in assembled.kernels.items():
        assert budget or (info.spill_stores, info.spill_loads) == (0, 0), name
    assert not assembled.warnings
    assert bool(waits.described) == (budget > 0 and transport != "reg")


def test_every_case_fits_an_sm():
    for case in CASES:
        assert case.shared_bytes <= targets.load("sm_90a").shared_bytes
        assert queue_cases.MOST_SLOTS * 16 <= queue_cases.BARRIER_BYTES
        assert case.batch * case.slot_bytes < 1 << 20


def pump(case: Case, count: int, seed: int = 0, launches: int = 1, pairs: int = 2) -> None:
    """Runs `launches` of the kernel with `pairs` pairs and checks the sums of the last."""
    ring = -(-PAIRS * case.ring_bytes // 256) * 256
    counters = PAIRS * queue_cases.COUNTERS_BYTES + 256

    def body(x, sums, workspace, rows) -> None:
        i8 = ir.IntegerType.get_signless(8)
        slots = device.offset(workspace, counters, i8)
        queue_kernels.QueueKernel(case, slots, workspace, sums, rows).emit()

    sums = np.zeros((PAIRS, GROUP), np.int32)
    simt_case.run(
        body,
        [np.zeros((count, 1), np.int32)],
        [sums],
        ctas=case.ctas // PAIRS * pairs,
        threads=case.threads,
        shared_bytes=max(16, case.shared_bytes),
        cluster=2 if case.transport == "dsmem" else 1,
        workspace_bytes=counters + ring,
        seed=seed,
        launches=launches,
    )
    if case.checked:
        mine = (case.touched() >= 0).any(0)
        np.testing.assert_array_equal(sums.view(np.uint32)[:pairs, mine], case.checksums(count)[:pairs, mine])


def nothing(*_) -> None:
    pass


SMALL = [
    Case(transport, size, touch, lag=lag)
    for transport in ("smem", "dsmem", "l2", "l2_ldst", "reg")
    for size, touch, lag in ((1024, "all", 1), (8192, "all", 1), (2 * WORD, "stamp", 2))
    if touch == "all" or transport not in ("l2_ldst", "reg")
]


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_payloads_arrive_in_order(case):
    with mock.patch.object(queue_cases, "SLOTS_BYTES", 3 * case.slot_bytes):
        pump(case, 8)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("transport", ["smem", "dsmem", "l2"])
def test_launches_follow_each_other(transport, seed):
    with mock.patch.object(queue_cases, "SLOTS_BYTES", 3 * 2 * WORD):
        for count in (1, 2, 7):
            pump(Case(transport, 2 * WORD, "stamp", lag=2), count, seed, launches=3, pairs=1)


@pytest.mark.parametrize(("lag", "depth"), [(1, 3), (2, 6), (4, 12)])
def test_least_depth_of_a_ring_in_l2(lag, depth):
    """What both ends keep back fits; with one place less the queue hangs."""
    case = Case("l2", 2 * WORD, "stamp", lag=lag)
    with mock.patch.object(queue_cases, "SLOTS_BYTES", (lag + 1) * case.slot_bytes):
        with mock.patch.object(Case, "depth", depth):
            pump(case, 17, launches=2, pairs=1)
        with mock.patch.object(Case, "depth", depth - 1):
            with pytest.raises(ValueError, match="places in the ring"):
                pump(case, 17, pairs=1)
            with mock.patch.object(queue_l2, "check_lag", nothing), pytest.raises(Deadlock):
                pump(case, 17, pairs=1)


def finish_without_reset(self, count) -> None:
    queue_l2.bulk.wait(0)
    queue_l2._set(self.link.sent, count)


BROKEN = {
    "smem: no wait for a free slot": ("smem", queue_smem.SharedQueue, "wait_free", nothing, MemoryFault),
    "smem: no release": ("smem", queue_smem.SharedQueue, "release", nothing, Deadlock),
    "dsmem: no wait for a payload": ("dsmem", queue_dsmem.ClusterQueue, "wait", nothing, MemoryFault),
    "dsmem: no release": ("dsmem", queue_dsmem.ClusterQueue, "release", nothing, Deadlock),
    "dsmem: no proxy fence": ("dsmem", tma, "fence", nothing, MemoryFault),
    "l2: no proxy fence": ("l2", tma, "fence", nothing, MemoryFault),
    "l2: no wait for the copy": ("l2", queue_l2.bulk, "wait", nothing, MemoryFault),
    "l2: no release": ("l2", queue_l2.GlobalReceiver, "release", nothing, Deadlock),
    "l2: counters are left": ("l2", queue_l2.GlobalSender, "finish", finish_without_reset, MemoryFault),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_found(name):
    transport, owner, method, broken, error = BROKEN[name]
    with mock.patch.object(queue_cases, "SLOTS_BYTES", 3 * 1024), mock.patch.object(owner, method, broken):
        with pytest.raises(error):
            pump(Case(transport, 1024, "all"), 9, launches=2, pairs=1)


def test_cases_free_of_waits_are_not_checked():
    assert all(not case.checked for case in CASES if case.mode in (FREE, BATCHED))


def test_every_payload_is_served():
    for payload in queue_cases.PAYLOADS:
        served = {case.transport for case in CASES if queue_cases.serves(case, payload)}
        assert served == {"smem", "dsmem", "l2", "l2_ldst", "reg"}
