"""Elements of tensors at numbers that tensors of no dimension hold, for which a trace would take views of known places:
they are gathered and scattered.

    x[:, i]              index.Tensor(x, [None, i.view(1)]).squeeze(1)
    x[:, i] = v          x.index_put_([None, i.view(1)], v.unsqueeze(1))
    x[:, i : i + 3]      index.Tensor(x, [None, i + arange(3)])
    x.roll(i, 1)         index_select(x, 1, (arange(n) - i) % n)

What is gathered is no view any more, so that what writes to it is refused (`Copies`), but for `x[i] += v`, which Python
writes back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import torch
from torch import Tensor
from torch._export.non_strict_utils import _NonStrictTorchFunctionHandler
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from kitsune_mlir.errors import UnsupportedError

from .place_sums import PlaceSums, is_place
from .shapes import line_along

aten = torch.ops.aten


@dataclass(frozen=True)
class _Window:
    """Elements that begin where a tensor says, of any number; a slice of them."""

    start: Tensor
    count: Any  # a number or a size
    step: int = 1


class Copies:
    """What was gathered in one trace where a model has views."""

    def __init__(self) -> None:
        self.sums = PlaceSums()
        self._made: list[tuple[Tensor, int]] = []

    def read(self, x: Tensor, index: Any) -> Any:
        """x[index], if there is a place in a tensor; else NotImplemented."""
        items = self._items(x, index)
        if not any(map(_is_moved, items)):
            return NotImplemented
        if any(map(_is_gathered, items)):
            return aten.index.Tensor(*_gathered(x, items)) if _are_adjacent(items) else NotImplemented
        view, dims, places = _placed(x, items)
        found = aten.index.Tensor(view, places).movedim(_taken_to(dims), dims)
        for d, item in reversed(list(enumerate(_left(items)))):
            found = found.squeeze(d) if is_place(item) else found
        self._made.append((found, found._version))
        return found

    def write(self, x: Tensor, index: Any, value: Any) -> bool:
        """x[index] = value, if there is a place in a tensor, and whether there is one."""
        items = [_as_place(item, x.device) for item in self._items(x, index)]
        if not any(map(_is_moved, items)):
            return False
        self._made = [made for made in self._made if made[0] is not value]
        value = (
            value.to(x.dtype) if isinstance(value, Tensor) else torch.full((), value, dtype=x.dtype, device=x.device)
        )
        if any(map(_is_gathered, items)):
            if not _are_adjacent(items):
                return False
            view, places = _gathered(x, items)
            aten.index_put_(view, places, value)
            return True
        view, dims, places = _placed(x, items)
        left = _left(items)
        sizes = [item.count if isinstance(item, _Window) else n for item, n in zip(left, view.shape, strict=True)]
        singles = [d for d, item in enumerate(left) if is_place(item)]
        kept = [n for d, n in enumerate(sizes) if d not in singles]
        while value.dim() > len(kept):  # dimensions of one element in front, which torch leaves out
            value = value.squeeze(0)
        value = value.expand(kept)
        for d in singles:
            value = value.unsqueeze(d)
        first = _taken_to(dims)
        if first != dims:  # not beside each other
            view, places, value = (
                view.movedim(dims, first),
                [p for p in places if p is not None],
                value.movedim(dims, first),
            )
        aten.index_put_(view, places, value)
        return True

    def narrow(self, x: Tensor, dim: int, start: Any, length: Any) -> Any:
        """x.narrow(dim, start, length), if a tensor says where it starts; else NotImplemented."""
        if not _is_unknown(start) or isinstance(length, int) and length < 1:
            return NotImplemented
        return self.read(x, (*[slice(None)] * (dim % x.dim()), _Window(_as_tensor(start, x.device), length)))

    def roll(self, x: Tensor, shifts: Any, dims: Any = ()) -> Any:
        """x.roll(shifts, dims), if a tensor says how far; else NotImplemented."""
        shifts, dims = ([one] if is_place(one) or not isinstance(one, Sequence) else one for one in (shifts, dims))
        if not any(map(_is_unknown, shifts)) or len(shifts) != len(dims):
            return NotImplemented
        for shift, dim in zip(shifts, dims):
            size = x.shape[dim]
            places = torch.arange(size, device=x.device) - _as_tensor(shift, x.device)
            x = x.index_select(dim, places.remainder(size))
        return x

    def pad(self, x: Tensor, amounts: Any, mode: str = "constant", value: Any = None) -> Any:
        """F.pad(x, amounts, mode, value), if tensors say how far, but not how many there are then; else
        NotImplemented."""
        if not any(map(_is_unknown, amounts)) or mode != "constant" or len(amounts) % 2:
            return NotImplemented
        for number, (before, behind) in enumerate(zip(amounts[::2], amounts[1::2])):
            dim = x.dim() - 1 - number
            if not _is_unknown(before) and not _is_unknown(behind):
                x = torch.nn.functional.pad(x, (*[0, 0] * number, before, behind), mode, value)
                continue
            more = self.sums.together(before, behind)
            if more is None:
                return NotImplemented
            places = torch.arange(x.shape[dim] + more, device=x.device) - _as_tensor(before, x.device)
            inside = ((places >= 0) & (places < x.shape[dim])).view(line_along(dim, x.dim()))
            places = places.clamp(min=0, max=x.shape[dim] - 1)
            x = torch.where(inside, x.index_select(dim, places), x.new_full((), value or 0))
        return x

    @contextlib.contextmanager
    def before_torch(self) -> Iterator[None]:
        """Within the `with`, slices that begin where a tensor says come here: torch would take any number of elements
        to be between two numbers that it does not know."""
        override = _NonStrictTorchFunctionHandler._override

        def as_it_is(handler: Any, function: Any, args: Any, kwargs: Any) -> Any:
            if function is Tensor.__getitem__ and any(isinstance(item, _Window) for item in self._items(*args)):
                return function, args, kwargs
            return override(handler, function, args, kwargs)

        _NonStrictTorchFunctionHandler._override = as_it_is
        try:
            yield
        finally:
            _NonStrictTorchFunctionHandler._override = override

    def check(self) -> None:
        """Raises UnsupportedError if one was written to."""
        if any(made._version != version for made, version in self._made):
            raise UnsupportedError(
                "what is read at the place that a tensor says, as x[i], is written to in place; "
                "write to x[i] itself, or compute something new"
            )

    def _items(self, x: Tensor, index: Any) -> list[Any]:
        """One for each dimension that an index says something of, None, or a mask; the others are slices of all."""
        items = list(index) if isinstance(index, tuple) else [index]
        taken = sum(map(_dims, items))
        at = next((i for i, item in enumerate(items) if item is Ellipsis), len(items))
        found = [*items[:at], *[slice(None)] * (x.dim() - taken), *items[at + 1 :]]
        return [self._window(item, x.device) if isinstance(item, slice) else item for item in found]

    def _window(self, item: slice, device: torch.device) -> slice | _Window:
        """What a slice between two numbers in tensors is, if it is known how far they are apart."""
        step = 1 if item.step is None else item.step
        if not (_is_unknown(item.start) or _is_unknown(item.stop)) or not isinstance(step, int) or step < 1:
            return item
        length = self.sums.between(item.start, item.stop)
        if length is None or isinstance(length, int) and length < 1:
            return item
        return _Window(_as_tensor(item.start, device), (length + step - 1) // step, step)


def _as_tensor(start: Any, device: torch.device) -> Tensor:
    return start if isinstance(start, Tensor) else torch.scalar_tensor(start, dtype=torch.int64, device=device)


def _as_place(item: Any, device: torch.device) -> Any:
    """What says where an element is; a number that is read from a tensor, as a tensor."""
    return _as_tensor(item, device) if isinstance(item, torch.SymInt) and _is_unknown(item) else item


def _is_unknown(bound: Any) -> bool:
    return is_place(bound) or isinstance(bound, torch.SymInt) and bool(free_unbacked_symbols(bound))


def _dims(item: Any) -> int:
    if isinstance(item, Tensor) and item.dtype in (torch.bool, torch.uint8):
        return item.dim()
    return 0 if item is None or isinstance(item, bool | EllipsisType) else 1


def _is_moved(item: Any) -> bool:
    return is_place(item) or isinstance(item, _Window)


def _is_gathered(item: Any) -> bool:
    return isinstance(item, Tensor | list | tuple | bool) and not is_place(item)


def _are_adjacent(items: Sequence[Any]) -> bool:
    """Whether places and other tensors of numbers are beside each other, so that they mean what they mean together; and
    there is nothing but them and slices."""
    at = [i for i, item in enumerate(items) if isinstance(item, Tensor)]
    others = [item for item in items if not isinstance(item, slice)]
    numbers = all(isinstance(item, Tensor) and item.dtype not in (torch.bool, torch.uint8) for item in others)
    return numbers and at == list(range(at[0], at[-1] + 1))


def _gathered(x: Tensor, items: Sequence[Any]) -> tuple[Tensor, list[Tensor | None]]:
    view = x[tuple(item if isinstance(item, slice) else slice(None) for item in items)]
    return view, [
        item.long().view(1) if is_place(item) else item if isinstance(item, Tensor) else None for item in items
    ]


def _left(items: Sequence[Any]) -> list[Any]:
    """What stands for each dimension of the view of all places."""
    return [item for item in items if item is None or isinstance(item, slice | Tensor | _Window)]


def _placed(x: Tensor, items: Sequence[Any]) -> tuple[Tensor, list[int], list[Tensor | None]]:
    """The view of all places; which of its dimensions they are along, and the numbers by dimension, each of which has
    one of the dimensions that are taken."""
    view = x[tuple(slice(None) if _is_moved(item) else item for item in items)]
    left = _left(items)
    dims = [d for d, item in enumerate(left) if _is_moved(item)]
    numbers: list[Tensor | None] = [None] * (dims[-1] + 1)
    for number, d in enumerate(dims):
        numbers[d] = _numbers(left[d], view.shape[d]).view(line_along(number, len(dims)))
    return view, dims, numbers


def _numbers(item: Any, size: Any) -> Tensor:
    """Those of the elements, which are counted from the end below zero. Where a window begins there and goes beyond
    the end, it has none in torch, and a number that no element has here."""
    if is_place(item):
        return item.long().view(1)
    start = item.start.long().view(1)
    if isinstance(item.count, int) and item.count == 1:
        return start
    found = start + torch.arange(item.count, device=start.device) * item.step
    return torch.where((start < 0) & (found >= 0), size, found)


def _taken_to(dims: Sequence[int]) -> list[int]:
    """Where the dimensions lie that are gathered: where the first was if they are neighbours, else in front."""
    first = dims[0] if list(dims) == list(range(dims[0], dims[-1] + 1)) else 0
    return list(range(first, first + len(dims)))
