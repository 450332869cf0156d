"""The columns that tiles of products may have, and the lines of memory that their rows take."""

from __future__ import annotations

from math import gcd

from .kernel_cost import LINE

COLUMNS = (16, 32, 64, 96, 128, 192, 256)
BETWEEN = (80, 96, 112, 144, 160, 176, 208, 224, 240)  # besides, of a layer alone
NARROW = (8,)  # besides, of each of several products that stand side by side
BOX = 64  # columns of 16 bits that the copy engine stores at once


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


def lines(columns: int) -> float:
    """How many lines of the L2 a row of a box costs, on average: tensors of so many 16-bit columns begin a row at any
    multiple of 16 bytes, and what lies in two lines costs three. So 3000 x 5000 x 3000 is predicted within 8 % in tiles
    of 128 to 256 columns, and 32 products of 1000 x 1000 x 1000, which take 180 us, those of 1024 103 (H100)."""
    nbytes = -(-columns * 2 // 16) * 16
    return 1.0 if nbytes <= LINE else 3 - 2 * gcd(nbytes, LINE) / LINE
