"""Who has which columns of a row where each row is read once, kept in registers, and written once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import ceil, log2

from .target import Target

MOST_LANES = 512  # threads that have a row together
LEAST_INNER = 24  # rows that are neighbours in a column, of the 32 that the threads of a warp have
MOST_TURNED = 512  # columns of such rows that surely fit the registers of a CTA
MOST_WARPS = 32  # of which each thread has rows with those of the others
MOST_ROWS = 4  # of such a thread, neighbours of one column, whose numbers of 32 bits are stored together
MOST_COLUMNS = 64  # of a row, or of its rows together, that one thread has
WIDEST = 16384  # columns that are worth counting on: half as many a thread leaves registers for several operands
MOST_REGISTERS = 224
WARP = 32
VECTOR_BYTES = 16
SM_THREADS, SM_CTAS, SM_REGISTERS = 1536, 24, 65536  # the fewest of any SM since 8.0
OWN_REGISTERS = 32  # of a thread, besides its columns

# Cycles, but for the rate of the clock.
CLOCK = 1.7e3  # a microsecond
FETCH = 600.0  # from the first load of a row until it is there
SHUFFLE = 30.0
BARRIER = 120.0
LINE = 128  # bytes that a warp's access has in one look-up of the L1 cache
_REST = 0.1  # of what is not the limit, that is not hidden behind it
# Blocks begin one after another, a few on each SM beside the end of the kernel before: nine products of 17 rows, 256
# columns and k 256 took 2.7 us each, in 2,176 blocks, and were predicted to take 1.6 (H100).
BEGUN, EARLY = 1.2, 4
_WAITS = 3.0  # cycles more for an instruction that is done for a row, which the next one waits for
_SCANNED = 2  # instructions of a scan for a column, besides its own
_TURN = 60.0  # instructions of a turn, besides those of its columns
# Norms and softmax of 33 to 134 MB took 3 to 8 % longer by CTAs that go round many tiles than by those that have one
# each (H200; 440 kernels of forced tiles). The reason is taken to be, and was not measured: they get ahead of one
# another, and DRAM is asked for rows far apart. The SMs are given such CTAs one after another, 800 in a microsecond,
# and the place of one is free when its last row is done. None waits for what comes before, so that these kernels begin
# behind its end: where they take a few microseconds only, that is longer.
_LARGE = 0.5  # times what L2 holds
_GIVEN = 2.2
_LAST = 0.01  # longer for each doubling of its warps
_REST_SINGLE = 0.03


@dataclass(frozen=True)
class RowGroup:
    """What is done to rows of so many columns: `row_bytes` are read and written of each, `shared_bytes` are read for
    each of what others read too, `live` 32-bit registers hold what is kept of a column, `work` instructions deal with
    one; `reductions` go along the row, and `scans`, which a warp's threads alone do. Each thread of a row has
    `row_live` numbers of it besides, and `row_work` instructions to do for it. `element_bytes` is the size of the
    smallest element of what is read or written by rows and columns. `is_open`: the number of rows is only known when
    they are there. A tile has rows of one of `segments` only, which are as many in each. Where they are `turned` not a
    row's columns are neighbours in memory but a column's rows."""

    rows: int
    columns: int
    element_bytes: int
    row_bytes: float
    live: float
    work: float
    reductions: int
    shared_bytes: float = 0.0
    is_open: bool = False
    segments: int = 1
    turned: bool = False
    scans: int = 0
    row_work: float = 0.0
    row_live: int = 0

    def tiles(self, rows: int) -> int:
        """Tiles of so many rows."""
        return self.segments * ceil(self.rows / self.segments / rows)


@dataclass(frozen=True)
class RowTiles:
    """`lanes` neighbouring threads have a row together, each vectors of `vector` neighbouring columns, lane after lane.
    A copy of the agent is `warps` warps, and there are `copies` of them in each of `ctas` CTAs an SM. These go round
    the tiles, or each has a `single` one and makes room for the next. Where it is `turned` the threads of a warp have
    `vector` neighbouring rows each, and `lanes` warps the same ones, warp after warp a column. Of a row it has all
    columns at once, or, one after another, parts of `part` (long_rows.py) where it has more than `most`."""

    lanes: int
    vector: int
    copies: int
    ctas: int
    microseconds: float
    single: bool = False
    turned: bool = False
    part: int | None = None
    most: int = 0

    @property
    def warps(self) -> int:
        return self.lanes if self.turned else max(1, self.lanes // WARP)

    @property
    def copy_rows(self) -> int:
        """Rows that a copy has at once."""
        return WARP * self.vector if self.turned else max(1, WARP // self.lanes)

    @property
    def rows(self) -> int:
        """Rows that a CTA has at once."""
        return self.copies * self.copy_rows

    @property
    def registers(self) -> int:
        """What a thread may have."""
        return min(255, SM_REGISTERS // (self.copies * self.warps * WARP * self.ctas)) // 8 * 8


def choose(group: RowGroup, target: Target) -> RowTiles | None:
    """The fastest way to deal with a group, or None when its rows do not fit the registers of a CTA."""
    if group.turned:
        return _turned(group, target)
    vector = widest(group.columns, group.element_bytes)
    lanes = [1 << i for i in range(MOST_LANES.bit_length())]
    found = [
        tiles
        for count, copies in product(lanes, (1, 2, 4, 8))
        if (count <= WARP or copies == 1)
        and (count == 1 or count // 2 * vector < group.columns)
        and (tiles := of_lanes(group, vector, count, copies, target))
    ]
    best = min(found, key=lambda tiles: (tiles.microseconds, tiles.lanes, -tiles.copies), default=None)
    if best is None or group.rows * group.row_bytes < _LARGE * target.l2_bytes:
        return best
    counts = [1] if best.warps > 1 else [1, 2, 4, 8]
    singles = [of_lanes(group, vector, best.lanes, copies, target, single=True) for copies in counts]
    return min([best, *filter(None, singles)], key=lambda tiles: tiles.microseconds)


def choose_threads(group: RowGroup, target: Target) -> RowTiles | None:
    """The fastest way to deal with a group whose rows a thread has alone; None where its registers do not hold one."""
    vector = max(1, VECTOR_BYTES // group.element_bytes)
    found = [tiles for copies in (1, 2, 4, 8) if (tiles := of_lanes(group, vector, 1, copies, target))]
    return min(found, key=lambda tiles: (tiles.microseconds, -tiles.copies), default=None)


def widest(columns: int, element_bytes: int) -> int:
    """Elements of 16 bytes, or the largest power of two of them that divides lines of so many."""
    return min(VECTOR_BYTES // element_bytes, columns & -columns)


def _turned(group: RowGroup, target: Target) -> RowTiles | None:
    """The same of rows whose elements of a column are neighbours."""
    ways = [(1 << i, 1) for i in range(MOST_WARPS.bit_length())] + [(1, 2), (1, 4), (1, 8)]
    most = min(MOST_ROWS, widest(group.rows // group.segments, group.element_bytes))
    rows = [1 << i for i in range(most.bit_length())]
    found = [
        tiles
        for vector, (warps, copies) in product(rows, ways)
        if (tiles := of_lanes(group, vector, warps, copies, target))
    ]
    return min(found, key=lambda tiles: (tiles.microseconds, tiles.lanes, -tiles.copies), default=None)


def of_lanes(
    group: RowGroup, vector: int, lanes: int, copies: int, target: Target, single: bool = False
) -> RowTiles | None:
    """Rows that lie so in threads; None where these do not hold them."""
    side_by_side, own_rows = (1, vector) if group.turned else (vector, 1)
    each = ceil(group.columns / (lanes * side_by_side)) * side_by_side * own_rows  # elements of a thread
    registers = OWN_REGISTERS + each * group.live
    if (group.reductions or group.scans) and each > MOST_COLUMNS or registers > MOST_REGISTERS:
        return None
    registers += group.row_live * own_rows
    registers += each * (single and group.scans > 0)  # what is scanned, and what that gives
    registers = min(registers, MOST_REGISTERS)
    if group.scans and (group.turned or lanes > WARP):
        return None
    made = RowTiles(lanes, vector, copies, 0, 0.0, single, group.turned)
    warps = made.warps
    threads = copies * warps * WARP
    ctas = min(SM_THREADS // threads, SM_CTAS, int(SM_REGISTERS // (threads * registers)))
    if not ctas:
        return None
    count = group.tiles(made.rows)
    ctas = min(ctas, ceil(count / target.sms))
    turns = ceil(count / (target.sms * ctas))
    steps = lanes - 1 if group.turned else log2(min(lanes, WARP)) + (log2(warps) if warps > 1 else 0)
    joins = (group.reductions + group.scans * each / side_by_side) * steps
    work = group.work + group.reductions + _SCANNED * group.scans
    of_row = group.row_work * own_rows
    instructions = each * work + 2 * joins * own_rows + of_row + _TURN
    chains = (group.reductions + group.scans) * steps
    latency = (
        FETCH + 2 * instructions + _WAITS * of_row + chains * SHUFFLE + (group.reductions * BARRIER if warps > 1 else 0)
    )
    issued = turns * ctas * threads / WARP * instructions / 4  # four schedulers
    own = 1 if group.turned else WARP // min(lanes, WARP)  # rows, or columns, that a warp loads of at once
    lines = own * ceil(WARP // own * vector * group.element_bytes / LINE)
    accesses = (group.row_bytes + group.shared_bytes) / (group.columns * group.element_bytes) * each / vector
    looked_up = turns * ctas * threads / WARP * accesses * lines
    moved = group.rows * group.row_bytes * CLOCK / (target.dram_gbps * 1e3)
    taken = group.rows * (group.row_bytes + group.shared_bytes) * CLOCK / (target.l2_gbps * 1e3)
    begun = BEGUN * target.sms * max(0, min(count / target.sms, ctas) - EARLY)
    limits = [issued, looked_up, max(moved, taken), begun + turns * latency]
    cycles = max(limits) + _REST * sum(limits)
    if single:
        limits = [*limits[:-1], turns * latency, _GIVEN * count]
        cycles = (max(limits) + _REST_SINGLE * sum(limits)) * (1 + _LAST * log2(copies * warps))
    return replace(made, ctas=ctas, microseconds=target.launch_us + cycles / CLOCK)
