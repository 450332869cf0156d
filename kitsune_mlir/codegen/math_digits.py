"""2/pi to any number of bits, for the reduction of huge arguments."""

from __future__ import annotations

from functools import cache


@cache
def two_over_pi(point: int) -> int:
    """2/pi * 2^point, cut to a whole number."""
    # Machin's formula on integers: no table of digits to get wrong.
    guard = point + 32

    def arctan_inverse(n: int) -> int:
        term = total = (1 << guard) // n
        k = 1
        while term:
            term //= n * n
            k += 2
            total += -(term // k) if k % 4 == 3 else term // k
        return total

    half_pi = 2 * (4 * arctan_inverse(5) - arctan_inverse(239))
    return (1 << (guard + point)) // half_pi
