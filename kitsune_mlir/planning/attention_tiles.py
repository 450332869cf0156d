"""The tiles of two products with weights between them: of (b x m x k) times (b x k x n), weighed along rows, times
(b x n x v)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product
from math import ceil

from .cost import ARITHMETIC, CYCLES_A_US, L2, TENSOR, Price
from .product_tiles import CHUNK, COPY_ROWS
from .target import Target

_COLUMNS = (64, 128)
_BARRIERS = 1024  # bytes of shared memory in front of the slots
_MOST_SLOTS = 8
_REGISTERS = 176  # of a thread, for sums, scores and weights
_MULTIPLIED = 1700.0  # multiply-adds a cycle and SM
_LOADED = 57.0  # bytes a cycle and SM from L2
_ISSUED = 128.0  # instructions of threads a cycle and SM, 64 of one warpgroup's
_OWN_WORK = 6.0  # instructions of an element besides those of what is computed
_TURN, _TILE, _START = 300.0, 600.0, 1550.0  # cycles of a turn, of a tile, and of the kernel besides


@dataclass(frozen=True)
class AttentionTiles:
    """`copies` warpgroups of 64 rows each, so many `columns` at a time; slots of chunks of 64 columns of the left
    operand, of the right one, and of 64 rows of the values."""

    copies: int
    columns: int
    left_slots: int
    right_slots: int
    value_slots: int
    price: Price

    @property
    def rows(self) -> int:
        return self.copies * COPY_ROWS


@cache
def choose(
    batch: int, rows: int, n: int, k: int, v: int, work: float, shown: float, read: float, target: Target
) -> AttentionTiles | None:
    """The fastest tiles, or None where none fits: of `batch` blocks of so many `rows`, which tiles do not cross. So many
    instructions as `work` says deal with a score, and `read` bytes of memory come to it. Of the columns tiles have the
    part `shown` on average."""
    found = [
        tiles
        for copies, columns in product((1, 2), _COLUMNS)
        if (tiles := _tiles(batch, rows, n, k, v, work, shown, read, target, copies, columns)) is not None
    ]
    return min(found, key=lambda tiles: tiles.price.us, default=None)


def _tiles(
    batch: int, rows: int, n: int, k: int, v: int, work: float, shown: float, read: float, target: Target,
    copies: int, columns: int,
) -> AttentionTiles | None:
    chunks, wide, own = ceil(k / CHUNK), ceil(v / CHUNK) * CHUNK, copies * COPY_ROWS
    if wide // 2 + columns // 2 + columns // 4 > _REGISTERS:
        return None
    left, right, value = (own * CHUNK * 2, columns * CHUNK * 2, wide * CHUNK * 2)
    of_turn = chunks * right + columns // CHUNK * value
    for tiles_held in (2, 1):
        room = target.shared_bytes - _BARRIERS - tiles_held * chunks * left
        turns = room // of_turn
        if turns >= 2 or turns == 1 and tiles_held == 1:
            break
    else:
        return None
    turns = min(turns, _MOST_SLOTS, 4)
    multiplied = own * columns * (chunks * CHUNK + wide) / _MULTIPLIED
    element = own * columns * (work + _OWN_WORK) / (_ISSUED if copies > 1 else _ISSUED / 2)
    element += own * wide / (_ISSUED if copies > 1 else _ISSUED / 2)
    loaded = (of_turn + own * columns * read) / _LOADED
    computed = multiplied + element if copies == 1 else max(multiplied, element) + min(multiplied, element) / 3
    turn = _TURN + max(loaded, computed)
    of_tile = ceil(n / columns) * shown
    tiles = batch * ceil(rows / own)
    rounds = max(1.0, tiles / target.sms) if shown < 1 else ceil(tiles / target.sms)
    cycles = rounds * (of_tile * turn + _TILE + own * wide / 32) + _START
    us = target.launch_us + cycles / CYCLES_A_US
    limit = L2 if loaded > computed else TENSOR if multiplied > element else ARITHMETIC
    return AttentionTiles(copies, columns, tiles_held * chunks, turns * chunks, turns * (columns // CHUNK), Price(us, limit))
