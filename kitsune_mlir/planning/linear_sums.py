"""Numbers of which no more is known than what they are sums of: 3 n + 2 m + 5, where n and m are open.

Sizes of tensors (folded_sizes.py), the places that loops read (affine_reads.py), columns that a mask takes of each row
(of_places.py) and elements that a slice of a trace begins with (place_sums.py) are such numbers.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self


@dataclass(frozen=True)
class LinearSum:
    """`known`, a number or what adds up as one, and each of `terms` so many times, which is never 0."""

    known: Any = 0
    terms: Mapping[Any, int] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.known, frozenset(self.terms.items())))

    @classmethod
    def of(cls, term: Hashable) -> Self:
        """A number that is known by this name alone."""
        return cls(0, {term: 1})

    def plus(self, other: LinearSum, times: int = 1) -> Self:
        """Adds so many times another one."""
        counts = dict(self.terms)
        for term, own in other.terms.items():
            counts[term] = counts.get(term, 0) + times * own
        terms = {term: count for term, count in counts.items() if count}
        return replace(self, known=self.known + times * other.known, terms=terms)

    def scaled(self, times: int) -> Self:
        """So many times this one."""
        return type(self)().plus(self, times)
