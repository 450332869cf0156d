"""Numbers of rows that are open until the call: what they are taken for, and what is chosen for them.

A plan is for the rows of the example that the model was exported with, and is right for any other number. Some forms
are as fast as others for few rows and far slower for many, such as short tiles; so of those that are nearly the fastest
for the example the one is chosen that is fastest for many times as many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

UNKNOWN_ROWS = 65536  # rows assumed where they are open until the call, and no example says how many
NEAR = 1.1  # times the time of the fastest form, up to which others are nearly as fast
MANY = 16  # times the example's rows, for which these are compared


@dataclass(frozen=True)
class Rows:
    """The rows that a pipeline streams: `known`, None where they are open until the call, with those of the example."""

    known: int | None
    example: int = UNKNOWN_ROWS

    @property
    def taken(self) -> int:
        """So many as prices are for."""
        return self.example if self.known is None else self.known

    def tiles(self, height: int) -> int:
        """Tiles of `height` rows."""
        return max(1, -(-self.taken // height))


def nearly_fastest(us: Sequence[float], of_many: Sequence[float]) -> int:
    """Which of forms is chosen that take so many microseconds for the example's rows, and so many for many times as
    many."""
    most = NEAR * min(us)
    return min((more, own, number) for number, (own, more) in enumerate(zip(us, of_many)) if own <= most)[2]
