"""How a Python call maps to a flat list of tensors, as plain JSON data.

A *tree* is one of `{"leaf": i}` (tensor i of the flat list), `{"number": i}` (the number in tensor i, among results
only), `{"constant": v}` (None, bool, int, float or str, fixed when the model was exported), `{"list": [tree]}`,
`{"tuple": [tree]}`, `{"dict": {key: tree}}`, `{"named": {name: tree}}`, a tuple whose items have names (a NamedTuple,
what `x.max(0)` gives, or a dataclass that is no Mapping), or `{"record": {key: tree}}`, a dict whose items are
attributes too (the outputs of transformers). A signature is `{"args": tuple tree, "kwargs": dict tree, "results":
tree}`: leaves of the first two count the inputs in order, leaves of the last one the results. No torch, no MLIR: the
runtime of a saved artifact reads it too.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from kitsune_mlir.errors import UserError

Tree = dict[str, Any]
Signature = dict[str, Tree]

CONSTANTS = (type(None), bool, int, float, str)


class Record(dict[str, Any]):
    """A dict whose items are attributes too, and can be had by their places."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(f"there is no result '{name}': the results are {', '.join(self)}")
        return self[name]

    def __getitem__(self, key: Any) -> Any:
        return tuple(self.values())[key] if isinstance(key, int | slice) else super().__getitem__(key)


def describe(value: Any, leaf: Callable[[Any], Tree]) -> Tree:
    """The tree of a nested value; `leaf` makes the tree of what is no list, tuple or dict."""
    if isinstance(value, tuple) and (names := _field_names(value)):
        return {"named": {name: describe(item, leaf) for name, item in zip(names, value, strict=True)}}
    if isinstance(value, tuple | list):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [describe(item, leaf) for item in value]}
    if isinstance(value, Mapping):
        kind = "record" if is_dataclass(value) else "dict"
        return {kind: {str(key): describe(item, leaf) for key, item in value.items()}}
    if is_dataclass(value) and not isinstance(value, type):
        named = {field.name: getattr(value, field.name) for field in fields(value)}
        # torch takes fields without a value for no inputs.
        return {"named": {k: {"constant": None} if v is None else describe(v, leaf) for k, v in named.items()}}
    return leaf(value)


def _field_names(value: tuple[Any, ...]) -> tuple[str, ...]:
    """The names of the items of a NamedTuple, or of one of torch.return_types; none of a plain tuple."""
    names: tuple[str, ...] = getattr(value, "_fields", getattr(type(value), "__match_args__", ()))
    return names if len(names) == len(value) else ()


def positional(inputs: int, results: int) -> Signature:
    """The signature of a plain function of tensors: one result comes back bare, several as a tuple."""
    out: Tree = {"leaf": 0} if results == 1 else {"tuple": [{"leaf": i} for i in range(results)]}
    return {"args": {"tuple": [{"leaf": i} for i in range(inputs)]}, "kwargs": {"dict": {}}, "results": out}


def flatten_inputs(signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[Any]:
    """The tensors of a call, in the order of the program's inputs.

    Raises UserError when the call is not nested like the exported one, or changes a constant.
    """
    found: dict[int, Any] = {}
    _flatten(signature["args"], tuple(args), "args", found)
    _flatten(signature["kwargs"], dict(kwargs or {}), "kwargs", found)
    return [found[index] for index in sorted(found)]


def _flatten(tree: Tree, value: Any, where: str, found: dict[int, Any]) -> None:
    kind, content = next(iter(tree.items()))
    if kind in ("leaf", "number"):
        found[content] = value
    elif kind == "constant":
        if value is not content and value != content:
            raise UserError(f"{where} was {content!r} when the model was exported, now it is {value!r}: export it anew")
    elif kind in ("dict", "record"):
        if not isinstance(value, Mapping) or {str(key) for key in value} != set(content):
            raise UserError(f"{where} must be a dict with the keys {sorted(content)}, found {_outline(value)}")
        for key, item in value.items():
            _flatten(content[str(key)], item, f"{where}[{str(key)!r}]", found)
    else:
        if kind == "named" and is_dataclass(value) and all(hasattr(value, name) for name in content):
            value = [getattr(value, name) for name in content]
        if not isinstance(value, list | tuple) or len(value) != len(content):
            parts = f"named {', '.join(content)}" if kind == "named" else f"of {len(content)}"
            what = "an object with fields" if kind == "named" else f"a {kind}"
            raise UserError(f"{where} must be {what} {parts}, found {_outline(value)}")
        inside = list(content.values()) if kind == "named" else content
        for index, (inner, item) in enumerate(zip(inside, value, strict=True)):
            _flatten(inner, item, f"{where}[{index}]", found)


def _outline(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a dict with the keys {sorted(map(str, value))}"
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a value of type {type(value).__name__}"


def unflatten(tree: Tree, leaves: Sequence[Any]) -> Any:
    """The nested value of a tree, with `leaves[i]` for leaf i."""
    kind, content = next(iter(tree.items()))
    if kind == "leaf":
        return leaves[content]
    if kind == "number":
        return leaves[content].item()
    if kind == "constant":
        return content
    if kind in ("dict", "record", "named"):
        items = {key: unflatten(item, leaves) for key, item in content.items()}
        if kind == "named":
            return namedtuple("Results", items, rename=True)(*items.values())
        return items if kind == "dict" else Record(items)
    items = [unflatten(item, leaves) for item in content]
    return tuple(items) if kind == "tuple" else items
