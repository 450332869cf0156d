"""Answers that operations give about their regions, kept while nobody changes them. The bindings are slow, and how a
pipeline may be placed is asked of the same stages for each cluster and each height of a tile."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from kitsune_mlir.mlir import ir

_Answers = dict[tuple[str, ir.Operation, tuple[str, ...]], list[Any]]
_answers: ContextVar[_Answers | None] = ContextVar("answers", default=None)


@contextlib.contextmanager
def unchanged() -> Iterator[None]:
    """Within the `with` no operation is changed, made or erased: what `asked_once` marks is found out once."""
    token = _answers.set({})
    try:
        yield
    finally:
        _answers.reset(token)


def asked_once(method: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """A method of an operation's view, from names to a list, that is asked once within `unchanged`, and each time
    without. The list is the caller's own."""

    def ask(view: ir.OpView, *names: str) -> list[Any]:
        answers = _answers.get()
        if answers is None:
            return method(view, *names)
        key = method.__qualname__, view.operation, names
        if key not in answers:
            answers[key] = method(view, *names)
        return list(answers[key])

    return ask
