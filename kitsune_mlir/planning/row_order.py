"""Whether a row space's rows are put into the order of their receivers, once a call, by cost.

Rows that are summed at receivers (edges, at nodes) by additions in L2 are, in any order, read and written in DRAM each
where the L2 does not hold the table of sums. In the order of the receivers each row of the table is, once a sum. For
that the rows' receivers are sorted, and all that comes into the row space or leaves it changes its order.
"""

from __future__ import annotations

from dataclasses import dataclass

from .target import Target

SORT_US = 16.0  # of the kernels of a sort, however few rows
SORT_ROW_US = 35e-6  # a row, which is moved twice
INDEX_ROW_US = 8e-6  # a row of an index vector, or anything else of a few bytes, brought into order
FEW_BYTES = 8
IN_STAGE_BYTES = 256  # of a row that is brought into order where it is read; wider rows are, by a kernel of its own
IN_STAGE = 0.3  # what rows read or written one by one take beyond rows in order, as a part of the time of those
LEAST_GAIN = 1.5  # what is saved over what it costs
LEAST_SAVED_US = 50.0
LEAST_ROWS_A_PLACE = 2  # rows over places of the table: where few rows meet, nothing is saved


@dataclass(frozen=True)
class Sums:
    """Rows of `columns` columns of f32 that are summed at `places`."""

    columns: int
    places: int


@dataclass(frozen=True)
class Moved:
    """A tensor of the row space of `row_bytes` a row that is brought into order, or back from it. `here` says that
    where it leaves or comes in it does so by stages of the row space: not where it is used in order, too."""

    row_bytes: int
    here: bool = True


@dataclass(frozen=True)
class RowSpace:
    """`rows` rows, the sums by one index that are made of them, and what comes in and leaves."""

    rows: int
    sums: tuple[Sums, ...]
    moved: tuple[Moved, ...]


def saved_us(space: RowSpace, target: Target) -> float:
    """Microseconds of DRAM that additions in order do without: those to tables that the L2 does not hold."""
    total = 0.0
    for sums in space.sums:
        table = 4 * sums.columns * sums.places
        if 2 * table > target.l2_bytes and space.rows >= LEAST_ROWS_A_PLACE * sums.places:
            total += 2 * (4 * sums.columns * space.rows - table) / (target.dram_gbps * 1e3)
    return total


def order_us(space: RowSpace, target: Target) -> float:
    """Microseconds of the sort and of what changes its order."""
    return SORT_US + SORT_ROW_US * space.rows + sum(_moved_us(moved, space.rows, target) for moved in space.moved)


def _moved_us(moved: Moved, rows: int, target: Target) -> float:
    if moved.row_bytes <= FEW_BYTES:
        return INDEX_ROW_US * rows
    once = moved.row_bytes * rows / (target.dram_gbps * 1e3)
    in_stage = moved.here and moved.row_bytes <= IN_STAGE_BYTES
    return once * (IN_STAGE if in_stage else 2.0)  # else it is read and written once more


def pays(space: RowSpace, target: Target) -> bool:
    """Whether the rows should be put into order."""
    saved = saved_us(space, target)
    return saved >= LEAST_SAVED_US and saved >= LEAST_GAIN * order_us(space, target)
