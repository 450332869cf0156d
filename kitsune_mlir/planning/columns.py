"""How wide the tiles of a single wide product are, and how many CTAs share the sum over k of one: a trade between
operands read twice, multiprocessors idle, and sums handed over."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

CHOICES = (256, 192, 128, 64)  # columns of a tile, 64 a box
# CTAs of a cluster that may share a tile's k, and on which part of the multiprocessors clusters of so many find places:
# they do not straddle the chip's parts (an H100 of 132 holds 30 clusters of 4).
PLACES = {1: 1.0, 2: 1.0, 4: 0.9, 8: 0.8}
SPLITS = tuple(PLACES)
MOST_SPLIT_COLUMNS = 128  # the sums of wider tiles take too much shared memory
TILE_ROWS, CHUNK = 128, 64
_MFLOP_US = 5.6  # of one SM, measured on 8192^3: 5.9 TFLOP/s
_L2_BYTES_US, _MOST_L2_BYTES_US = 90_000, 110_000  # of one SM, when all and when few are at work
_EPILOGUE_US = 1.5  # of 256 columns; a fixed part for each tile
_START_US = 1.0
_HANDOVER_US = 12.0  # of sums of 256 columns in a cluster; a fixed part for each tile
_MEET_US = 1.5


def choose_columns(n: int, k: int, row_tiles: int | None, sms: int, splits: Sequence[int] = (1,)) -> tuple[int, int]:
    """Columns of a tile of 128 rows by n columns, k summed, dealt out to `sms` CTAs, and how many of these, one of
    `splits`, share a tile's k, no more than there are SMs. Unknown rows are many."""
    splits = [split for split in splits if split <= sms] or [min(splits)]
    if row_tiles is None:
        split = min(splits)
        widest = CHOICES[0] if split == 1 else MOST_SPLIT_COLUMNS
        return -(-n // (-(-n // widest) * CHUNK)) * CHUNK, split
    every = itertools.product(CHOICES, splits)
    choices = [(columns, split) for columns, split in every if split == 1 or columns <= MOST_SPLIT_COLUMNS]
    return min(choices, key=lambda form: (predicted_us(form[0], form[1], n, k, row_tiles, sms), form[1], -form[0]))


def predicted_us(columns: int, split: int, n: int, k: int, row_tiles: int, sms: int) -> float:
    """What all tiles take: chunks of k as fast as tensor cores or L2 allow, sums handed over, and an epilogue."""
    tiles = row_tiles * -(-n // columns)
    l2 = min(_MOST_L2_BYTES_US, _L2_BYTES_US * sms / min(sms, tiles * split))
    chunk = max(2e-6 * TILE_ROWS * columns * CHUNK / _MFLOP_US, 2.0 * (TILE_ROWS + columns) * CHUNK / l2)
    chunks = -(-k // (CHUNK * split))
    tile = chunks * chunk + _START_US + _EPILOGUE_US * columns / 256 / split
    if split > 1:
        tile += _MEET_US + _HANDOVER_US * columns / 256
    waves = -(-tiles // max(1, int(sms * PLACES[split]) // split))
    return waves * tile
