"""Sorts, and the largest or smallest elements of rows, without a loop that swaps neighbours one after another.

Rows of a known size that a block of threads holds are torch-mlir's own operator, a network of exchanges
(codegen/gpu_sort.py). Where few elements of a short row are wanted they are taken out of it one after another: two
reductions each, of a row that stays where threads have it. More, and those of longer rows, or of an open length, are
kitsune.firsts, which goes through a row once; of few long rows through pieces of them, and then through the first of
each. Of numbers of 64 bits, which that does not take, a long row is cut into
pieces: only the pieces whose own first elements are among the first of such have elements that are among the first. One
of which many are wanted is sorted by digits (digit_sorts.py).

In other rows whose length is open until the call, an element's rank is how many elements come before it: a reduction
for each element; long ones are sorted by digits, too.

Equal elements stay in their order, NaN is greater than all numbers, as torch has it.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor

from kitsune_mlir.dialects.firsts import MOST
from kitsune_mlir.planning.kernel_cost import MOST_SORTED

from .digit_sorts import has_many, places_by_digits
from .own_operators import FIRSTS
from .working import working

aten = torch.ops.aten

_SHORT = MOST_SORTED  # elements of a row that is sorted at once (codegen/gpu_sort.py)
_BEST = 8  # a row has so many times as many elements as are wanted of it, for its best pieces to be looked for
_FEW, _WIDE = 32, 1024  # elements that are taken out of a row one after another, and those of such a row
_STEPS = 8  # of them, up to which that takes less than a kernel of their own
_FOUND = (torch.float32, torch.float16, torch.bfloat16, torch.int32)
_BLOCKS, _FEW_PIECES = 264, 4  # pieces of rows that fill a GPU, and so many that they are worth a second kernel
_PIECE = 4096  # elements that one should have at least
_LINES = 16  # that an open number of rows is taken for
_QUICK = 64_000  # elements of all rows that are sorted sooner than many are taken one after another


def sort(x: Tensor, dim: int = -1, descending: bool = False) -> Any:
    return NotImplemented if _is_short(x, dim) else _along(x, dim, descending, None)


def stable_sort(x: Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False) -> Any:
    if _is_short(x, dim):
        return aten.sort.default(x, dim, descending)
    return _along(x, dim, descending, None)


def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    return _along(x, dim, largest, k) if isinstance(k, int) else NotImplemented


def kth_value(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    if not x.dim() or not isinstance(k, int):
        return NotImplemented
    found = _along(x, dim, False, k)
    if found is NotImplemented:
        return found
    values, places = (part.narrow(dim, k - 1, 1) for part in found)
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


def _along(x: Tensor, dim: int, descending: bool, count: int | None) -> Any:
    """The first elements of each row along `dim` in their order, or all, and their places."""
    if not x.dim():
        whole = x.clone(), torch.zeros_like(x, dtype=torch.int64)
        return whole if count is None else NotImplemented
    if x.is_complex() or count == 0 or any(isinstance(size, int) and not size for size in x.shape):
        return NotImplemented
    rows = x.transpose(dim, -1)
    keys = _keys(rows)
    if count is not None and _are_found(own := rows if x.dtype in _FOUND else keys, count):
        values, places = _firsts(own, count, descending)
        values = values if own is rows else rows.gather(-1, places)
        return values.transpose(dim, -1), places.transpose(dim, -1)
    places = _first(keys, descending, rows.shape[-1] if count is None else count).long()
    return rows.gather(-1, places).transpose(dim, -1), places.transpose(dim, -1)


def _firsts(x: Tensor, count: int, descending: bool) -> tuple[Tensor, Tensor]:
    """The first elements of rows, and their places, by the kernel that finds them."""
    size, pieces = x.shape[-1], _pieces(x, count)
    if pieces < 2:
        return FIRSTS(x, count, descending)
    piece = -(-size // pieces)
    values, places = FIRSTS(_cut(x, descending, pieces, piece), count, descending)
    values, chosen = FIRSTS(values.flatten(-2), count, descending)
    starts = torch.arange(0, pieces * piece, piece, device=x.device).unsqueeze(-1)
    return values, (places + starts).flatten(-2).gather(-1, chosen)


def _pieces(x: Tensor, count: int) -> int:
    """How many pieces rows are cut into: what fills a GPU; rather such that all are whole."""
    *lines, size = x.shape
    if not isinstance(size, int):
        return 1
    rows = prod(each if isinstance(each, int) else _LINES for each in lines)
    wanted = min(_BLOCKS // max(1, rows), size // max(_PIECE, _BEST * count))
    if wanted < _FEW_PIECES:
        return 1
    whole = [n for n in range(wanted // 2, wanted + 1) if size % n == 0]
    return max(whole, default=wanted)


def _are_found(x: Tensor, count: int) -> bool:
    """Whether a kernel that goes through rows once finds their first elements (codegen/gpu_firsts.py): of rows from
    which these would be taken one by one in many steps."""
    size = x.shape[-1]
    if x.dtype not in _FOUND or not 0 < count <= MOST:
        return False
    return not isinstance(size, int) or size >= count and (size > _WIDE or count > _STEPS and size > _FEW)


def _is_short(x: Tensor, dim: int) -> bool:
    """Whether torch-mlir's own operator does it, of which both targets make a stable sort: along the last dimension, of
    a type that is compared as it is."""
    kinds = (torch.float32, torch.float64, torch.int32, torch.int64)
    if not x.dim() or x.dtype not in kinds or dim % x.dim() != x.dim() - 1:
        return False
    return isinstance(x.shape[-1], int) and 0 < x.shape[-1] <= _SHORT


def _keys(x: Tensor) -> Tensor:
    """Numbers in the same order, of a type that is compared as it is."""
    return working(x) if x.is_floating_point() or x.dtype == torch.int64 else x.to(torch.int32)


def _first(x: Tensor, descending: bool, count: Any) -> Tensor:
    """The places (i32) of the first `count` elements of each row."""
    size = x.shape[-1]
    if not isinstance(size, int) or not isinstance(count, int):
        if has_many(x):
            return places_by_digits(x, descending).narrow(-1, 0, count)
        return _places(x, descending, count)
    if _are_taken(x, count):
        return _taken(x, descending, count)
    if size > max(_WIDE, _BEST * count):
        return _of_best_pieces(x, descending, count)
    return _sorted(x, descending, count) if size <= _SHORT else places_by_digits(x, descending).narrow(-1, 0, count)


def _sorted(x: Tensor, descending: bool, count: int) -> Tensor:
    """The same of rows that are sorted at once."""
    return aten.sort.stable(x, stable=True, dim=-1, descending=descending)[1].narrow(-1, 0, count).to(torch.int32)


def _of_best_pieces(x: Tensor, descending: bool, count: int) -> Tensor:
    """The same of long rows of which few elements are wanted. They lie in the pieces whose own first elements are the
    first: any other piece has as many elements of others before its own."""
    size = x.shape[-1]
    piece = min((1 << power for power in range(1, size.bit_length())), key=lambda own: size // own + count * own)
    cut = _cut(x, descending, -(-size // piece), piece)
    best = cut.amax(-1) if descending else cut.amin(-1)
    if x.is_floating_point() and not descending:  # NaN is last
        numbers = torch.where(cut != cut, torch.inf, cut).amin(-1)
        best = torch.where((cut == cut).any(-1), numbers, torch.nan)
    chosen = _first(best, descending, count)
    chosen = chosen.gather(-1, _first(chosen, False, count).long())  # equal elements stay in their order
    left = cut.gather(-2, chosen.long().unsqueeze(-1).expand(*chosen.shape, piece)).flatten(-2)
    found = _first(left, descending, count)
    return chosen.gather(-1, (found // piece).long()) * piece + found % piece


def _are_taken(x: Tensor, count: int) -> bool:
    """Whether elements are taken out of rows one after another: few of them, or of short rows, of a type that kernels
    of rows reduce. Few rows, which a step for each of many elements takes long, are sorted."""
    elements, size = x.numel(), x.shape[-1]
    takes_long = not isinstance(elements, int) or elements > _QUICK
    few = count <= (_FEW if takes_long else _STEPS) and (2 * count <= size or size <= _FEW)
    return few and size <= _WIDE and x.dtype in (torch.float32, torch.int32)


def _taken(x: Tensor, descending: bool, count: int) -> Tensor:
    """The same, each the least numbered of those that equal the row's extremum. What is taken gets a number that is not
    looked for; NaN counts as infinite, with numbers before those of what is, or behind them."""
    size = x.shape[-1]
    numbers, none = torch.arange(size, dtype=torch.int32, device=x.device), 2 * size
    if x.is_floating_point():
        is_nan = x != x
        numbers = torch.where(is_nan != descending, numbers + size, numbers)
        x = torch.where(is_nan, torch.inf, x)
        worst = -torch.inf if descending else torch.inf
    else:
        worst = torch.iinfo(x.dtype).min if descending else torch.iinfo(x.dtype).max
    extremum, found = torch.amax if descending else torch.amin, []
    for _ in range(count):
        number = torch.where(x == extremum(x, -1, keepdim=True), numbers, none).amin(-1, keepdim=True)
        x, numbers = (torch.where(numbers == number, other, own) for own, other in ((x, worst), (numbers, none)))
        found.append(number)
    return torch.cat(found, -1) % size


def _cut(x: Tensor, descending: bool, pieces: int, piece: int) -> Tensor:
    """Rows cut into pieces, the last of which are filled up."""
    if rest := pieces * piece - x.shape[-1]:
        x = torch.cat([x, _last(x, descending).expand((*x.shape[:-1], rest))], -1)
    return x.unflatten(-1, (pieces, piece))


def _inverse(ranks: Tensor) -> Tensor:
    """Which element has each rank of a row."""
    numbers = torch.arange(ranks.shape[-1], dtype=torch.int32, device=ranks.device)
    return torch.zeros_like(ranks, dtype=torch.int32).scatter(-1, ranks.long(), numbers.expand(ranks.shape))


def _last(x: Tensor, descending: bool) -> Tensor:
    """What no element comes behind: behind equal ones it is last."""
    if x.is_floating_point():
        value: float = -torch.inf if descending else torch.nan
    else:
        value = torch.iinfo(x.dtype).min if descending else torch.iinfo(x.dtype).max
    return torch.full([1], value, dtype=x.dtype, device=x.device)


def _places(x: Tensor, descending: bool, count: Any) -> Tensor:
    """The same by ranks alone. NaN counts as infinite, with numbers behind those of what is, or before them."""
    size = x.shape[-1]
    numbers = torch.arange(size, dtype=torch.int32, device=x.device)
    if x.is_floating_point():
        is_nan = x != x
        numbers = torch.where(is_nan != descending, numbers + size, numbers)
        x = torch.where(is_nan, torch.inf, x)
    own, other = x.unsqueeze(-2), x.unsqueeze(-1)  # threads side by side have elements, and go through all others
    leads = other > own if descending else other < own
    before = leads | (other == own) & (numbers.unsqueeze(-1) < numbers.unsqueeze(-2))
    return _inverse(before.to(torch.int32).sum(-2, dtype=torch.int32)).narrow(-1, 0, count)


SORTS = {
    aten.sort.default: sort,
    aten.sort.stable: stable_sort,
    aten.topk.default: topk,
    aten.kthvalue.default: kth_value,
}
