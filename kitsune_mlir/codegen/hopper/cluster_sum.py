"""Partial sums of the CTAs of a cluster, added up in distributed shared memory.

Every CTA has the same elements of the sum in the registers of its threads, blocks of 8 columns as wgmma leaves them.
CTA r of n adds the r-th share of the blocks: each thread writes the four sums of a block as one word of 16 bytes to
the shared memory of the CTA that adds them, where the same thread reads them again, all CTAs' one after another: the
order is fixed, so results do not change from run to run.

    room in each CTA: for each CTA of the cluster, for each block of the share, a word of each thread
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import arith, ir, vector

from . import cluster

SUMS = 4  # of a thread in a block
_WORD = 4 * SUMS


@dataclass(frozen=True)
class ClusterSum:
    """`ctas` CTAs, this one number `rank`. `room` is the place of as many bytes as all threads' sums take; `blocks`
    are those of a thread, `thread` is one of `threads`."""

    ctas: int
    rank: Int
    room: Int
    blocks: int
    thread: ir.Value
    threads: int

    @property
    def share(self) -> int:
        """Blocks that a CTA adds."""
        return self.blocks // self.ctas

    def hand_out(self, sums: Sequence[ir.Value], store: Callable[[int, ir.Value, Sequence[ir.Value]], None]) -> None:
        """Calls `store` for every word: with the CTA that adds it, its `remote` place there, and the word's sums."""
        own = device.add(self._place(self.rank, 0), device.mul(self.thread, _WORD))
        for cta in range(self.ctas):
            there = cluster.remote(own, cta)
            for number in range(self.share):
                first = SUMS * (cta * self.share + number)
                store(cta, device.add(there, number * self.threads * _WORD), sums[first : first + SUMS])

    def block(self, number: int) -> list[ir.Value]:
        """The thread's sums, over all CTAs, in a block of the own share."""
        type_ = ir.VectorType.get([SUMS], ir.F32Type.get())
        totals: list[ir.Value] = []
        for cta in range(self.ctas):
            place = device.add(self._place(cta, number), device.mul(self.thread, _WORD))
            word = device.load(device.shared(place), type_, align=_WORD)
            parts = [vector.extract(word, [], [e]) for e in range(SUMS)]
            totals = [arith.addf(total, part) for total, part in zip(totals, parts)] if totals else parts
        return totals

    def _place(self, cta: Int, number: int) -> Int:
        at = device.add(device.mul(cta, self.share), number)
        return device.add(self.room, device.mul(at, self.threads * _WORD))
