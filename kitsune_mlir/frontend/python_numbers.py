"""`int`, `float`, `min` and `max` of numbers that a model reads from tensors, while it is traced.

    start = min(int(place), 5)          # Python's own want to know the number

A trace without bytecode meets Python's own, which ask torch for a number that it does not have. Then the module whose
code asked has others by these names, which give a number that the trace goes on with, and the model is traced anew."""

from __future__ import annotations

import builtins
import contextlib
import functools
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, free_unbacked_symbols

from .model_lines import is_library

_MISSING = object()


class _Numbers(type):
    """The class of classes that are called as `int` and `float` are, and that have the instances that these have."""

    own: type
    symbolic: type

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, (cls.own, cls.symbolic))

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, cls.own)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        value = args[0] if len(args) == 1 and not kwargs else None
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            value = value.trunc().long() if cls.own is int and value.is_floating_point() else value
            value = value.double() if cls.own is float and not value.is_floating_point() else value
            return value.item()
        if isinstance(value, torch.SymInt) and cls.own is float:
            return torch.sym_float(value)
        return value if isinstance(value, cls.symbolic) else cls.own(*args, **kwargs)


class _Int(int, metaclass=_Numbers):
    own, symbolic = int, torch.SymInt


class _Float(float, metaclass=_Numbers):
    own, symbolic = float, torch.SymFloat


def _extremum(own: Callable[..., Any], symbolic: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def extremum(*args: Any, **kwargs: Any) -> Any:
        if len(args) < 2 or kwargs or not any(map(_is_unknown, args)):
            return own(*args, **kwargs)
        return functools.reduce(symbolic, args)

    return extremum


def _is_unknown(value: Any) -> bool:
    return isinstance(value, torch.SymInt | torch.SymFloat) and bool(free_unbacked_symbols(value))


_OTHERS = {
    "int": _Int,
    "float": _Float,
    "min": _extremum(min, torch.sym_min),
    "max": _extremum(max, torch.sym_max),
}


def with_numbers_of_tensors(trace: Callable[[], Any], end: Callable[[], None]) -> Any:
    """What a trace gives, where need be with others for Python's functions in the modules that ask for numbers; `end`
    is called after one that has failed. Raises what the last one does."""
    with _changed_modules() as change:
        while True:
            try:
                return trace()
            except GuardOnDataDependentSymNode as error:
                end()
                if not change(_asking(error)):
                    raise


def _asking(error: Exception) -> tuple[dict[str, Any], list[str]]:
    """The names of the module of the model's innermost line where a number was asked for, and the functions that the
    code there calls."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    own = [frame for frame in frames if frame.f_globals.get("__package__") != __package__]
    own = [frame for frame in own if not is_library(frame.f_code.co_filename)]
    if not own:
        return {}, []
    return own[-1].f_globals, [name for name in own[-1].f_code.co_names if name in _OTHERS]


@contextlib.contextmanager
def _changed_modules() -> Iterator[Callable[[tuple[dict[str, Any], list[str]]], bool]]:
    """Gives what sets functions in a module's names, and says whether any was not yet. They are as before behind the
    `with`."""
    before: list[tuple[dict[str, Any], str, Any]] = []

    def change(found: tuple[dict[str, Any], list[str]]) -> bool:
        module, names = found
        names = [name for name in names if module.get(name, getattr(builtins, name)) is getattr(builtins, name)]
        for name in names:
            before.append((module, name, module.get(name, _MISSING)))
            module[name] = _OTHERS[name]
        return bool(names)

    try:
        yield change
    finally:
        for module, name, was in before:
            if was is _MISSING:
                del module[name]
            else:
                module[name] = was
