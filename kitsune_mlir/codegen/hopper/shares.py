"""A tile that the CTAs of a group compute by shares, in place, and tell each other.

Each CTA has room for the whole tile in its slot. The share that it computed is copied into the same boxes of the
others: through distributed shared memory, or through a ring of two tiles a group in L2. An mbarrier counts the bytes
of the others' shares. Two turns are enough in L2: whoever sends a tile got all shares of the last one, so everyone has
read the one before it (PTX ISA, Memory Consistency Model; Async proxy).

    ring in L2: a counter of shares sent for each CTA | for each group, for each turn, a share of each CTA
"""

from __future__ import annotations

import abc
from dataclasses import dataclass

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import ir

from . import bulk, cluster, mbarrier, tma, waits
from .accumulate import BOX_BYTES, GROUPS
from .mbarrier import Ring, Slot
from .tile_ring import COUNTER_BYTES

TURNS = 2


@dataclass(frozen=True)
class Shares(abc.ABC):
    """CTA `rank` of the `ctas` of a group computes `boxes` boxes of each tile. `barriers` is the place of an mbarrier
    for each slot of `ring`."""

    ctas: int
    rank: Int
    boxes: int
    barriers: Int
    ring: Ring

    @property
    def nbytes(self) -> int:
        """The bytes of a share."""
        return self.boxes * BOX_BYTES

    def init(self) -> None:
        """One thread, once."""
        for number in range(self.ring.slots):
            mbarrier.init(device.add(self.barriers, number * mbarrier.BYTES), 1)

    def exchange(self, slot: Slot, turn: Int, leader: ir.Value) -> None:
        """All threads that use the tile: hands the own share out, waits for the others. Its writers fenced it and met
        before. `turn` counts the group's tiles; `leader` (i1) holds in one thread."""
        full = device.add(device.mul(slot.number, mbarrier.BYTES), self.barriers)
        with device.when(leader):
            mbarrier.expect(full, (self.ctas - 1) * self.nbytes)
            self._hand_over(self.ring.place(slot), full, turn)
        waits.on_cluster(full, slot.parity, "the other CTAs' shares of a tile", slot.number)

    def wait_empty(self, slot: Slot) -> None:
        """The thread that fills the slot."""
        self.ring.wait_empty(slot)

    @abc.abstractmethod
    def _hand_over(self, slot: Int, full: Int, turn: Int) -> None:
        """One thread."""

    @abc.abstractmethod
    def release(self, slot: Slot, leader: ir.Value) -> None:
        """After the last use of the tile; `leader` holds in one thread of each warpgroup."""

    def _share(self, slot: Int, cta: Int) -> Int:
        return device.add(slot, device.add(device.mul(cta, self.nbytes), GROUPS * BOX_BYTES))

    def _others(self) -> list[Int]:
        return [device.mod(device.add(self.rank, other), self.ctas) for other in range(1, self.ctas)]


@dataclass(frozen=True)
class ClusterShares(Shares):
    """The group is a cluster. A slot is written by all its CTAs: it is empty when all are done with it."""

    def _hand_over(self, slot: Int, full: Int, turn: Int) -> None:
        own = self._share(slot, self.rank)
        for cta in self._others():
            cluster.copy(own, cluster.remote(own, cta), self.nbytes, cluster.remote(full, cta))

    def wait_empty(self, slot: Slot) -> None:
        self.ring.wait_empty(slot, waits.on_cluster)

    def release(self, slot: Slot, leader: ir.Value) -> None:
        for cta in range(self.ctas):
            cluster.remote_arrive(cluster.remote(self.ring.empty(slot), cta), leader)


@dataclass(frozen=True)
class L2Shares(Shares):
    """`counters` and `data` are the addresses of the group's counters, zero at the launch, and of its part of the
    ring."""

    counters: ir.Value
    data: ir.Value

    def send(self, slot: Int, turn: Int) -> None:
        """One thread: its own share into the ring."""
        bulk.store(self._share(slot, self.rank), self._place(turn, self.rank), self.nbytes)
        tma.commit()
        bulk.wait(0)
        bulk.fence_global()
        device.signal(self._counter(self.rank))

    def _hand_over(self, slot: Int, full: Int, turn: Int) -> None:
        self.send(slot, turn)
        for cta in self._others():
            with waits.counted(self._counter(cta), device.add(turn, 1), "another CTA's share of a tile"):
                bulk.fence_global()
                bulk.load(self._place(turn, cta), self._share(slot, cta), self.nbytes, full)

    def release(self, slot: Slot, leader: ir.Value) -> None:
        mbarrier.arrive(self.ring.empty(slot), leader)

    def _place(self, turn: Int, cta: Int) -> ir.Value:
        at = device.add(device.mul(device.mod(turn, TURNS), self.ctas), cta)
        return device.offset(self.data, device.mul(at, self.nbytes), ir.IntegerType.get_signless(8))

    def _counter(self, cta: Int) -> ir.Value:
        return device.offset(self.counters, device.mul(cta, COUNTER_BYTES), ir.IntegerType.get_signless(8))


def l2_bytes(ctas: int, groups: int, tile_boxes: int) -> tuple[int, int]:
    """The bytes of the counters of all CTAs, and of the ring of all groups."""
    return ctas * COUNTER_BYTES, groups * TURNS * tile_boxes * BOX_BYTES
