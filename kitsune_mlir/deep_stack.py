"""Room for what goes from operators to those that make their operands, in programs where these are thousands in a row.

Functions that follow operators call themselves once for each, through iterators of C's too. Python ends that at a
thousand calls in one another, and a thread's stack holds few more; a thread with a larger one holds as many as there
are.
"""

from __future__ import annotations

import contextlib
import contextvars
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from .mlir import ir, walk

_SHALLOW = 60  # operators in a row, for which Python's own limit does
_CALLS, _BYTES = 20, 1 << 15  # for each operator in a row: calls in one another, and bytes of a stack
_LEAST, _MOST = 1 << 26, (1 << 30) - 4096  # bytes of a stack
_turn = threading.Lock()  # Python has one limit for all threads

_Result = TypeVar("_Result")


def depth(module: ir.Module) -> int:
    """How many operations of a function there are in a row, each of which takes what one before it makes."""
    most = 0
    for function in walk(module, "func.func"):
        found: dict[ir.Operation, int] = {}
        for block in function.regions[0].blocks:
            for op in block.operations:
                made = [found.get(value.owner, 0) for value in op.operands if not isinstance(value.owner, ir.Block)]
                found[op.operation] = 1 + max(made, default=0)
        most = max(most, max(found.values(), default=0))
    return most


def with_room(found: int, step: Callable[[], _Result]) -> _Result:
    """What a step gives that may follow so many operators in a row; raises what it raises."""
    if found <= _SHALLOW:
        return step()
    results, errors, context = list[_Result](), list[BaseException](), contextvars.copy_context()

    def run() -> None:
        try:
            results.append(context.run(step))
        except BaseException as error:
            errors.append(error)

    with _turn, _limits(1000 + found * _CALLS, min(max(found * _BYTES, _LEAST), _MOST)):
        thread = threading.Thread(target=run, name="kitsune-compile")
        thread.start()
        thread.join()
    if errors:
        raise errors[0]
    return results[0]


@contextlib.contextmanager
def _limits(calls: int, stack: int) -> Iterator[None]:
    """Within the `with`, so many calls in one another, and a stack of so many bytes for new threads."""
    before = sys.getrecursionlimit()
    size = threading.stack_size(stack)
    sys.setrecursionlimit(max(before, calls))
    try:
        yield
    finally:
        threading.stack_size(size)
        sys.setrecursionlimit(before)
