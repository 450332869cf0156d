"""The rows and columns that boxes and tiles of products may have, and the lines of memory that their rows take."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, gcd

from .kernel_cost import LINE, SECTOR

COLUMNS = (16, 32, 64, 96, 128, 192, 256)
BETWEEN = (80, 96, 112, 144, 160, 176, 208, 224, 240)  # besides, of a layer alone
NARROW = (8,)  # besides, of each of several products that stand side by side
BOX = 64  # columns of 16 bits that the copy engine stores at once
PATTERN = 8  # rows of a box after which its swizzle repeats
ROW_CYCLES = 1.0  # of the copy engine, at least, for a row of a box


@dataclass(frozen=True)
class WindowChunks:
    """How the matrix of windows that is an operand of a product comes: in chunks of `columns`, a row of which takes the
    copy engine so many cycles, and the L2 so many bytes, by what its images' elements have. The L2 gives all
    multiprocessors together much less than each of them can take, but for what several ask for at a time: an image's
    elements each CTA reads again for each of the filter's. So a
    ResNet-18 that took 452 us (H100) is predicted to take 464, and 372 without."""

    operand: str
    columns: int
    row_cycles: float
    row_bytes: float


NO_WINDOWS = WindowChunks("", BOX, 0.0, 0.0)  # of other operands


def short_rows(m: int) -> int:
    """Rows of a box of few rows, which whole patterns of its swizzle are."""
    return max(PATTERN, ceil(m / PATTERN) * PATTERN)


def single_widths(n: int) -> tuple[int, ...]:
    """Columns that tiles of a single layer of `n` columns may have. Narrower ones read the left operand more often than
    their price says: 64 x 4096 x 4096 took 12.7 us in tiles of 32 columns, 10.6 in tiles of 64, of which two CTAs have
    half of k each (H200)."""
    wide = tuple(columns for columns in COLUMNS if columns % BOX == 0)
    return (*wide, *(columns for columns in COLUMNS if n <= columns < BOX or n <= columns == 96))


def layer_widths(n: int) -> tuple[int, ...]:
    """The same of a layer whose kernel multiplies nothing else: besides, columns between whole boxes, of which threads
    store what becomes. 256 x 6144 x 6144 took 41.5 us in tiles of 192 columns, 30.4 in tiles of 96, one of which each
    multiprocessor has (H200)."""
    return tuple(sorted({*single_widths(n), *(columns for columns in BETWEEN if columns < n)}))


def line_parts(columns: int, nbytes: int) -> float:
    """How many parts of lines a row of a tile leaves in."""
    whole = columns // 32 * 32 if nbytes == 2 else 0  # these by 16 bytes a thread
    return (whole / 8 + (columns - whole) * nbytes / 4) / 4


def lines(columns: int, box: int = BOX) -> float:
    """How many lines of the L2 a row of a box of so many columns costs, on average: tensors of so many 16-bit columns
    begin a row at any multiple of 16 bytes, and what lies in two lines costs three. So 3000 x 5000 x 3000 is predicted
    within 8 % in tiles of 128 to 256 columns, and 32 products of 1000 x 1000 x 1000, which take 180 us, those of 1024
    103 (H100)."""
    nbytes = -(-columns * 2 // 16) * 16
    return 1.0 if nbytes <= LINE else 1 + 2 * in_two_lines(gcd(nbytes, 2 * box), 2 * box)


def in_two_lines(unit: int, nbytes: int) -> float:
    """How many of the rows of so many bytes, at most a line's, that begin at any multiple of `unit`, lie in two."""
    starts = range(0, LINE, gcd(unit, LINE))
    return sum(start + nbytes > LINE for start in starts) / len(starts)


def sectors(unit: int, nbytes: int) -> float:
    """How many sectors of the L2 such a row has a part of, on average."""
    starts = range(0, SECTOR, gcd(unit, SECTOR))
    return sum(ceil((start + nbytes) / SECTOR) for start in starts) / len(starts)
