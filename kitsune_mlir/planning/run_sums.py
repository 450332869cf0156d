"""Whether updates of a table by index are first sorted by where they go, by cost.

In any order each update is an atomic operation in L2. In the order of the places that they go to a thread joins those
of RUN neighbours in registers, and only what it has when the place changes goes to memory; where that is dear, as the
largest of floats is, by an atomic operation only for places that other threads may have updates of, too. A sort serves
all scatters by the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

from .cost import CYCLES_A_US
from .kernel_cost import ADDED, TRIES
from .row_order import SORT_ROW_US, SORT_US
from .target import Target

RUN = 32  # neighbours that a thread joins
LEAST_COLUMNS = 16  # of updates: what narrower ones are made of takes as long to read as they to add
ROW_US = 45e-6  # of an update, however narrow: its number, and those of rows that are gathered for it, are lines each
SHARED = 2  # places of a run that other runs may have updates of: its first and its last
WORD = 4  # neighbouring numbers of f32 that are added at once
LEAST_GAIN = 1.3  # what is saved over what the sort takes
OPEN_SORT = 2.0  # times as long is a sort of keys of which nobody knows how large they are
SCATTERED = 0.5  # of the time of updates that are read in order is added where they are not
MOVED = 2  # times that an atomic operation moves its bytes


@dataclass(frozen=True)
class Updates:
    """`rows` updates of `columns` numbers, of `nbytes` each in the table, to some of `places` rows of it. `adds`: they
    are sums of f32. `read` are the bytes that each of them reads. `tries`: operations of memory for one number."""

    rows: int
    columns: int
    nbytes: int
    places: int
    adds: bool
    read: int
    tries: int = TRIES


def saved_us(updates: Updates, target: Target) -> float:
    """Microseconds that updates of a scatter take longer by atomic operations in any order; 0 where they do not."""
    if updates.columns < LEAST_COLUMNS:
        return 0.0
    numbers = updates.rows * updates.columns
    operations = numbers / WORD if updates.adds else numbers * updates.tries * changing(updates.rows, updates.places)
    bytes_us = MOVED * numbers * updates.nbytes / (target.l2_gbps * 1e3)
    atomic_us = max(operations / (target.sms * ADDED * CYCLES_A_US), bytes_us)
    read_us = updates.rows * updates.read / (target.l2_gbps * 1e3)
    left = leaving(updates.rows, updates.places)
    left = left if updates.adds else min(left, SHARED / RUN)
    joined_us = max(atomic_us * left, read_us * (1 + SCATTERED), updates.rows * ROW_US)
    return max(atomic_us, read_us) - joined_us


def changing(rows: int, places: int) -> float:
    """The share of updates in any order that are larger than all before them of their place: others are loads alone."""
    each = max(1.0, rows / max(1, places))
    return (1 + log(each)) / each


def leaving(rows: int, places: int) -> float:
    """How many times what a thread has leaves it, on average, for each of its updates."""
    return min(1.0, 1 / RUN + places / max(1, rows))


def pays(group: Sequence[Updates], is_open: bool, target: Target) -> bool:
    """Whether scatters by the same numbers, of which each saves something, save more than their sort takes."""
    if not group:
        return False
    sort_us = (SORT_US + SORT_ROW_US * group[0].rows) * (OPEN_SORT if is_open else 1.0)
    return sum(saved_us(updates, target) for updates in group) >= LEAST_GAIN * sort_us
