"""The tiles of one product (b x m x k) times (b x k x n), the operands of which come from memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product
from math import ceil, gcd

from .cost import CYCLES_A_US, L2, LATENCY, TENSOR, Price
from .target import Target

CHUNK = 64  # columns of k that a slot holds, of 16-bit elements
COPY_ROWS = 64  # rows of a warpgroup
MOST_SPLIT = 64
PAIRS = {  # of pieces of the operands that are multiplied, small terms first, by the number of pieces
    1: ((0, 0),),
    2: ((1, 0), (0, 1), (0, 0)),
    3: ((2, 0), (0, 2), (1, 1), (1, 0), (0, 1), (0, 0)),
}
_COLUMNS = (16, 32, 64, 96, 128, 192, 256)
_BARRIERS = 1024  # bytes of shared memory in front of the slots
_MOST_SLOTS = 8
_MOST_KEPT = 16  # chunks of an operand that is kept: each turn of their loop is code of its own

# Cycles, fitted to 132 products of bf16 with tiles of all shapes on an H200, from 128 x 128 x 64 to 4096 x 4096 x 4096:
# the mean factor between predicted and measured is 1.10, and the fastest tiles by these numbers take 1.2 % longer than
# the fastest measured. The next tile's chunks are on their way while one is stored.
_MULTIPLIED = 1700.0  # multiply-adds a cycle; tensor cores have 2048
_LOADED = 57.0  # bytes a cycle and SM from L2, of whole lines
_TURN = 10.0  # of a chunk, besides
_ADDED = 90.0  # the same where sums are added outside of tensor cores
_START = 1550.0  # until the first tile's first chunk is there
_TILE = 150.0  # of a tile, besides
_STORED = 2.5  # instructions of a thread for an element that leaves, besides those of what is done to it
_LAST = 9.0  # the same of the last tile besides, behind which nothing is on its way
_ISSUED = 64.0  # instructions of a warpgroup's threads a cycle
_SUMMED = 1000.0  # bytes of partial sums a cycle, all SMs together, there and back
_LINE = 128  # bytes of a line of the L2, and of a box's rows


@dataclass(frozen=True)
class ProductTiles:
    """`copies` warpgroups of 64 rows times `columns`, `slots` chunks of operands on their way; the sum over k in
    `split` parts of `part` columns each. The chunks of an operand that is `kept`, "left" or "right", are the same for
    all tiles, and lie in shared memory throughout. `price` is the kernel's; `microseconds` are with the sum of the
    parts, which is another's."""

    copies: int
    columns: int
    slots: int
    split: int
    part: int
    price: Price
    microseconds: float
    kept: str | None = None

    @property
    def rows(self) -> int:
        return self.copies * COPY_ROWS


@cache
def choose(
    b: int,
    m: int,
    n: int,
    k: int,
    across: bool,
    pairs: int,
    target: Target,
    most_split: int = MOST_SPLIT,
    work: float = 0.0,
    whole: bool = False,
    shared: frozenset[str] = frozenset(),
) -> ProductTiles | None:
    """The fastest tiles for a product of these sizes, or None when none fits. `across`: the columns of the right
    operand are neighbours in memory, so that it comes in boxes of 64. `pairs` products of 16-bit pieces make one; of
    more than one the sums are added outside tensor cores, which takes registers for another set. The sum over k is cut
    into at most `most_split` parts. So many instructions as `work` says deal with each element before it is stored.
    `whole`: tiles have exactly all columns and all of k. `shared` are operands, "left" and "right", that are the same
    throughout the batch, whose chunks may be kept."""
    most = _COLUMNS[-1] if pairs == 1 else _COLUMNS[-1] // 2
    found = [
        tiles
        for copies, columns, parts, kept in product((1, 2), _COLUMNS, _splits(k), (None, *sorted(shared)))
        if columns <= most
        and parts <= most_split
        and (not whole or columns == n and parts == 1)
        and not (across and columns % 64)
        and (
            kept is None or _may_keep(m if kept == "left" else n, copies * COPY_ROWS if kept == "left" else columns, k)
        )
        and (kept is None or pairs == parts == 1)
        and (tiles := _tiles(b, m, n, k, copies, columns, parts, across, pairs, target, work, kept))
    ]
    return min(found, key=lambda tiles: (tiles.microseconds, tiles.split, tiles.rows * tiles.columns), default=None)


def _may_keep(size: int, tile: int, k: int) -> bool:
    """Whether an operand of that many rows is the same for all tiles, and of few chunks."""
    return size <= tile and k <= _MOST_KEPT * CHUNK


def _splits(k: int) -> list[int]:
    return [1 << i for i in range(MOST_SPLIT.bit_length()) if (1 << i) * 4 * CHUNK <= max(k, 4 * CHUNK)]


def _lines(columns: int) -> float:
    """How many lines of the L2 a row of a box lies in, on average: tensors of so many 16-bit columns begin a row at any
    multiple of 16 bytes. What lies in two lines takes twice the time."""
    nbytes = -(-columns * 2 // 16) * 16
    return 1.0 if nbytes <= _LINE else 2 - gcd(nbytes, _LINE) / _LINE


def _tiles(
    b: int,
    m: int,
    n: int,
    k: int,
    copies: int,
    columns: int,
    split: int,
    across: bool,
    pairs: int,
    target: Target,
    work: float,
    kept: str | None = None,
) -> ProductTiles | None:
    rows = copies * COPY_ROWS
    chunks = {"left": rows * CHUNK * 2, "right": columns * CHUNK * 2}
    lines = {"left": _lines(k), "right": _lines(n if across else k)}
    held = ceil(k / CHUNK) * chunks[kept] if kept is not None else 0
    streamed = [name for name in chunks if name != kept]
    slot = sum(chunks[name] for name in streamed)
    slots = min(_MOST_SLOTS, (target.shared_bytes - _BARRIERS - held) // slot)
    if slots < 2:
        return None
    part = ceil(ceil(k / split) / CHUNK) * CHUNK
    split = max(1, ceil(k / part)) if part else 1
    tiles = b * ceil(m / rows) * ceil(n / columns) * split
    multiplied = rows * columns * CHUNK / _MULTIPLIED
    loaded = sum(chunks[name] * lines[name] for name in streamed) / _LOADED
    turns = ceil(tiles / target.sms)
    products = turns * ceil(part / CHUNK) * max(multiplied, loaded) * pairs
    element = rows * columns / (_ISSUED * copies)  # one instruction for each element of a tile
    of_chunk = _TURN if pairs == 1 else _ADDED
    waits = turns * (_TILE + ceil(part / CHUNK) * of_chunk * pairs + element * (_STORED + work))
    once = _START + element * _LAST + held / _LOADED
    us = target.launch_us + (products + waits + once) / CYCLES_A_US
    limit = LATENCY if 2 * products / CYCLES_A_US < us else TENSOR if multiplied >= loaded else L2
    summed = target.launch_us + b * m * n * 8 * split / _SUMMED / CYCLES_A_US if split > 1 else 0.0
    return ProductTiles(copies, columns, slots, split, part, Price(us, limit), us + summed, kept)
