"""Sorts of long rows, by the digits of their elements.

The elements of all rows are put into the order of their lowest 16 bits, then of the next, and of their rows at last,
each by a stable sort of numbers (kitsune.order). Where the rows' length is open until the call, shorter ones, as the
example has them, are sorted by ranks: how many elements come before one, a reduction for each (sorts.py), which takes
the square of their length.
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from .own_operators import BITS, ORDER
from .shapes import in_example

_DIGIT = 16  # bits
_COMPARED = 3e7  # pairs of elements that are compared in less time than digits are sorted (H200, predicted: 32 us)


def has_many(x: Tensor) -> bool:
    """Whether rows of open length, of any number, are long enough in the example to be sorted by digits."""
    rows = prod(map(in_example, x.shape[:-1]))
    return rows * in_example(x.shape[-1]) ** 2 > _COMPARED


def places_by_digits(x: Tensor, descending: bool) -> Tensor:
    """The places (i32) of all elements of each row in their order; equal ones stay in theirs, NaN is greatest. Numbers
    are of 32 or 64 bits."""
    lines, size = x.flatten(0, -2) if x.dim() > 1 else x.unsqueeze(0), x.shape[-1]
    numbers = _integers(lines).flatten()
    if descending:
        numbers = ~numbers
    width = torch.iinfo(numbers.dtype).bits
    places = ORDER(_digit(numbers, 0, width), None, 1 << _DIGIT)
    for first in range(_DIGIT, width, _DIGIT):
        places = places[ORDER(_digit(numbers, first, width)[places], None, 1 << _DIGIT)]
    rows = lines.shape[0]
    if rows != 1:
        counted = (None, rows) if isinstance(rows, int) else (lines, 0)
        places = places[ORDER(torch.div(places, size, rounding_mode="trunc"), *counted)]
    return torch.remainder(places, size).to(torch.int32).view(x.shape)


def _integers(x: Tensor) -> Tensor:
    """Integers in the same order: of a negative number the other bits are turned round."""
    if not x.is_floating_point():
        return x
    kind = torch.int32 if x.dtype == torch.float32 else torch.int64
    x = torch.where(x == 0, 0.0, torch.where(x != x, torch.nan, x))  # one zero, and one NaN, which is positive
    bits = BITS(x, kind)
    return torch.where(bits < 0, bits ^ torch.iinfo(kind).max, bits)


def _digit(numbers: Tensor, first: int, width: int) -> Tensor:
    """Bits from one on, as numbers from 0 on; the highest are those of a signed number."""
    found = numbers >> first
    is_last = first + _DIGIT == width
    return (found + (1 << _DIGIT - 1) if is_last else found & (1 << _DIGIT) - 1).to(torch.int32)
