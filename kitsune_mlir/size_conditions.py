"""What a model that was exported takes for granted of the open sizes of its inputs, as data: nested lists.

    ["==", ["%", "s0", 2], 0]            a number, the name of an open size, or an operation and what it is of

Needs nothing but Python: artifacts hold conditions, and every call is asked for them.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import reduce
from typing import Any

Condition = Any  # int, str or [str, Condition, ..]

OPERATIONS = {
    "+": lambda *of: sum(of),
    "*": lambda *of: reduce(operator.mul, of),
    "//": operator.floordiv,
    "%": operator.mod,
    "max": max,
    "min": min,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "and": lambda *of: all(of),
    "or": lambda *of: any(of),
    "not": operator.not_,
}
_OF_ANY = ("+", "*", "max", "min", "and", "or")  # take any number of operands
_DEPTH, _MOST = 40, 1000  # operations in one another, and operands of one
_TIGHT = {"*": 3, "//": 3, "%": 3, "+": 2, "not": 1, "and": 0, "or": 0}  # others compare, or are calls


def evaluate(condition: Condition, sizes: Mapping[str, int]) -> Any:
    """What a condition comes to. Raises ZeroDivisionError where it divides by a size of zero."""
    if isinstance(condition, str):
        return sizes[condition]
    if isinstance(condition, int):
        return condition
    name, *parts = condition
    return OPERATIONS[name](*(evaluate(part, sizes) for part in parts))


def is_met(condition: Condition, sizes: Mapping[str, int]) -> bool:
    """Whether sizes are as a condition says; those of empty tensors by which it would divide are."""
    try:
        return bool(evaluate(condition, sizes))
    except ZeroDivisionError:
        return True


def names_of(condition: Condition) -> set[str]:
    """The open sizes that a condition is about."""
    if isinstance(condition, str):
        return {condition}
    return set() if isinstance(condition, int) else set().union(*map(names_of, condition[1:]))


def is_condition(found: Any, depth: int = _DEPTH) -> bool:
    """Whether data of any kind is a condition, of operations in one another that are not too many."""
    if not isinstance(found, list):
        return isinstance(found, str | int)
    name = found[0] if found and isinstance(found[0], str) else ""
    counts = (1,) if name == "not" else range(1, _MOST) if name in _OF_ANY else (2,)
    fits = depth > 0 and name in OPERATIONS and len(found) - 1 in counts
    return fits and all(is_condition(part, depth - 1) for part in found[1:])


def text(condition: Condition, called: Mapping[str, str], within: int = -1) -> str:
    """A condition as Python writes it, sizes as they are `called`."""
    if not isinstance(condition, list):
        return called.get(condition, condition) if isinstance(condition, str) else str(condition)
    name, *parts = condition
    if name in ("max", "min"):
        return f"{name}({', '.join(text(part, called) for part in parts)})"
    tight = _TIGHT.get(name, 1)
    written = [text(part, called, tight + (name != "+" and place > 0)) for place, part in enumerate(parts)]
    found = f"not {written[0]}" if name == "not" else f" {name} ".join(written)
    return f"({found})" if tight < within else found
