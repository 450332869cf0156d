"""What is asked of the shapes of a graph's tensors again and again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def are_known(sizes: Iterable[Any]) -> bool:
    """Whether sizes are numbers, none being open until the call."""
    return all(isinstance(size, int) for size in sizes)


def in_example(size: Any) -> int:
    """A size, as the example has it where it is open until the call; 1 where it does not say."""
    return size if isinstance(size, int) else int(size.node.hint or 1)


def line_along(dim: int, rank: int) -> list[int]:
    """The shape in which a line of numbers lies along one of so many dimensions, which may be counted from the last."""
    return [-1 if d == dim % rank else 1 for d in range(rank)]
