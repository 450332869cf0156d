"""How many warps have a line of a scan together (codegen/gpu_scan.py), and how long all lines take."""

from __future__ import annotations

from math import ceil

WARP, EACH = 32, 4  # lanes, and the neighbours that each has in a turn
TURN, TURN_US = WARP * EACH, 0.5  # elements of a warp in a turn, which takes so long
MEETING_US = 0.2  # of a turn of several warps, more
WARPS = 8448  # that a GPU as an H100 is has at once
SMS = 132
FILLED = SMS * WARP  # warps that keep it busy


def warps_of_line(size: int, lines: int) -> int:
    """So many that all lines together fill the GPU, where a turn of theirs leaves none idle: a power of two."""
    return 1 << max(0, min(WARP, size // TURN, FILLED // max(1, lines)).bit_length() - 1)


def lines_us(size: int, lines: int) -> float:
    """Microseconds of so many lines of that size, besides a launch."""
    warps = warps_of_line(size, lines)
    turn_us = TURN_US + MEETING_US * (warps > 1)
    return ceil(size / (TURN * warps)) * turn_us * ceil(lines * warps / WARPS)
