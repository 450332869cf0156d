"""Which discrete Fourier transforms are made by passes over numbers that a block of threads holds, and what the passes
are. Each is of a radix, which a thread transforms in its registers (Cooley and Tukey; Stockham's order, in which the
last pass leaves numbers in their places)."""

from __future__ import annotations

from functools import lru_cache

from .kernel_cost import MOST_TRANSFORMED

MOST_PRIME = 13  # of a size
_MOST_RADIX = 16  # numbers, each of two parts, that a thread has in registers


def fits(size: int, element_bytes: int, real: bool) -> bool:
    """Whether there is a transform of so many numbers whose parts have so many bytes, of `real` numbers or to such."""
    return 1 < size <= most(element_bytes, real and size % 2 == 0) and radices(size) is not None


def most(element_bytes: int, pairs: bool) -> int:
    """The numbers of the longest transform, twice as many where `pairs` of real ones are taken for numbers."""
    return MOST_TRANSFORMED * (2 if pairs else 1) * 4 // element_bytes


@lru_cache(maxsize=1024)
def radices(size: int) -> tuple[int, ...] | None:
    """The radices of the passes, whose product is `size`: as few as there can be, the largest as small as it can be;
    None where a prime is above MOST_PRIME."""
    if size == 1:
        return ()
    found = []
    for radix in range(2, min(size, _MOST_RADIX) + 1):
        rest = radices(size // radix) if size % radix == 0 else None
        if rest is not None:
            found.append(tuple(sorted((radix, *rest), reverse=True)))
    return min(found, key=lambda own: (len(own), own), default=None)
