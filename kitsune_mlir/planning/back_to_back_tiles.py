"""The tiles of products with elementwise operators, and more products of what these make, between and behind them: of
(b x m x k) times (b x k x n) by (b x n x v), of some k and some v."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import ceil

from .attention_tiles import ISSUED, LOADED, MULTIPLIED, HeldRows, Weighed, registers_of
from .cost import ARITHMETIC, CYCLES_A_US, L2, TENSOR, Price
from .product_engines import BARRIERS, CHUNK, COPY_ROWS
from .target import Target

COLUMNS = 64  # of a turn: rows of what is multiplied as it lies
_SLOT = COLUMNS * 128  # bytes of a slot
_COPIES = (1, 2)
_MOST_TURNS = 4  # whose slots are held
_MOST_REGISTERS = 176  # of a thread, for sums, and for what is made of them
_BESIDE = 48  # registers of a thread besides these
_OWN_WORK = 3.0  # instructions of an element besides what is computed of it: to round and keep it
_TURN = {1: (0.98, 1.03, 500.0), 2: (0.72, 1.37, 300.0)}  # as of attention_tiles.py
_TILE, _START = 900.0, 2300.0  # cycles of a tile, and of the kernel besides


@dataclass(frozen=True)
class BackToBack:
    """Of `batch` blocks of so many `rows`, which tiles do not cross, products of so many elements, `firsts`, with `n`
    columns, and of these with so many columns each, `seconds`, of which `shared` multiply what firsts do. `given`
    left operands are made of elements of `firsts`. So many instructions as `work` says deal with an element, and `read`
    bytes of memory come to it; a tile of rows from number r on has columns from r + `first` on and up to r + `last`."""

    batch: int
    rows: int
    n: int
    firsts: tuple[int, ...]
    seconds: tuple[int, ...]
    shared: int
    given: int
    work: float
    read: float
    first: int | None = None
    last: int | None = None


@dataclass(frozen=True)
class BackToBackTiles(HeldRows):
    """`copies` warpgroups of 64 rows each; rings' slots hold so many turns, those of the left operands so many tiles.
    `wide` columns are all of the seconds' that a tile has."""

    copies: int
    turns: int
    held: int
    wide: int
    price: Price
    columns: int = COLUMNS
    cluster: int = 1
    shares_evenly: bool = True
    resident: int = 1


def _chunks(size: int) -> int:
    """How many slots so many columns of 16 bits have."""
    return ceil(size / CHUNK)


@cache
def choose(of: BackToBack, target: Target) -> BackToBackTiles | None:
    """The fastest tiles, or None where none fits."""
    fitting = (tiles for copies in _COPIES if (tiles := _tiles(of, target, copies)) is not None)
    return min(fitting, key=lambda tiles: round(tiles.price.us, 6), default=None)


def _tiles(of: BackToBack, target: Target, copies: int) -> BackToBackTiles | None:
    own, sums = copies * COPY_ROWS, sum(map(_chunks, of.seconds)) * CHUNK
    registers = len(of.firsts) * COLUMNS // 2 + sums // 2 + of.given * COLUMNS // 4
    if registers > _MOST_REGISTERS or registers + _BESIDE > registers_of(copies, 1):
        return None
    left = sum(map(_chunks, of.firsts)) * own * 128
    of_turn = (sum(map(_chunks, of.firsts)) + sum(map(_chunks, of.seconds[of.shared :]))) * _SLOT
    free = target.shared_bytes - BARRIERS
    held = 2 if free - 2 * left >= 2 * of_turn else 1
    turns = min(_MOST_TURNS, (free - held * left) // of_turn)
    if turns < 2:  # products with one turn's run beside those of the next
        return None
    elements = own * COLUMNS
    widths = sum(CHUNK * _chunks(size) for size in (*of.firsts, *of.seconds))
    multiplied, issued = elements * widths / MULTIPLIED, elements * (of.work + of.given * _OWN_WORK) / ISSUED
    loaded = (of_turn + elements * of.read) / LOADED
    a, b, besides = _TURN[copies]
    turn = max(loaded, a * multiplied + b * issued) + besides
    rows = Weighed(of.batch, of.rows, of.n, 0, 0, of.work, of.read, of.first, of.last)
    count, tiles = rows.most_turns(own, COLUMNS, target, 1, 1)
    cycles = count * turn + tiles * (_TILE + own * sums / 32) + _START
    limit = L2 if loaded > turn - besides else TENSOR if multiplied > issued else ARITHMETIC
    price = Price(target.launch_us + cycles / CYCLES_A_US, limit)
    return BackToBackTiles(copies, turns, held, max(of.seconds), price)
