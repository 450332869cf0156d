"""Who has which columns of rows that registers do not hold, or whose length is open until the call.

Of rows that no registers hold a part is read after the other, as often as reductions follow from each other, and once
more for what is made of them. What was read before comes out of L1, or out of L2, where the rows that an SM has in hand
fit there, or those of all.
Rows of open length are held whole where they turn out to be short, and go by parts otherwise.
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
    SHUFFLE,
    SM_CTAS,
    SM_REGISTERS,
    SM_THREADS,
    VECTOR_BYTES,
    WARP,
    RowGroup,
    RowTiles,
    of_lanes,
    widest,
)
from .target import Target

_MOST_LIVE = 168  # registers of a thread: a warp with more has few others beside it
_OWN_FETCH, _NEAR_FETCH = 80.0, 300.0  # cycles until what was read before is there, out of L1 and out of L2
_L1_BYTES = 160 << 10  # of an SM, where a kernel has little shared memory (H100)
_TURN = 24.0  # instructions of a turn, besides those of its columns
_INSIDE = 3.0  # and of each column where a row may end
_REST = 0.25  # of what is not the limit, that is not hidden behind it
_REACHED = 4  # L2 holds what was read before of no more than this part of it: what is written goes through it too
_ALIKE = 1.05  # times the least that a way may take which has larger vectors, and fewer loads, which are not counted
_MORE = 1.25  # times the columns of the example that a row may have and is still held whole


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

    def of(self, columns: int) -> Pass:
        """The same of rows of so many columns, where it is said of one."""
        own, shared, written = (columns * n for n in (self.own_bytes, self.shared_bytes, self.written_bytes))
        return replace(self, own_bytes=own, shared_bytes=shared, written_bytes=written)


def choose_open(group: RowGroup, passes: Sequence[Pass], target: Target) -> RowTiles | None:
    """The fastest way to deal with rows of open length, as long as the example's; None where no registers hold a
    part."""
    vectors = [1 << i for i in range(widest(group.columns, group.element_bytes).bit_length())]
    lanes = [1 << i for i in range(WARP.bit_length() - 1, MOST_LANES.bit_length())]
    found = [
        tiles
        for vector, count, copies in product(vectors, lanes, (1, 2, 4, 8))
        if (count <= WARP or copies == 1) and (tiles := _held(group, vector, count, copies, target))
    ]
    if not found:
        return choose_long(group, passes, target)
    least = min(tiles.microseconds for tiles in found)
    fast = [tiles for tiles in found if tiles.microseconds <= _ALIKE * least]
    return min(fast, key=lambda tiles: (-tiles.vector, tiles.microseconds, tiles.lanes, -tiles.copies))


def _held(group: RowGroup, vector: int, lanes: int, copies: int, target: Target) -> RowTiles | None:
    """Rows that are held whole unless they are much longer than the example's: all do what the longest of them do. None
    where no registers hold these, or the example's."""
    part = lanes * vector
    most = min(ceil(_MORE * group.columns / part), MOST_COLUMNS // vector) * part
    longest = replace(group, columns=most, work=group.work + _INSIDE * group.reductions)
    tiles = of_lanes(longest, vector, lanes, copies, target) if most >= group.columns else None
    return None if tiles is None else replace(tiles, part=part, most=most)


def choose_long(group: RowGroup, passes: Sequence[Pass], target: Target, least: int = WARP) -> RowTiles | None:
    """The fastest way to go through rows in these passes, `least` or more threads a row; None where no registers hold a
    part."""
    vector = VECTOR_BYTES // group.element_bytes
    lanes = [1 << i for i in range(least.bit_length() - 1, MOST_LANES.bit_length())]
    found = [
        tiles
        for count, copies, vectors in product(lanes, (1, 2, 4, 8), range(1, MOST_COLUMNS // vector + 1))
        if (count <= WARP or copies == 1) and (vectors == 1 or count * vector * vectors <= group.columns)
        if (tiles := _by_parts(group, passes, _of_parts(count, vector, copies, vectors), target))
    ]
    return min(found, key=lambda tiles: (tiles.microseconds, tiles.lanes, -tiles.copies), default=None)


def _of_parts(lanes: int, vector: int, copies: int, vectors: int) -> RowTiles:
    """Parts of so many vectors a thread; neither how many CTAs go through rows so nor how fast is known yet."""
    return RowTiles(lanes, vector, copies, 0, 0.0, part=lanes * vector * vectors)


def _by_parts(group: RowGroup, passes: Sequence[Pass], made: RowTiles, target: Target) -> RowTiles | None:
    assert made.part is not None
    each = made.part // made.lanes
    ahead = max(one.own_bytes for one in passes) / group.columns / 4  # registers of a column that is read a turn before
    registers = OWN_REGISTERS + each * (max(one.live for one in passes) + ahead)
    if each > MOST_COLUMNS or registers > _MOST_LIVE:
        return None
    warps, threads = made.warps, made.copies * made.warps * WARP
    ctas = min(SM_THREADS // threads, SM_CTAS, int(SM_REGISTERS // (threads * registers)))
    if not ctas:
        return None
    count = group.tiles(made.rows)
    ctas = min(ctas, ceil(count / target.sms))
    turns, parts = ceil(count / (target.sms * ctas)), group.columns // made.part
    rest = ceil((group.columns - parts * made.part) / (made.lanes * made.vector)) + 1
    in_hand = min(target.sms * ctas * made.rows, group.rows)
    near = in_hand * max(one.own_bytes + one.written_bytes for one in passes) <= target.l2_bytes / _REACHED
    own = ctas * made.rows * max(one.own_bytes for one in passes) <= _L1_BYTES
    steps = log2(WARP) + (log2(warps) if warps > 1 else 0)
    issued = latency = looked_up = from_l2 = moved = 0.0
    for number, one in enumerate(passes):
        joins = one.reductions * (steps * SHUFFLE + (BARRIER if warps > 1 else 0))
        work, end = one.work + one.reductions, 2 * one.reductions * steps + _TURN
        whole, some = each * work + end, made.vector * (work + _INSIDE) + end
        fetch = FETCH if not number else _OWN_FETCH if own else _NEAR_FETCH if near else FETCH
        latency += parts * max(fetch, 2 * whole + joins) + rest * (fetch + 2 * some + joins)
        issued += parts * whole + rest * some
        touched = one.own_bytes + one.shared_bytes + one.written_bytes
        accesses = touched / (group.columns * group.element_bytes) * (parts * each / made.vector + rest)
        looked_up += accesses * ceil(WARP * made.vector * group.element_bytes / LINE)
        from_l2 += touched
        moved += one.written_bytes + (0 if number and (near or own) else one.own_bytes)
    warps_at_once = turns * ctas * threads / WARP
    limits = [
        warps_at_once * issued / 4,  # four schedulers
        warps_at_once * looked_up,
        group.rows * max(moved / target.dram_gbps, from_l2 / target.l2_gbps) * CLOCK / 1e3,
        BEGUN * target.sms * max(0, min(count / target.sms, ctas) - EARLY) + turns * latency,
    ]
    cycles = max(limits) + _REST * (sum(limits) - max(limits))
    return replace(made, ctas=ctas, microseconds=target.launch_us + cycles / CLOCK)


def apart_us(group: RowGroup, passes: Sequence[Pass], kept_bytes: float, target: Target) -> float:
    """What the same takes as kernels that do one thing each over all rows, reductions in two where rows are few. They
    write so many bytes of a row for each other, and read them twice for once that what these are computed of is read.
    """
    total, few = 2 * group.rows * kept_bytes / target.dram_gbps / 1e3, group.rows < 8 * target.sms
    near = group.rows * max(one.own_bytes for one in passes) <= target.l2_bytes / 2
    for number, one in enumerate(passes):
        kernels = max(1, one.reductions)
        read = one.own_bytes / (target.l2_gbps if near and number else target.dram_gbps)
        each = read + one.written_bytes / target.dram_gbps + one.shared_bytes / target.l2_gbps
        total += kernels * (target.launch_us * (2 if few else 1) + group.rows * each / 1e3)
    return total
