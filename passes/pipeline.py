"""Reads textual pass pipelines in which our passes and upstream's stand side by side, and runs them.

Python passes cannot be registered with MLIR under a textual name, so `PassManager.parse` does not know
them. This reader splits the text, leaves upstream elements to MLIR and adds ours as callables; one pass
manager runs both, so IR printing and timing show every pass.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import get_type_hints

from kitsune_mlir.errors import UserError
from kitsune_mlir.mlir import PassManager, ir, torch_context

from . import PASSES, find
from .base import ModulePass

Element = ModulePass | str  # one of our passes, or the text of an upstream pipeline element
_CLOSES = {"{": "}", "(": ")", "<": ">", "[": "]"}
_ANCHORS = ("{}", "func.func({})", "gpu.module({})", "gpu.module(gpu.func({}))", "gpu.module(llvm.func({}))")


def read(text: str) -> list[Element]:
    """The elements of `builtin.module(a, b{x=1}, func.func(c))`; the outer `builtin.module` may be left
    out. Raises UserError for unbalanced text, bad options, or one of our passes below the module."""
    text = text.strip()
    if text.startswith("builtin.module(") and text.endswith(")"):
        text = text[len("builtin.module(") : -1]
    return [_element(part) for part in split(text, ",")]


def flag(name: str, options: str, target: str = "") -> Element:
    """The element that the flag `--name=options` stands for; upstream's are nested where they belong."""
    if name in PASSES:
        return make(name, options, target)
    own = f"{name}{{{options}}}" if options else name
    with torch_context():
        for anchor in _ANCHORS:
            element = anchor.format(own)
            try:
                PassManager.parse(f"builtin.module({element})")
            except ValueError as error:
                problem = str(error)
                if "did you intend to nest" not in problem:
                    break
            else:
                return element
    if "does not refer to a registered pass" in problem:
        raise UserError(f"there is no pass or option '--{name}' (kitsune-opt --list-passes, --help)")
    raise UserError(f"pass '{name}': {problem.splitlines()[0]}")


def make(name: str, options: str = "", target: str = "") -> ModulePass:
    """One of our passes with options `a=1 b=x`; `target` (a name or file), when given, is the value of a
    `target` option that the options leave out. Raises UserError for an unknown option or a bad value.
    """
    cls = find(name)
    kinds = _types(cls)
    fields = {field.name.replace("_", "-"): field.name for field in dataclasses.fields(cls)}
    values: dict[str, object] = {"target": target} if target and "target" in fields else {}
    for item in split(options, " "):
        key, equals, value = item.partition("=")
        if key not in fields:
            known = ", ".join(fields) or "none"
            raise UserError(f"pass '{name}' has no option '{key}'; its options: {known}")
        values[fields[key]] = _value(name, key, kinds[fields[key]], value if equals else "true")
    return cls(**values)


@functools.cache
def _types(cls: type[ModulePass]) -> dict[str, type]:
    """Those of a pass's fields, which are texts until Python reads them."""
    return get_type_hints(cls)


def run(module: ir.Module, elements: Iterable[Element], configure: Callable[[PassManager], None] | None = None) -> None:
    """Runs the elements in order in one pass manager, which `configure` may set up (IR printing, timing).

    Raises what a pass raises; ir.MLIRError for an upstream failure; UserError for text MLIR rejects.
    """
    with module.context, ir.Location.unknown():
        manager = PassManager("builtin.module")
        for element in elements:
            if isinstance(element, ModulePass):
                manager.add(_callable(element, module), name=element.name, argument=element.name)
            else:
                try:
                    manager.add(element)
                except ValueError as error:
                    problem = str(error).splitlines()[0].rpartition("error: ")[2]
                    raise UserError(f"pass pipeline: {problem}") from error
        if configure is not None:
            configure(manager)
        manager.run(module.operation)


def split(text: str, separator: str) -> list[str]:
    """The parts of `text` between separators that stand outside brackets and quotes, empty ones dropped."""
    parts, closers, quote, start = [], [], "", 0
    for i, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in _CLOSES:
            closers.append(_CLOSES[char])
        elif closers and char == closers[-1]:
            closers.pop()
        elif char in ")}":
            raise UserError(f"pass pipeline: unexpected '{char}' in '{text}'")
        elif char == separator and not closers:
            parts.append(text[start:i].strip())
            start = i + 1
    if closers or quote:
        raise UserError(f"pass pipeline: missing '{quote or closers[-1]}' in '{text}'")
    return [part for part in [*parts, text[start:].strip()] if part]


def _element(text: str) -> Element:
    cut = min((text.find(char) for char in "({" if char in text), default=len(text))
    name, rest = text[:cut].strip(), text[cut:].strip()
    if name in PASSES:
        if rest.startswith("("):
            raise UserError(f"pass pipeline: '{name}' is a pass, not an operation to nest under")
        return make(name, rest[1:-1])
    if rest.startswith("("):
        _refuse_nested(name, rest[1:-1])
    return text


def _refuse_nested(anchor: str, text: str) -> None:
    for part in split(text, ","):
        name = part.partition("{")[0].partition("(")[0].strip()
        if name in PASSES:
            raise UserError(f"pass pipeline: '{name}' runs on builtin.module and cannot be nested under {anchor}")
        if "(" in part:
            _refuse_nested(name, part[part.index("(") + 1 : -1])


def _value(owner: str, key: str, kind: type, text: str) -> object:
    text = text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text
    words = {"true": True, "1": True, "false": False, "0": False}
    try:
        return words[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        raise UserError(f"pass '{owner}' option {key}={text}: expected {kind.__name__}") from None


def _callable(element: ModulePass, module: ir.Module) -> Callable[[ir.Operation, object], None]:
    return lambda operation, pass_: element.run(module)
