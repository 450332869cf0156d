"""Which threads of a GPU have which elements of the matrices of systems of equations, all in registers.

A square of `side` x `side` threads has a matrix: thread (y, x) the elements whose row is y and whose column is x, but
for multiples of `side`. Such tiles of `side` rows and columns are what code is written out for.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

MOST = {4: 128, 8: 96}  # rows, by the bytes of a number: what registers hold
_THREADS = 128  # of a block whose matrices are small
_WORDS = 96  # of a thread's registers that hold numbers
_MOST_TILES = 4  # of columns of a right side that a thread has elements of
_BLOCKS = 132  # at least so many, where right sides are wide enough


def most_rows(element_bytes: int) -> int:
    """Those of the largest matrix of numbers of so many bytes."""
    return MOST[element_bytes]


@dataclass(frozen=True)
class Squares:
    """The threads of a kernel: a square of them for each matrix of `rows` rows, and for each `columns` columns of its
    right side (0 where there is none)."""

    rows: int
    columns: int

    @staticmethod
    def of(rows: int, element_bytes: int, matrices: int | None, columns: int | None) -> Squares:
        """Those of `matrices` matrices whose right sides have `columns` columns, as the example has them where they are
        open; None where none says it."""
        own = Squares(rows, 0)
        if columns == 0:
            return own
        words = element_bytes // 4
        room = (_WORDS - own.tiles**2 * words) // (own.tiles * words)
        widest = max(1, min(_MOST_TILES, room))
        tiles = widest if columns is None else min(widest, ceil(columns / own.side))
        while tiles > 1 and columns is not None and matrices is not None:
            if own.blocks(matrices) * ceil(columns / (tiles * own.side)) >= _BLOCKS:
                break
            tiles -= 1
        return Squares(rows, tiles * own.side)

    @property
    def side(self) -> int:
        """Threads along each side of a square."""
        return 4 if self.rows <= 16 else 8 if self.rows <= 32 else 16

    @property
    def tiles(self) -> int:
        """Tiles of rows, and of columns, that a matrix has."""
        return ceil(self.rows / self.side)

    @property
    def column_tiles(self) -> int:
        """Tiles of the columns of a right side."""
        return self.columns // self.side

    @property
    def size(self) -> int:
        """Threads of a square."""
        return self.side**2

    @property
    def matrices(self) -> int:
        """Those of a block."""
        return max(1, _THREADS // self.size)

    def blocks(self, matrices: int) -> int:
        """Blocks of so many matrices."""
        return ceil(matrices / self.matrices)
