"""How many equal steps, each of which multiplies what the one before made with the same weights, are one kernel.

A cluster of CTAs has some rows through all steps. Each CTA has some columns of the state, and of the weights the rows
that these are computed with, which stay in its shared memory. Behind each step a CTA gives its columns to all others
of its cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import ceil

from .cost import CYCLES_A_US, LATENCY, Price
from .product_engines import CHUNK, Warpgroups
from .product_tiles import PAIRS
from .schedule_slots import MOST_STEPS
from .target import Target

CLUSTERS = (2, 4, 8, 16)
ROWS = (16, 32, 64)  # of a cluster; a warpgroup multiplies 64, whatever they are
COLUMNS = (8, 16, 32, 64)  # of the state, that a CTA has
_MULTIPLIED = 64  # rows
_LEAST_CYCLES = 16.0  # of a warpgroup's product of 16 columns of k, whatever its columns
_STEP = 16
_SENT = 8.5  # bytes a cycle that a CTA gets from others; so are the meetings of clusters that were measured (H100)
_EXCHANGED = 900.0  # cycles from what a step has computed until others see it, besides
_BARRIERS, _BOX = 2048, 64 * 128  # bytes of shared memory besides rings
_OTHER = 64  # operations of a step that are proven, besides those of its chunks
_MOST_SUMS = 256  # columns of all products of a CTA


@dataclass(frozen=True)
class Recurrence:
    """`steps` of `rows` rows: `gates` products of a state of `width` columns, whose numbers are so many `pieces` of 16
    bits, and elementwise operators behind, of `work` instructions for an element of the state."""

    steps: int
    rows: int
    width: int
    gates: int
    pieces: int
    work: float


@dataclass(frozen=True)
class StepTiles:
    """Rows that a cluster has together, its CTAs, columns of the state that each of these has."""

    rows: int
    cluster: int
    columns: int
    price: Price


def choose(of: Recurrence, target: Target) -> StepTiles | None:
    """The fastest tiles by predicted time; None where there are none, or where steps are too many for a kernel of
    all to be proven. Rows that are no multiple of 16 have tiles of 64, the last of which reaches behind them."""
    if not target.has_warpgroups or not target.clusters or of.width % CHUNK:
        return None
    chunk = 5 * of.pieces + len(PAIRS[of.pieces]) + 2  # what is proven of a step's: slots that are opened, filled, ...
    if of.steps * (of.width // CHUNK * chunk + _OTHER) > MOST_STEPS:
        return None
    found = [
        tiles
        for rows, columns in product(ROWS, COLUMNS)
        if (of.rows % rows == 0 or rows == _MULTIPLIED) and (tiles := _tiles(of, rows, columns, target)) is not None
    ]
    return min(found, key=lambda tiles: tiles.price.us, default=None)


def shared_bytes(of: Recurrence, columns: int) -> int:
    """Of a CTA: its part of the weights, the whole state, and the box through which its columns leave."""
    chunks = of.width // CHUNK * of.pieces
    return chunks * (of.gates * columns + _MULTIPLIED) * CHUNK * 2 + _BOX + _BARRIERS


def _tiles(of: Recurrence, rows: int, columns: int, target: Target) -> StepTiles | None:
    cluster, rest = divmod(of.width, columns)
    fits = shared_bytes(of, columns) <= target.shared_bytes
    if rest or cluster not in CLUSTERS or not fits or of.gates * columns > _MOST_SUMS // (2 if of.pieces > 1 else 1):
        return None
    on, wide = Warpgroups(target), of.gates * columns
    chunks, pairs = of.width // CHUNK, len(PAIRS[of.pieces])
    each = max(_LEAST_CYCLES * CHUNK / _STEP, _MULTIPLIED * wide * CHUNK / on.multiplied)
    products = chunks * (pairs * each + (on.turn if of.pieces == 1 else on.added))
    element = _MULTIPLIED * columns / 64.0  # cycles of an instruction for each: four warps hide little of each other
    leaves = element * (on.stored + of.work + 6 * (of.pieces - 1))
    given = rows * of.width * 2 * of.pieces * (cluster - 1) / cluster
    step = products + leaves + _EXCHANGED + given / _SENT
    places = target.clusters_at_once(cluster)
    turns = ceil(ceil(of.rows / rows) / places)
    start = on.start + wide * of.width * 2 * of.pieces / on.loaded
    us = target.launch_us + (start + turns * of.steps * step) / CYCLES_A_US
    return StepTiles(rows, cluster, columns, Price(us, LATENCY))
