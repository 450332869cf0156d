"""What small tensors hold that a model makes of nothing but numbers, such as the times of a solver's steps, or keeps as
buffers, such as the padding of a convolution.

    t = torch.linspace(0, 1, 4)
    if (t[1:] > t[:-1]).all(): ...       # a trace has no numbers, but these are known
"""

from __future__ import annotations

from collections.abc import Iterable
from types import EllipsisType, NoneType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only
from torch.utils.weak import WeakIdKeyDictionary

from .place_sums import is_place
from .shapes import are_known
from .tensor_places import Copies

_MADE = {torch.arange, torch.eye, torch.full, torch.linspace, torch.logspace, torch.ones, torch.tensor, torch.zeros}
_LIKE = {torch.full_like, torch.ones_like, torch.zeros_like, Tensor.new_full, Tensor.new_ones, Tensor.new_zeros}
_READ = {Tensor.__bool__, Tensor.__float__, Tensor.__index__, Tensor.__int__, Tensor.item, Tensor.tolist}
_COMPUTED = frozenset(  # without the underscores of operators and of what writes in place
    """getitem setitem select narrow unbind split chunk flip view reshape flatten squeeze unsqueeze expand cat stack
    triu tril clone detach contiguous to type_as float double int long bool where masked_fill
    add radd iadd sub rsub isub mul rmul imul div rdiv truediv rtruediv idiv itruediv floor_divide floordiv rfloordiv
    remainder mod neg abs sign reciprocal pow rpow sqrt exp log floor ceil round trunc clamp minimum maximum nextafter
    eq ne lt le gt ge logical_and logical_or logical_not bitwise_and bitwise_or bitwise_not and or invert
    all any sum prod cumsum amin amax min max argmin argmax diff isclose allclose equal""".split()
)
_OF_SIZES = frozenset("expand interpolate narrow pad repeat reshape roll split unflatten unfold view".split())
_FILLED = (_MADE | _LIKE) - {torch.tensor}  # of sizes and numbers
_OF_ANYTHING = _MADE | _LIKE | _READ
_AT_PLACES = {Tensor.__getitem__, Tensor.__setitem__}
_REPEATS = {torch.repeat_interleave, Tensor.repeat_interleave}
_MOST = 1 << 22  # elements: nn.Transformer compares the masks of 2,048 tokens with causal ones
_PLAIN = (int, float, str, NoneType, EllipsisType, torch.dtype, torch.device, torch.layout, torch.memory_format)


class KnownTensors:
    """The tensors of one trace of which it is known what they hold, each beside one outside of the trace that holds it.
    One that is written to with what is not known is not known any more: torch counts the writes to it and its views."""

    def __init__(self) -> None:
        self._known: WeakIdKeyDictionary = WeakIdKeyDictionary()  # with the count of writes then
        self.copies = Copies()
        self._moved = {"narrow": self.copies.narrow, "pad": self.copies.pad, "roll": self.copies.roll}

    def know(self, tensors: Iterable[Any], found: Iterable[Any]) -> None:
        """That those of the trace hold what others hold."""
        for tensor, own in zip(tensors, found, strict=True):
            if isinstance(tensor, Tensor) and own.numel() <= _MOST:
                self._known[tensor] = own, tensor._version

    def call(self, function: Any, args: Any, kwargs: Any) -> Any:
        """What a call gives. What it makes or writes is known if all is that it is given."""
        place = self.copies.sums.result_of(function, args, kwargs)
        result = self._result(function, args, kwargs)
        self.copies.sums.note(result, place)
        return result

    def _result(self, function: Any, args: Any, kwargs: Any) -> Any:
        given = self._given(function, args, kwargs)
        if given is not None and function in _READ:
            return _outside(function, *given)
        name, of_itself = getattr(function, "__name__", ""), 0 if function in _MADE else 1
        if function in _FILLED or name in _OF_SIZES:
            numbers = tree_map(self._number, args[of_itself:])
            args, kwargs = (*args[:of_itself], *numbers), tree_map(self._number, kwargs)
            moved = self._moved.get(name)
            if moved is not None and (found := moved(*args, **kwargs)) is not NotImplemented:
                return found
        elif function in _AT_PLACES:
            args = args[0], tree_map(self._bounds, args[1]), *args[2:]
            if function is Tensor.__getitem__ and (found := self.copies.read(*args)) is not NotImplemented:
                return found
            if function is Tensor.__setitem__ and self.copies.write(*args):
                return None
        elif function in _REPEATS and (places := self._repeated(*args, **kwargs)) is not None:
            return args[0].index_select(*places)
        result = function(*args, **kwargs)
        if given is None:
            return result
        self.know(tree_leaves(result), tree_leaves(_outside(function, *given)))
        if function is Tensor.__setitem__:
            self.know(args[:1], given[0][:1])
        return result

    def _given(self, function: Any, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """The arguments with known tensors in their places; None where one is not known, and for other functions."""
        if function not in _OF_ANYTHING and getattr(function, "__name__", "").strip("_") not in _COMPUTED:
            return None
        leaves = tree_leaves((args, kwargs))
        if not all(isinstance(leaf, Tensor) or _is_plain(leaf) for leaf in leaves):
            return None
        own = {id(leaf): self._of(leaf) for leaf in leaves if isinstance(leaf, Tensor)}
        if function in _LIKE and are_known(args[0].shape):
            form = {"dtype": args[0].dtype, "device": args[0].device}
            own[id(args[0])] = _outside(torch.empty, (args[0].shape,), form)
        if any(found is None for found in own.values()):
            return None
        found: tuple[Any, Any] = tree_map_only(Tensor, lambda leaf: own[id(leaf)], (args, kwargs))
        return found

    def _number(self, leaf: Any) -> Any:
        """The number that a tensor of one is known to hold, for sizes are numbers in a trace; others as they are."""
        found = self._of(leaf) if isinstance(leaf, Tensor) and leaf.dim() == 0 else None
        return leaf if found is None else _outside(Tensor.item, (found,), {})

    def _repeated(self, x: Tensor, counts: Any = None, dim: int | None = None, **_: Any) -> tuple[int, Tensor] | None:
        """The dimension and the numbers of its elements, each as often as it is known to be repeated."""
        found = self._of(counts) if isinstance(counts, Tensor) else None
        if found is None or dim is None or not isinstance(x.shape[dim], int):
            return None
        numbers = _outside(torch.arange, (x.shape[dim],), {"device": x.device})
        places: list[int] = _outside(torch.repeat_interleave, (numbers, found), {}).tolist()
        return dim, torch.tensor(places, dtype=torch.int64, device=x.device)

    def _bounds(self, leaf: Any) -> Any:
        if isinstance(leaf, slice):
            return slice(*map(self._number, (leaf.start, leaf.stop, leaf.step)))
        return self._number(leaf) if is_place(leaf) else leaf

    def _of(self, tensor: Tensor) -> Tensor | None:
        found, writes = self._known.get(tensor, (None, 0))
        return found if found is not None and writes == tensor._version else None


def _outside(function: Any, args: Any, kwargs: Any) -> Any:
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        return function(*args, **kwargs)


def _is_plain(leaf: Any) -> bool:
    """Whether it is no size that is open."""
    parts = (leaf.start, leaf.stop, leaf.step) if isinstance(leaf, slice) else (leaf,)
    return all(isinstance(part, _PLAIN) for part in parts)
