"""How many warps have a line of a scan together (codegen/gpu_scan.py), and how long all lines take."""

from __future__ import annotations

from math import ceil

LEAST_BESIDE = 8  # lines that are neighbours, of a block whose lanes have one each
WARP, EACH = 32, 4  # lanes, and the neighbours that each has in a turn
TURN, TURN_US = WARP * EACH, 0.5  # elements of a warp in a turn, which takes so long
MEETING_US = 0.2  # of a turn of several warps, more
WARPS = 8448  # that a GPU as an H100 is has at once
SMS = 132
LANES_TURN, LANES_TURN_US = 128, 1.2  # elements of a line that lanes have in a turn
LOOKED_UP_US = 1.6e-3  # of an SM's cache, for one line
FILLED = SMS * WARP  # warps that keep it busy


def warps_of_line(size: int, lines: int) -> int:
    """So many that all lines together fill the GPU, where a turn of theirs leaves none idle: a power of two."""
    return 1 << max(0, min(WARP, size // TURN, FILLED // max(1, lines)).bit_length() - 1)


def lines_us(size: int, lines: int, beside: bool = False) -> float:
    """Microseconds of so many lines of that size, besides a launch. Where they stand side by side in memory lanes have
    one each, of the warps of a block; of few an SM looks up a line of the cache for each element, twice."""
    if beside and lines > SMS:
        return ceil(size / LANES_TURN) * LANES_TURN_US * ceil(lines / (SMS * WARP))
    if beside:
        return 2 * size * LOOKED_UP_US
    warps = warps_of_line(size, lines)
    turn_us = TURN_US + MEETING_US * (warps > 1)
    return ceil(size / (TURN * warps)) * turn_us * ceil(lines * warps / WARPS)
