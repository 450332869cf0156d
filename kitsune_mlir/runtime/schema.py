"""Checks plain JSON data against a description of it. Standard library only.

A schema is a `Kind`, which tests one value; `[schema]`, a list; `{"key": schema, "key?": schema}`, an object with just
these keys, those with a question mark optional; or `Table(schema)`, an object with any keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Kind:
    """Values that pass a test; `words` complete the sentence "it must be ..."."""

    words: str
    test: Callable[[Any], bool]


@dataclass(frozen=True)
class Table:
    """An object whose values all have one schema."""

    schema: Any


Schema = Kind | Table | list[Any] | dict[str, Any]


class Mismatch(ValueError):
    """What does not fit: "a.b[2] must be a list, found 3"."""


def expect(holds: bool, sentence: str) -> None:
    """Raises Mismatch with the sentence unless it holds."""
    if not holds:
        raise Mismatch(sentence)


def whole(least: int, most: int) -> Kind:
    """A whole number; true and false are none."""
    return Kind(f"a whole number from {least} to {most}", lambda v: type(v) is int and least <= v <= most)


def among(names: Collection[Any]) -> Kind:
    """One of these constants."""
    constants = tuple(names)
    return Kind(" or ".join(map(repr, constants)), lambda v: isinstance(v, str) and v in constants)


def matching(pattern: str) -> Kind:
    """Text that a regular expression matches from end to end."""
    compiled = re.compile(pattern)
    return Kind(f"text like {pattern}", lambda v: isinstance(v, str) and compiled.fullmatch(v) is not None)


def either(*kinds: Kind) -> Kind:
    """A value of one of several kinds."""
    return Kind(" or ".join(kind.words for kind in kinds), lambda v: any(kind.test(v) for kind in kinds))


NULL = Kind("null", lambda v: v is None)
FLAG = Kind("true or false", lambda v: type(v) is bool)
TEXT = Kind("text", lambda v: isinstance(v, str) and not re.search("[\0\ud800-\udfff]", v))  # what can be printed
ANY_NUMBER = Kind("a number", lambda v: type(v) is float or (type(v) is int and abs(v) < 1 << 64))
NUMBER = Kind("a finite number", lambda v: ANY_NUMBER.test(v) and abs(v) < 1e300)  # which NaN is not
SIZE = whole(0, 1 << 48)  # what a process can address
OPEN_SIZE = either(NULL, SIZE)  # null until a call
NAME = matching(r"[^/\\\0\ud800-\udfff]+")  # of a file
HASH = matching("[0-9a-f]{64}")


def check(value: Any, schema: Schema, where: str = "it") -> None:
    """Raises Mismatch, saying where, unless the value fits the schema."""
    if isinstance(schema, Kind):
        if not schema.test(value):
            raise Mismatch(f"{where} must be {schema.words}, found {outline(value)}")
    elif isinstance(schema, list):
        if not isinstance(value, list):
            raise Mismatch(f"{where} must be a list, found {outline(value)}")
        for i, item in enumerate(value):
            check(item, schema[0], f"{where}[{i}]")
    else:
        if not isinstance(value, dict):
            raise Mismatch(f"{where} must be an object, found {outline(value)}")
        fields = dict.fromkeys(value, schema.schema) if isinstance(schema, Table) else _fields(value, schema, where)
        for key, inner in fields.items():
            check(value[key], inner, f"{where}.{key}")


def _fields(value: dict[str, Any], schema: dict[str, Any], where: str) -> dict[str, Any]:
    """The schemas of the keys that there are. Raises Mismatch for one too many or too few."""
    known = {key.removesuffix("?"): inner for key, inner in schema.items()}
    for key in schema:
        expect(key.endswith("?") or key in value, f"{where} must have a '{key}'")
    for key in value:
        expect(key in known, f"{where} must not have a {key!r:.40}")
    return {key: known[key] for key in value}


def outline(value: Any) -> str:
    """A value in a few words, whatever it is."""
    if isinstance(value, list | dict):
        return f"a {'list' if isinstance(value, list) else 'table'} of {len(value)}"
    if type(value) is int and abs(value) >= 1 << 64:
        return "a huge number"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
