"""Sizes that are open until the call, as numbers to reckon with: each stands as a prime larger than any size there is.

So a size that is a product, such as the number of heads of all of a batch, says by its factors what it is a product of,
is cut where these are cut, and is equal to another one exactly where both are the same product.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from math import gcd

LARGE = 1 << 40  # no tensor has a dimension of so many elements
_BASES = (2, 3, 5, 7, 11, 13, 17)  # with which numbers below 3e14 are told to be prime (Jaeschke 1993)


class OpenSizes:
    """The open sizes of a program, and what is known of them."""

    def __init__(self) -> None:
        self._numbers = count()
        self._equal: dict[int, int] = {}  # what a size is found to be: a product of others

    def fresh(self) -> int:
        """A size of which nothing is known."""
        return _prime(next(self._numbers))

    def plain(self, size: int) -> int:
        """A size as a product of those that are not known to be products of others."""
        if not is_open(size):
            return size
        for one, other in self._equal.items():
            size = _replaced(size, one, other)
        return size

    def equate(self, a: int, b: int) -> bool:
        """Two sizes are the same; whether that is new. Nothing is learnt where neither says what a single open size is;
        the later one, so that those of arguments, which come first, stay what they are."""
        a, b = self.plain(a), self.plain(b)
        if a == b:
            return False
        common = gcd(a, b)
        a, b = sorted((a // common, b // common))
        for one, other in ((b, a), (a, b)):
            if is_single(one):
                self._equal = {key: _replaced(value, one, other) for key, value in self._equal.items()}
                self._equal[one] = other
                return True
        return False


def is_open(size: int) -> bool:
    """Whether a size is open until the call, or a product of one that is."""
    return size >= LARGE


def is_single(size: int) -> bool:
    """Whether a size is an open one, and no product."""
    return is_open(size) and factors(size) == (1, [size])


def open_part(size: int) -> int:
    """What of a size is open: it without the known number that it is a multiple of; 1 of a known size."""
    return size // factors(size)[0]


def is_alone(size: int) -> bool:
    """Whether a size is an open one, or the product of several, and no known multiple of them."""
    return is_open(size) and open_part(size) == size


def factors(size: int) -> tuple[int, list[int]]:
    """What is known of a size, and the open sizes that it is multiplied with."""
    found: list[int] = []
    for number in count():
        if not is_open(size):
            return size, found
        while size % _prime(number) == 0:
            size //= _prime(number)
            found.append(_prime(number))
    raise AssertionError("a product of open sizes ends")


def _replaced(size: int, one: int, other: int) -> int:
    while size % one == 0:
        size = size // one * other
    return size


@cache
def _prime(number: int) -> int:
    """The prime of a number, from 0 on, among those that are larger than any size."""
    found = (_prime(number - 1) if number else LARGE) + 1
    while not _is_prime(found):
        found += 1
    return found


def _is_prime(number: int) -> bool:
    """Miller and Rabin's test, which for these bases errs on no number below 3e14."""
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(_passes(number, pow(base, odd, number), twos) for base in _BASES)


def _passes(number: int, power: int, twos: int) -> bool:
    """Whether a number may be prime, of which a base has this power, squared so many times."""
    if power == 1:
        return True
    for _ in range(twos):
        if power == number - 1:
            return True
        power = power * power % number
    return False
