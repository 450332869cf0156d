"""The tiles of two products with weights between them: of (b x m x k) times (b x k x n), weighed along rows, times
(b x n x v)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import ceil

from .cost import ARITHMETIC, CYCLES_A_US, L2, TENSOR, Price
from .product_engines import BARRIERS, BESIDE_SUMS, CHUNK, COPY_ROWS
from .product_tiles import CLUSTERS, HANDED, PIECES_OF
from .schedule_proof import REGISTERS
from .target import Target

_COLUMNS = (64, 128)
_CHUNK_BYTES = 128  # of a row of a slot
_MOST_WIDE = 256  # columns of values
_MOST_TURNS = 4  # whose slots are held
_MOST_REGISTERS = 192  # of a thread, for sums, for scores, and for the next ones, whose products run meanwhile
_BESIDE = 40  # registers of a thread besides these
_THREADS, FEED_REGISTERS, _MOST_GIVEN = 128, 24, 240  # of a warpgroup; of a thread that copies, of one that multiplies
_WITH_AHEAD = 200  # the same with what is read for the scores, before they are there
MULTIPLIED = 2048.0  # multiply-adds a cycle and SM
LOADED = 57.0  # bytes a cycle and SM from L2
ISSUED = 128.0  # instructions of threads a cycle and SM
_OWN_WORK = 5.25  # instructions of a score besides what is computed of it: to power, sum, round and keep it
_MEETS = 2500.0  # cycles of the meetings at a tile's end, besides what each column of a copy takes
_TAKEN_APART = 10.0  # instructions of a weight that becomes pieces
# Cycles of a turn, by the warpgroups: for each in which tensor cores multiply, for each in which instructions are
# issued, and besides. One warpgroup alone does these in turn, two beside each other. So 26 kernels, of 64 to 128
# columns and 64 x 64 to 4096 x 4096 scores, are predicted within 6 % on average (H100).
_TURN = {1: (0.98, 1.03, 376.0), 2: (0.72, 1.37, 182.0)}
# CTAs of one warpgroup that an SM holds at once where columns are few: a tile of one turn or two has little that could
# run beside its own products. They are taken to be beside each other as two warpgroups of one CTA are.
_RESIDENT, _FEW = (1, 2, 3), 128
_EXACT_TURN = (0.9, 1.7, 1000.0)  # in pieces: the same of 18 kernels, within 25 %, and what they take longer to start
_EXACT_START = 2000.0
_TILE, _START = 700.0, 2300.0  # cycles of a tile, and of the kernel besides


@dataclass(frozen=True)
class Weighed:
    """Of `batch` blocks of so many `rows`, which tiles do not cross, the products with `n` columns of `k`, and with so
    many of `v` columns. So many instructions as `work` says deal with a score, and `read` bytes of memory come to it. A
    tile of rows from number r on has columns from r + `first` on and up to r + `last`; None where there is no such
    end. Elements are of so many bytes: 2, or 4 that are multiplied as tf32; or numbers of f32 are pieces of 2 bytes, of
    which so many `pairs` are multiplied. Where numbers of rows are results, too, `with_numbers`, one CTA has a row."""

    batch: int
    rows: int
    n: int
    k: int
    v: int
    work: float
    read: float
    first: int | None = None
    last: int | None = None
    element_bytes: int = 2
    pairs: int = 1
    with_numbers: bool = False

    @property
    def pieces(self) -> int:
        return PIECES_OF[self.pairs]

    @property
    def chunk(self) -> int:
        """Columns of a slot."""
        return 2 * CHUNK // self.element_bytes

    def turns(self, rows: int, columns: int, cluster: int) -> Counter[int]:
        """How many of the tiles of a block, so many rows and columns each, have so many turns, which a CTA of a cluster
        has."""
        if self.first is None and self.last is None:
            return Counter({max(1, ceil(self.n / columns / cluster)): ceil(self.rows / rows)})
        found = Counter[int]()
        for row in range(0, self.rows, rows):
            begin = 0 if self.first is None else max(0, row + self.first) // columns * columns
            end = self.n if self.last is None else min(self.n, row + rows + self.last)
            found[max(1, ceil((end - begin) / columns / cluster))] += 1
        return found

    def most_turns(
        self, rows: int, columns: int, target: Target, parts: int, cluster: int, resident: int = 1
    ) -> tuple[int, int]:
        """The turns, and the tiles, of the CTA that has the most, of all that find places, so many an SM, which take
        every so manieth tile, those of many turns first: of the first CTA. There are so many `parts` of each tile."""
        places = target.clusters_at_once(cluster) * resident
        found, before, dealt = 0, 0, 0  # the first CTA's turns and tiles, of so many rows' tiles that are dealt
        for turns, count in sorted(self.turns(rows, columns, cluster).items(), reverse=True):
            dealt += count
            tiles = ceil(dealt * self.batch * parts / places)
            found, before = found + (tiles - before) * turns, tiles
        return found, before

    def shares_evenly(self, columns: int, cluster: int) -> bool:
        """Whether each CTA of a cluster has turns of a tile, in equal shares but for the last one's."""
        turns = ceil(self.n / columns)
        whole = self.first is None and self.last is None and (cluster - 1) * ceil(turns / cluster) < turns
        return cluster == 1 or whole


class HeldRows:
    """What tiles of rows say whose `copies` warpgroups hold 64 each, where an SM holds so many `resident` CTAs."""

    copies: int
    resident: int

    @property
    def rows(self) -> int:
        return self.copies * COPY_ROWS

    @property
    def registers(self) -> int:
        """What a thread that multiplies may have."""
        return registers_of(self.copies, self.resident)


@dataclass(frozen=True)
class AttentionTiles(HeldRows):
    """`copies` warpgroups of 64 rows each, so many `columns` at a time, of values that are `wide` columns, or parts of
    so many; slots of 128 bytes of each row of the left operand, of the right one, and of 64 rows of the values, or of
    the 32 that are 128 bytes of f32. What comes to scores from memory is read before they are there
    where it `reads_ahead`: as far as registers hold it. The columns of a tile are shared by the CTAs of a `cluster`;
    where they don't `shares_evenly`, some have none. An SM holds so many `resident` CTAs."""

    copies: int
    columns: int
    wide: int
    left_slots: int
    right_slots: int
    value_slots: int
    price: Price
    reads_ahead: bool = False
    cluster: int = 1
    shares_evenly: bool = True
    resident: int = 1


def registers_of(copies: int, resident: int) -> int:
    """The registers of a thread that multiplies, of so many warpgroups beside the one that copies, where an SM holds so
    many CTAs: what a launch gives, and what the other one's threads give up."""
    return min(_MOST_GIVEN, ((1 + copies) * _given(copies, resident) - FEED_REGISTERS) // copies // 8 * 8)


def _given(copies: int, resident: int) -> int:
    """The registers that a launch gives each thread, with which ptxas counts."""
    return REGISTERS // ((1 + copies) * _THREADS * resident) // 8 * 8


@cache
def choose(of: Weighed, target: Target) -> AttentionTiles | None:
    """The fastest tiles, or None where none fits."""
    least = ceil(of.v / (_MOST_WIDE if of.pieces == 1 else _MOST_WIDE // 2))
    parts = (1,) if least == 1 else (least, 2 * least)
    clusters = CLUSTERS if target.clusters and not of.with_numbers else (1,)
    if of.with_numbers and least > 1:
        return None
    found = (_tiles(of, target, *form) for form in product(_TURN, _COLUMNS, parts, clusters, _RESIDENT))
    fitting = (tiles for tiles in found if tiles is not None)
    return min(fitting, key=lambda tiles: (round(tiles.price.us, 6), tiles.resident), default=None)


def _tiles(
    of: Weighed, target: Target, copies: int, columns: int, parts: int, cluster: int, resident: int
) -> AttentionTiles | None:
    """Tiles of all rows and columns of the values, or of so many parts of these, for each of which scores are computed
    again. A cluster's CTAs share a tile's columns, and meet at its end."""
    if resident > 1 and (copies > 1 or cluster > 1 or of.pieces > 1 or of.n > _FEW):
        return None
    if cluster > 1 and (cluster > ceil(of.n / columns) or of.pieces > 1 and columns > min(_COLUMNS)):
        return None  # CTAs without columns; registers that are spilled
    chunks, wide, own = ceil(of.k / of.chunk), ceil(of.v / parts / CHUNK) * CHUNK, copies * COPY_ROWS
    registers = wide // 2 + columns
    if of.element_bytes > 2:
        registers += columns // 2  # weights are no smaller than scores
    if of.pieces > 1:  # of weights, and the sums of a chunk's products
        registers = wide + of.pieces * columns // 4
    if registers > _MOST_REGISTERS:
        return None
    if registers + _BESIDE > registers_of(copies, resident):
        return None
    if max(wide, columns) // 2 + BESIDE_SUMS > _given(copies, resident):
        return None
    ahead = resident == 1 and registers + of.read * columns / 8 <= _WITH_AHEAD
    left, right, value = (each * of.pieces * _CHUNK_BYTES for each in (own, columns, wide))
    of_turn = chunks * right + columns // of.chunk * value
    free = target.shared_bytes // resident - BARRIERS
    if cluster > 1:  # for sums, and for numbers of rows
        free -= own * (4 * wide + 8 * cluster) + BARRIERS
    held = 2 if free - 2 * chunks * left >= 2 * of_turn else 1  # tiles of the left operand
    slots = min(_MOST_TURNS, (free - held * chunks * left) // of_turn)
    if slots < 1:
        return None
    multiplied = own * columns * (chunks * of.chunk + wide) / MULTIPLIED * of.element_bytes / 2 * of.pairs
    own_work = _OWN_WORK + (wide / 2 + 48) / columns
    if of.pieces > 1:  # sums of chunks that are added, weights that are taken apart
        own_work += chunks + wide / of.chunk + _TAKEN_APART
    issued = own * columns * (of.work + own_work) / ISSUED
    loaded = (of_turn + own * columns * of.read) / LOADED
    a, b, besides = _TURN[min(copies * resident, 2)] if of.pieces == 1 else _EXACT_TURN
    turn = resident * max(loaded, a * multiplied + b * issued) + besides  # of all CTAs of an SM
    turns, tiles = of.most_turns(own, columns, target, ceil(of.v / wide), cluster, resident)
    meets = _MEETS + HANDED * wide * copies if cluster > 1 else 0.0
    cycles = (
        turns * turn
        + tiles * (_TILE + resident * own * wide / 32 + meets)
        + _START
        + (_EXACT_START if of.pieces > 1 else 0.0)
    )
    limit = L2 if resident * loaded > turn - besides else TENSOR if multiplied > issued else ARITHMETIC
    price = Price(target.launch_us + cycles / CYCLES_A_US, limit)
    of_left, of_right, of_values = held * chunks, slots * chunks, slots * (columns // of.chunk)
    counts = of.pieces * of_left, of.pieces * of_right, of.pieces * of_values
    evenly = of.shares_evenly(columns, cluster)
    return AttentionTiles(copies, columns, wide, *counts, price, ahead, cluster, evenly, resident)
