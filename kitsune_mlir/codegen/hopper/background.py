"""What a warpgroup does while its products run: code that is put between them, a piece at a time.

A product is issued in a few dozen cycles and runs for hundreds. Pieces of work on other registers, the epilogue of
the columns before above all, are emitted behind each issued chunk, so that the tensor cores never wait for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Background:
    """Pieces of code in the order in which they are to run. What is left is emitted before a loop or the end."""

    def __init__(self) -> None:
        self._pieces: deque[Callable[[], None]] = deque()

    def add(self, piece: Callable[[], None]) -> None:
        self._pieces.append(piece)

    def advance(self, places: int) -> None:
        """Emits a fair part of what is left, with so many places to come, this one included."""
        for _ in range(-(-len(self._pieces) // max(1, places))):
            self.advance_one()

    def advance_one(self) -> None:
        """Emits the next piece, which there must be."""
        self._pieces.popleft()()

    def settle(self) -> None:
        """Emits all that is left."""
        self.advance(1)

    def clear(self) -> None:
        """Forgets what is left: it is added again elsewhere."""
        self._pieces.clear()
