"""Elements of tensors at numbers that tensors of no dimension hold, for which a trace would take views of known places:
they are gathered and scattered.

    x[:, i]        index.Tensor(x, [None, i.view(1)]).squeeze(1)
    x[:, i] = v    x.index_put_([None, i.view(1)], v.unsqueeze(1))

What is gathered is no view any more, so that what writes to it is refused (`Copies`), but for `x[i] += v`, which Python
writes back."""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import Any

import torch
from torch import Tensor

from kitsune_mlir.errors import UnsupportedError

aten = torch.ops.aten


class Copies:
    """What was gathered in one trace where a model has views."""

    def __init__(self) -> None:
        self._made: list[tuple[Tensor, int]] = []

    def read(self, x: Tensor, index: Any) -> Any:
        """x[index], if there is a place in a tensor; else NotImplemented."""
        items = _items(x, index)
        if not any(map(is_place, items)):
            return NotImplemented
        if any(map(_is_gathered, items)):
            return aten.index.Tensor(*_gathered(x, items)) if _are_adjacent(items) else NotImplemented
        view, dims, places = _placed(x, items)
        found = aten.index.Tensor(view, places).squeeze(_where(dims))
        self._made.append((found, found._version))
        return found

    def write(self, x: Tensor, index: Any, value: Any) -> bool:
        """x[index] = value, if there is a place in a tensor, and whether there is one."""
        items = _items(x, index)
        if not any(map(is_place, items)):
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
        left = [size for d, size in enumerate(view.shape) if d not in dims]
        while value.dim() > len(left):  # dimensions of one element in front, which torch leaves out
            value = value.squeeze(0)
        aten.index_put_(view, places, value.expand(left).unsqueeze(_where(dims)))
        return True

    def check(self) -> None:
        """Raises UnsupportedError if one was written to."""
        if any(made._version != version for made, version in self._made):
            raise UnsupportedError(
                "what is read at the place that a tensor says, as x[i], is written to in place; "
                "write to x[i] itself, or compute something new"
            )


def _items(x: Tensor, index: Any) -> list[Any]:
    """One for each dimension that an index says something of, None, or a mask; the others are slices of all."""
    items = list(index) if isinstance(index, tuple) else [index]
    taken = sum(map(_dims, items))
    at = next((i for i, item in enumerate(items) if item is Ellipsis), len(items))
    return [*items[:at], *[slice(None)] * (x.dim() - taken), *items[at + 1 :]]


def _dims(item: Any) -> int:
    if isinstance(item, Tensor) and item.dtype in (torch.bool, torch.uint8):
        return item.dim()
    return 0 if item is None or isinstance(item, bool | EllipsisType) else 1


def is_place(item: Any) -> bool:
    kinds = torch.int64, torch.int32, torch.int16, torch.int8
    return isinstance(item, Tensor) and item.dim() == 0 and item.dtype in kinds


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


def _placed(x: Tensor, items: Sequence[Any]) -> tuple[Tensor, list[int], list[Tensor | None]]:
    """The view of all places; which of its dimensions they are along, and the places by dimension."""
    view = x[tuple(slice(None) if is_place(item) else item for item in items)]
    left = [item for item in items if item is None or isinstance(item, slice | Tensor)]
    dims = [d for d, item in enumerate(left) if is_place(item)]
    return view, dims, [left[d].long().view(1) if d in dims else None for d in range(dims[-1] + 1)]


def _where(dims: Sequence[int]) -> int:
    """Where what is gathered has the dimension of one element."""
    return dims[0] if list(dims) == list(range(dims[0], dims[-1] + 1)) else 0
