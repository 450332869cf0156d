"""How wide the tiles of a single wide product in a pipeline are: a trade between operands read twice, and
multiprocessors idle."""

from __future__ import annotations

CHOICES = (256, 192, 128, 64)  # columns of a tile, 64 a box
TILE_ROWS, CHUNK = 128, 64
_MFLOP_US = 5.6  # of one SM, measured on 8192^3: 5.9 TFLOP/s
_L2_BYTES_US, _MOST_L2_BYTES_US = 90_000, 110_000  # of one SM, when all and when few are at work
_EPILOGUE_US = 1.5  # of 256 columns; a fixed part for each tile
_START_US = 1.0


def choose_columns(n: int, k: int, row_tiles: int | None, sms: int) -> int:
    """Columns of a tile of 128 rows by n columns, k summed, dealt out to `sms` CTAs. Unknown rows are many."""
    if row_tiles is None:
        return -(-n // (-(-n // CHOICES[0]) * CHUNK)) * CHUNK
    return min(CHOICES, key=lambda columns: (predicted_us(columns, n, k, row_tiles, sms), -columns))


def predicted_us(columns: int, n: int, k: int, row_tiles: int, sms: int) -> float:
    """What all tiles take: chunks of k as fast as tensor cores or L2 allow, and an epilogue."""
    tiles = row_tiles * -(-n // columns)
    l2 = min(_MOST_L2_BYTES_US, _L2_BYTES_US * sms / min(sms, tiles))
    chunk = max(2e-6 * TILE_ROWS * columns * CHUNK / _MFLOP_US, 2.0 * (TILE_ROWS + columns) * CHUNK / l2)
    tile = -(-k // CHUNK) * chunk + _START_US + _EPILOGUE_US * columns / 256
    return -(-tiles // max(1, sms)) * tile
