"""Who has which columns of rows that registers do not hold, or whose length is open until the call: a row is read part
by part, as often as reductions follow from each other, and once more for what is made of them.

What was read before comes out of the L1 cache where the rows that an SM has in hand fit there, else out of L2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, log2

from .row_tiles import (
    BARRIER,
    BEGUN,
    CLOCK,
    EARLY,
    FETCH,
    LINE,
    MOST_COLUMNS,
    MOST_LANES,
    OWN_REGISTERS,
    REST,
    SHUFFLE,
    SM_CTAS,
    SM_REGISTERS,
    SM_THREADS,
    VECTOR_BYTES,
    WARP,
    RowGroup,
    RowTiles,
)
from .target import Target

_MOST_LIVE = 160  # registers of what is kept of a part's columns: 128 threads and more have an SM's then
_L1_BYTES = 180 << 10  # of an SM, where a kernel has no shared memory to speak of (H100: 256 KiB of both)
_L1_FETCH, _L2_FETCH = 60.0, 300.0  # cycles until what was read before is there
_TURN = 24.0  # instructions of a turn, besides those of its columns


@dataclass(frozen=True)
class Pass:
    """One time that a row is gone through: `own_bytes` of it are read, and `shared_bytes` of what other rows read too,
    `written_bytes` are written; `work` instructions deal with a column, of which `live` 32-bit registers are kept, and
    `reductions` go along the row."""

    own_bytes: float
    shared_bytes: float
    written_bytes: float
    live: float
    work: float
    reductions: int


def choose_long(group: RowGroup, passes: Sequence[Pass], target: Target, least: int = WARP) -> RowTiles | None:
    """The fastest way to go through rows in these passes, `least` or more threads a row; None where no registers hold a
    part."""
    vector = VECTOR_BYTES // group.element_bytes
    lanes = [1 << i for i in range(least.bit_length() - 1, MOST_LANES.bit_length())]
    found = [
        tiles
        for count, copies, vectors in product(lanes, (1, 2, 4, 8), (1, 2, 4, 8, 16, 32))
        if (count <= WARP or copies == 1)
        and (vectors == 1 or count * vector * vectors < 2 * group.columns)
        and (
            tiles := _tiles(
                group, passes, RowTiles(count, vector, copies, 0, 0.0, part=count * vector * vectors), target
            )
        )
    ]
    return min(found, key=lambda tiles: (tiles.microseconds, tiles.lanes, -tiles.copies), default=None)


def _tiles(group: RowGroup, passes: Sequence[Pass], made: RowTiles, target: Target) -> RowTiles | None:
    assert made.part is not None
    each = made.part // made.lanes
    registers = OWN_REGISTERS + each * max(one.live for one in passes)
    if each > MOST_COLUMNS or registers > _MOST_LIVE:
        return None
    warps, threads = made.warps, made.copies * made.warps * WARP
    ctas = min(SM_THREADS // threads, SM_CTAS, int(SM_REGISTERS // (threads * registers)))
    if not ctas:
        return None
    count = group.tiles(made.rows)
    ctas = min(ctas, ceil(count / target.sms))
    turns, parts = ceil(count / (target.sms * ctas)), ceil(group.columns / made.part)
    row_bytes = max(one.own_bytes for one in passes)
    near = row_bytes * ctas * made.rows <= _L1_BYTES
    in_l2 = row_bytes * ctas * made.rows * min(target.sms, count) <= target.l2_bytes / 2
    steps = log2(WARP) + (log2(warps) if warps > 1 else 0)
    issued = latency = looked_up = from_l2 = moved = 0.0
    for number, one in enumerate(passes):
        instructions = each * (one.work + one.reductions) + 2 * one.reductions * steps + _TURN
        fetch = FETCH if not number else _L1_FETCH if near else _L2_FETCH
        joins = one.reductions * (steps * SHUFFLE + (BARRIER if warps > 1 else 0))
        latency += parts * (fetch + 2 * instructions + joins)
        issued += parts * instructions
        touched = one.own_bytes + one.shared_bytes + one.written_bytes
        accesses = touched / (group.columns * group.element_bytes) * each / made.vector
        looked_up += parts * accesses * ceil(WARP * made.vector * group.element_bytes / LINE)
        from_l2 += one.written_bytes + (one.own_bytes if not number or not near else 0) + one.shared_bytes
        moved += one.written_bytes + (one.own_bytes if not number or not in_l2 else 0)
    warps_at_once = turns * ctas * threads / WARP
    limits = [
        warps_at_once * issued / 4,  # four schedulers
        warps_at_once * looked_up,
        group.rows * max(moved / target.dram_gbps, from_l2 / target.l2_gbps) * CLOCK / 1e3,
        BEGUN * target.sms * max(0, min(count / target.sms, ctas) - EARLY) + turns * latency,
    ]
    cycles = max(limits) + REST * sum(limits)
    return replace(made, ctas=ctas, microseconds=target.launch_us + cycles / CLOCK)


def apart_us(group: RowGroup, passes: Sequence[Pass], target: Target) -> float:
    """What the same takes as kernels that do one thing each over all rows, reductions in two where rows are few."""
    total = 0.0
    for one in passes:
        kernels = max(1, one.reductions) * (1 if group.rows >= 8 * target.sms else 2)
        touched = group.rows * (one.own_bytes + one.shared_bytes + one.written_bytes)
        gbps = target.l2_gbps if touched <= target.l2_bytes / 2 else target.dram_gbps
        total += kernels * target.launch_us + max(1, one.reductions) * touched / gbps / 1e3
    return total
