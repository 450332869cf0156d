"""Running sums, products, maxima, minima and logarithms of sums of exponentials, which torch-mlir has not, or does
element by element.

A scan goes in steps of 1, 4, 16, ... places: in a step of k places each element is joined with those k, 2k and 3k
before it, so that it stands for the 4k elements up to its own. Each step is one elementwise operator, which reads what
is neutral in front of the first element. Sums, products and logarithms of many or short lines are one operator instead,
torch-mlir's own, which goes over memory once: a warp, or several, has a line (codegen/gpu_scan.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from math import ceil, inf, log, prod
from typing import Any

import torch
from torch import Tensor

from kitsune_mlir.planning.scans import LEAST_BESIDE, TURN, lines_us

from .own_operators import EXTREMA
from .shapes import line_along
from .working import NARROW, working

aten = torch.ops.aten

LAUNCH_US, BYTES_A_US = 1.0, 3e6  # of a GPU as an H100 is

Parts = tuple[Tensor, ...]


def _scan(parts: Parts, dim: int, join: Callable[[Parts, Parts], Parts], neutral: Sequence[float]) -> Parts:
    """The running result of `join`, which is given earlier elements and later ones, of tensors of one shape; joined
    with the `neutral` elements later ones stay as they are."""
    size, step = parts[0].shape[dim], 1
    while step < size:
        result = None
        for far in (3 * step, 2 * step, step, 0):
            if far < size:
                moved = tuple(_moved(part, dim, far, value) for part, value in zip(parts, neutral, strict=True))
                result = moved if result is None else join(result, moved)
        parts, step = result or parts, 4 * step
    return parts


class Way(Enum):
    """How a scan goes: as one operator over its lines, as one over pieces of them, or in steps."""

    LINES, PIECES, STEPS = range(3)


def _way(x: Tensor, dim: int) -> Way:
    """The one that takes the least time on a GPU. An open number of lines is large."""
    size = int(x.shape[dim])
    steps, lines = ceil(log(max(1, size), 4)), x.numel() // max(1, size)
    if steps < 3:  # these are parts of what stands around them
        return Way.STEPS
    if not isinstance(lines, int):
        return Way.LINES
    beside = _are_beside(x, dim)
    piece, whole = _piece(size, lines, beside), LAUNCH_US + 2 * x.numel() * x.element_size() / BYTES_A_US
    times = {
        Way.LINES: max(whole, LAUNCH_US + lines_us(size, lines, beside)),
        Way.PIECES: 3 * whole + _pieces_us(size, lines, piece, beside),
        Way.STEPS: steps * whole,
    }
    return min(times, key=lambda way: times[way])


def _are_beside(x: Tensor, dim: int) -> bool:
    """Whether many lines stand side by side in memory."""
    behind = prod(x.shape[dim % x.dim() + 1 :])
    return not isinstance(behind, int) or behind >= LEAST_BESIDE


def _pieces_us(size: int, lines: int, piece: int, beside: bool) -> float:
    """The same of pieces, and of what each is together."""
    pieces = ceil(size / piece)
    return lines_us(piece, lines * pieces, beside) + lines_us(pieces, lines, beside)


def _piece(size: int, lines: int, beside: bool) -> int:
    """Elements of a piece of a line: about what takes the least time, and so many that all pieces are whole if they
    can be."""
    sizes = [TURN << doubled for doubled in range(max(1, (size // TURN).bit_length()))]
    piece = min(sizes, key=lambda piece: _pieces_us(size, lines, piece, beside))
    whole = [n for n in range(piece // 2, 2 * piece) if size % n == 0]
    return min(whole, key=lambda n: (n % 4, abs(n - piece)), default=piece)


def _moved(x: Tensor, dim: int, far: int, value: float) -> Tensor:
    """Each element `far` places on, and in the first places the value."""
    before = [0, 0] * (x.dim() - 1 - dim % x.dim()) + [far, 0]
    return aten.constant_pad_nd(x.narrow(dim, 0, x.shape[dim] - far), before, value) if far else x


def _ends(kind: torch.dtype) -> tuple[int, int]:
    """The least and the largest number of a type of integers."""
    return torch.iinfo(kind).min, torch.iinfo(kind).max


def running_extremum(is_later: Callable[[Tensor, Tensor], Tensor], largest: bool) -> Callable[..., Any]:
    """A rule for the largest or the smallest element so far, and its place: the last of equal ones. NaN beats numbers.
    `is_later` says where a later element is at least as good as an earlier one."""

    def join(earlier: Parts, later: Parts) -> Parts:
        better = is_later(earlier[0], later[0])
        if later[0].is_floating_point():
            better = better | (later[0] != later[0])
        return tuple(torch.where(better, new, old) for old, new in zip(earlier, later, strict=True))

    def rule(x: Tensor, dim: int) -> Any:
        if not x.dim():
            return x.clone(), torch.zeros_like(x, dtype=torch.int64)
        size = x.shape[dim]
        lined_up = line_along(dim, x.dim())
        places = torch.arange(size, dtype=torch.int32, device=x.device).view(lined_up).expand(x.shape)
        own = working(x) if x.is_floating_point() else x if x.dtype == torch.int64 else x.to(torch.int32)
        if not isinstance(size, int) or _way(own, dim) == Way.LINES:
            values = EXTREMA(own, dim % x.dim(), largest)
            found = (own == values) | (own != own)
            places = EXTREMA(torch.where(found, places, 0), dim % x.dim(), True)
        else:
            least, most = (-inf, inf) if own.is_floating_point() else _ends(own.dtype)
            values, places = _scan((own, places), dim, join, (least if largest else most, 0))
        return values.to(x.dtype), places.long()

    return rule


def running(op: Any, join: Callable[[Tensor, Tensor], Tensor], neutral: float) -> Callable[..., Any]:
    """A rule for all elements so far, joined: by steps, or by torch-mlir's operator, in f32 for 16 bits. How many steps
    an open size takes is not known."""

    def rule(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
        kind = dtype or (x.dtype if x.is_floating_point() or x.is_complex() else torch.int64)
        if not x.dim():
            return x.to(kind).clone()
        way = _way(x, dim) if isinstance(x.shape[dim], int) else Way.LINES
        if way == Way.LINES:
            return op(x.to(kind).float(), dim).to(kind) if kind in NARROW else NotImplemented
        part = working(x.to(kind))
        if way == Way.PIECES:
            return _of_pieces(part, dim % x.dim()).to(kind)
        return _scan((part,), dim, lambda earlier, later: (join(earlier[0], later[0]),), (neutral,))[0].to(kind)

    def _of_pieces(x: Tensor, dim: int) -> Tensor:
        size = x.shape[dim]
        piece = _piece(size, x.numel() // size, _are_beside(x, dim))
        count = ceil(size / piece)
        behind = [0, 0] * (x.dim() - 1 - dim) + [0, count * piece - size]
        pieces = op(aten.constant_pad_nd(x, behind, neutral).unflatten(dim, (count, piece)), dim + 1)
        before = _moved(op(pieces.select(dim + 1, piece - 1), dim), dim, 1, neutral)
        return join(before.unsqueeze(dim + 1), pieces).flatten(dim, dim + 1).narrow(dim, 0, size)

    return rule


def logcumsumexp(x: Tensor, dim: int) -> Any:
    """torch-mlir's operator becomes a scan that does not overflow (kitsune_mlir/running_exponentials.py)."""
    return _LOGARITHMS(x, dim) if x.is_floating_point() else NotImplemented


def _join_exponentials(earlier: Tensor, later: Tensor) -> Tensor:
    """log(exp a + exp b) = max + log1p(exp(min - max)), which does not overflow."""
    high, low = torch.maximum(earlier, later), torch.minimum(earlier, later)
    gap = torch.where(high == low, torch.zeros_like(high), low - high)  # of two infinities: 0
    return high + gap.exp().log1p()


_LOGARITHMS = running(aten.logcumsumexp, _join_exponentials, -inf)


SCANS = {
    aten.cummax.default: running_extremum(torch.le, largest=True),
    aten.cummin.default: running_extremum(torch.ge, largest=False),
    aten.cumsum.default: running(aten.cumsum, torch.add, 0),
    aten.cumprod.default: running(aten.cumprod, torch.mul, 1),
    aten.logcumsumexp.default: logcumsumexp,
}
