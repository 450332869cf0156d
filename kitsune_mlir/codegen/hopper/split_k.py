"""Split-K: the CTAs of a cluster each multiply a part of k of one tile, and add up in distributed shared memory.

CTA r of n finishes the r-th share of the tile's columns: each warpgroup stores its sums of every share, a thread a
block's four sums as one word of 16 bytes, into the shared memory of the CTA that finishes it, where the same thread
reads all CTAs' words in their order: results do not change from run to run. `full` counts the bytes that come in,
`empty` the CTAs that have read what was sent to them last.

    room of a warpgroup: for each CTA of the cluster, for each block of the share, a word of each thread
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.codegen.pipeline.nests import Nest, StageNests
from kitsune_mlir.mlir import arith, ir, vector

from . import cluster, mbarrier, waits, warps
from .fragments import BLOCK
from .operands import is_held, is_streamed, parts_of
from .stores import Boxes
from .wgmma import THREADS

SUMS = 4  # of a thread in a block
_WORD = 4 * SUMS
BARRIER_BYTES = 2 * mbarrier.BYTES  # of a warpgroup


def may_split(nest: Nest, nests: StageNests) -> bool:
    """Whether a product, alone in its kernel, may split k: one streamed operand, one tile that is only stored."""
    assert nest.op is not None
    operand, *others = parts_of(nest.op.operands[0])
    apart = not (nest.local or nest.puts or others) and bool(nest.stores) and is_streamed(operand)
    return apart and not any(is_held(one) or one.stores or one.puts for one in nests if one is not nest)


def room_bytes(columns: int) -> int:
    """Shared memory of a warpgroup for sums of a tile of so many columns."""
    return columns // BLOCK * THREADS * _WORD


def init(barriers: Int, ctas: int) -> None:
    """One thread, for a warpgroup."""
    mbarrier.init(barriers, 1)
    mbarrier.init(device.add(barriers, mbarrier.BYTES), ctas)


@dataclass
class SplitK:
    """A warpgroup's end, of `ctas` CTAs and tiles of `columns` columns. Behind `base`, in shared memory, the warpgroups
    have one after another at `room` room for sums, at `barriers` that for barriers. `turn` (i32) counts tiles."""

    ctas: int
    columns: int
    base: Int
    room: int
    barriers: int
    boxes: Boxes
    turn: ir.Value

    @property
    def share(self) -> int:
        """Columns that a CTA finishes."""
        return self.columns // self.ctas

    def add_up(self, sums: Sequence[ir.Value]) -> list[ir.Value]:
        """The sums of the own share over all CTAs, from those of the whole tile over the own part of k."""
        parity = arith.andi(self.turn, device.value(1))
        before = arith.xori(parity, device.value(1))
        full, empty = self._barrier(0), self._barrier(1)
        with device.when(self.boxes.leader):
            mbarrier.expect(full, room_bytes(self.columns))
        waits.on_cluster(empty, before, "the other CTAs to have read the sums sent last")
        self._send(sums, full)
        waits.on_cluster(full, parity, "the other CTAs' sums over their parts of k")
        totals = [total for block in range(self._blocks) for total in self._block(block)]
        warps.barrier(self.boxes.barrier, THREADS)
        for cta in range(self.ctas):
            cluster.remote_arrive(cluster.remote(empty, cta), self.boxes.leader)
        self.turn = arith.addi(self.turn, device.value(1))
        return totals

    def _send(self, sums: Sequence[ir.Value], full: Int) -> None:
        own = self._word(cluster.rank(), 0)
        type_ = ir.VectorType.get([SUMS], device.i32())
        for cta in range(self.ctas):
            there, signal = cluster.remote(own, cta), cluster.remote(full, cta)
            for block in range(self._blocks):
                first = SUMS * (cta * self._blocks + block)
                bits = [arith.bitcast(device.i32(), x) for x in sums[first : first + SUMS]]
                place = device.add(there, block * THREADS * _WORD)
                cluster.send(place, vector.from_elements(type_, bits), signal)

    def _block(self, number: int) -> list[ir.Value]:
        type_ = ir.VectorType.get([SUMS], ir.F32Type.get())
        totals: list[ir.Value] = []
        for cta in range(self.ctas):
            word = device.load(device.shared(self._word(cta, number)), type_, align=_WORD)
            parts = [vector.extract(word, [], [e]) for e in range(SUMS)]
            totals = [arith.addf(total, part) for total, part in zip(totals, parts)] if totals else parts
        return totals

    @property
    def _blocks(self) -> int:
        """Of a share."""
        return self.share // BLOCK

    def _word(self, cta: Int, block: int) -> Int:
        """The thread's, from that CTA."""
        at = device.add(device.mul(device.add(device.mul(cta, self._blocks), block), THREADS), self._thread)
        room = device.mul(warps.consumer(), room_bytes(self.columns))
        return device.add(device.add(device.add(self.base, self.room), room), device.mul(at, _WORD))

    @property
    def _thread(self) -> Int:
        return device.mod(warps.thread(), THREADS)

    def _barrier(self, number: int) -> Int:
        own = device.add(device.mul(warps.consumer(), BARRIER_BYTES), self.barriers + number * mbarrier.BYTES)
        return device.add(self.base, own)
