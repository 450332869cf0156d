"""Inline PTX, read once: a text becomes statements, a statement an opcode and its operands."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

_GUARD = re.compile(r"@(!?)(\w+)\s+")
_LABEL = re.compile(r"(\w+):(?!:)\s*")


@dataclass(frozen=True)
class Statement:
    """Operands: a register's name, a number, a tuple for {a, b}, a list for [a, b]. A label has the opcode ":"."""

    opcode: str
    operands: tuple[Any, ...]
    guard: str = ""
    inverted: bool = False  # whether the guard is @!p


@functools.cache
def parse(text: str) -> tuple[Statement, ...]:
    """The statements of a text, without its declarations."""
    text = text.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    found = []
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        if part.startswith(".reg"):
            continue
        while label := _LABEL.match(part):
            part = part[label.end() :]
            found.append(Statement(":", (label.group(1),)))
        if not part:
            continue
        guard = _GUARD.match(part)
        if guard:
            part = part[guard.end() :]
        opcode, _, rest = part.partition(" ")
        name, inverted = (guard.group(2), bool(guard.group(1))) if guard else ("", False)
        found.append(Statement(opcode, tuple(map(_operand, _split(rest))), name, inverted))
    return tuple(found)


def _split(text: str) -> list[str]:
    """At the commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "{[") - (letter in "}]")
        if letter == "," and not depth:
            parts.append(text[start:place])
            start = place + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def _operand(text: str) -> Any:
    if text[0] == "{":
        return tuple(map(_operand, _split(text[1:-1])))
    if text[0] == "[":
        return list(map(_operand, _split(text[1:-1])))
    return int(text, 0) if text.lstrip("-").isalnum() and text.lstrip("-")[0].isdigit() else text
