"""Elements of images that windows were made of, in blocks of a stride along each dimension: all elements of a block ask
the same few windows, which are that block's number and those beside it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class Asked(NamedTuple):
    """Along a dimension of `size` elements, the stride and so many blocks of it, and how many windows each of them
    asks, from `first` windows behind that of its own number on; `low` and `high` windows more are needed at the
    ends."""

    size: Any
    stride: int
    blocks: Any
    windows: int
    first: int
    low: int
    high: Any

    @staticmethod
    def of(size: Any, count: Any, kernel: int, stride: int, padding: int, dilation: int) -> Asked:
        """Of so many windows; the first one begins `padding` elements before the first."""
        first, last = -((dilation * (kernel - 1) - padding) // stride), (stride - 1 + padding) // stride
        blocks = -(-size // stride)
        return Asked(size, stride, blocks, last - first + 1, first, -first, blocks + last - count)


def around(x: Tensor, asked: Sequence[Asked]) -> Tensor:
    """Windows with zeros for those that are not there, along the last dimensions."""
    return F.pad(x, [side for one in reversed(asked) for side in (one.low, one.high)])


def numbers(asked: Sequence[Asked]) -> Iterator[tuple[int, ...]]:
    """Those of the windows that a block asks, along each dimension."""
    return itertools.product(*(range(one.windows) for one in asked))


def windows_at(x: Tensor, number: Sequence[int], asked: Sequence[Asked]) -> Tensor:
    """For each block the window of a number among those that it asks, of windows with others `around` them:
    [..., blocks, 1, blocks, 1], without the dimensions of one where a stride is one."""
    for d, (own, one) in enumerate(zip(number, asked, strict=True), -len(asked)):
        x = torch.ops.aten.slice.Tensor(x, d, own, own + one.blocks)
    for d in _places(asked):
        x = x.unsqueeze(d)
    return x


def in_blocks(x: Tensor, asked: Sequence[Asked]) -> Tensor:
    """Elements of whole blocks along the last dimensions, as [..., blocks, stride, blocks, stride]."""
    for d, stride in _places(asked).items():
        x = x.unflatten(d, (-1, stride))
    return x


def joined(x: Tensor, asked: Sequence[Asked]) -> Tensor:
    """The elements that there are of blocks, along dimensions that are as they were."""
    for d, one in zip(range(-1, -1 - len(asked), -1), reversed(asked), strict=True):
        x = x.flatten(d - 1, d) if one.stride > 1 else x
        x = torch.ops.aten.slice.Tensor(x, d, 0, one.size)
    return x


def _places(asked: Sequence[Asked]) -> dict[int, int]:
    """Where dimensions become two, the last one first, and their strides."""
    found, behind = dict[int, int](), 0
    for d, one in zip(range(-1, -1 - len(asked), -1), reversed(asked), strict=True):
        if one.stride > 1:
            found[d - behind] = one.stride
            behind += 1
    return found
