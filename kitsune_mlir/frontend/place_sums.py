"""How far apart the numbers are that two tensors of no dimension hold, as far as a trace says it.

    end = i + 3
    x[i:end]           three elements, wherever i is

A number is a sum of what is not known, each so many times, and of a number or a size."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils.weak import WeakIdKeyDictionary

from kitsune_mlir.planning.linear_sums import LinearSum

_KINDS = torch.int64, torch.int32, torch.int16, torch.int8
_SAME = frozenset("clone contiguous detach int long reshape squeeze to type_as view".split())
_ALIKE = _SAME | frozenset("getitem select floor_divide floordiv remainder mod clamp minimum maximum".split())


def is_place(item: Any) -> bool:
    """Whether it is a tensor of no dimension that holds an integer."""
    return isinstance(item, Tensor) and item.dim() == 0 and item.dtype in _KINDS


class PlaceSums:
    """The numbers of one trace. One that is written to is another from then on: torch counts the writes to tensors."""

    def __init__(self) -> None:
        self._found: WeakIdKeyDictionary = WeakIdKeyDictionary()  # with the count of writes then
        self._kept: list[Tensor] = []  # whose names stand for what they hold

    def between(self, start: Any, end: Any) -> Any:
        """The number or the size that `end` - `start` is, of tensors, numbers and sizes; None if that is not known."""
        first, last = self._of(start), self._of(end)
        if first is None or last is None:
            return None
        found = last.plus(first, -1)
        return None if found.terms else known_size(found.known)

    def together(self, one: Any, other: Any) -> Any:
        """The number or the size that the sum of both is, of tensors, numbers and sizes; None if that is not known."""
        first, last = self._of(one), self._of(other)
        found = None if first is None or last is None else first.plus(last)
        return None if found is None or found.terms else known_size(found.known)

    def result_of(self, function: Any, args: Any, kwargs: Any) -> LinearSum | None:
        """What a call will make of such numbers, before it is made: it may write to one."""
        name = getattr(function, "__name__", "").strip("_")
        if kwargs or not args or not isinstance(args[0], Tensor):
            return None
        if name in ("add", "radd", "iadd", "sub", "isub", "rsub", "mul", "rmul", "imul") and len(args) == 2:
            return self._arithmetic(name.removeprefix("i").removesuffix("_"), self._of(args[0]), self._of(args[1]))
        if name == "neg":
            own = self._of(args[0])
            return None if own is None else own.scaled(-1)
        if name in _SAME and is_place(args[0]):
            return self._of(args[0])
        if name in _ALIKE and all(isinstance(each, Tensor | int) for each in args):
            return LinearSum.of((name, *map(self._name, args)))
        return None

    def note(self, result: Any, found: LinearSum | None) -> None:
        """That a call gave this tensor, of which `result_of` said so."""
        if found is not None and is_place(result):
            self._found[result] = found, result._version

    @staticmethod
    def _arithmetic(name: str, one: LinearSum | None, other: LinearSum | None) -> LinearSum | None:
        if one is None or other is None:
            return None
        if name.startswith("r"):
            one, other, name = other, one, name[1:]
        if name != "mul":
            return one.plus(other, -1 if name == "sub" else 1)
        if isinstance(one.known, int) and not one.terms:
            one, other = other, one
        return one.scaled(other.known) if not other.terms and isinstance(other.known, int) else None

    def _of(self, value: Any) -> LinearSum | None:
        if isinstance(value, int | torch.SymInt):
            return LinearSum(value)
        if not is_place(value):
            return None
        found, writes = self._found.get(value, (None, 0))
        return found if found is not None and writes == value._version else LinearSum.of(self._name(value))

    def _name(self, value: Any) -> Hashable:
        if not isinstance(value, Tensor):
            return value
        self._kept.append(value)
        return id(value), value._version


def known_size(size: Any) -> Any:
    """A number or an open size; None for one that depends on data."""
    if isinstance(size, int):
        return size
    if free_unbacked_symbols(size):
        return None
    number = size.node.maybe_as_int()
    return size if number is None else number
