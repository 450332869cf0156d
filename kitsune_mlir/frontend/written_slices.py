"""A tensor that is written slice by slice, all of it, as loops over steps write their results, is a concatenation.

    %1 = slice_scatter(%0, %a, 1, 0, 1)                  =>      %2 = cat([%a, %b], 1)      of [8, 2, 64] numbers
    %2 = slice_scatter(%1, %b, 1, 1, 2)

Operators that compute parts of a concatenation become one kernel; between writes each part would be one of its own.
What is written whole, as `x[:, 0] = y` writes all rows, of which there may be any number, is what was written:

    %1 = slice_scatter(slice(%0, 0, 0, 9223372036854775807), %a, 1, 0, 1)
    %2 = slice_scatter(%0, %1, 0, 0, 9223372036854775807)           =>      %2 = slice_scatter(%0, %a, 1, 0, 1)
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.fx import Graph, Node

from .shapes import are_known

aten = torch.ops.aten


def join_slices(graph: Graph) -> None:
    """Puts `cat` in the place of each chain of writes that leaves nothing of what it began with."""
    for last in graph.find_nodes(op="call_function", target=aten.slice_scatter.default):
        if _is_whole(last, *last.args[2:]):
            last.replace_all_uses_with(last.args[1])
        elif _is_slice(before := last.args[0]) and _is_whole(before, *before.args[1:]):
            last.replace_input_with(before, before.args[0])
    graph.eliminate_dead_code()  # whose reads of what was written between would stay
    for last in reversed(graph.find_nodes(op="call_function", target=aten.slice_scatter.default)):
        own = _written(last)
        if own is None or _is_written_again(last, own):
            continue
        parts = _parts(last, own)
        if parts is None:
            continue
        with graph.inserting_before(last):
            joined = graph.call_function(aten.cat.default, (parts, own[0]))
        joined.meta = dict(last.meta)
        last.replace_all_uses_with(joined)
    graph.eliminate_dead_code()


def _is_slice(node: Node) -> bool:
    return node.op == "call_function" and node.target is aten.slice.Tensor


def _is_whole(node: Node, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> bool:
    """Whether a slice is all there is, along a dimension of any size."""
    size = node.args[0].meta["val"].shape[dim]
    to_end = end is None or isinstance(end, int) and end >= (size if isinstance(size, int) else sys.maxsize)
    return start in (None, 0) and to_end and step == 1


def _written(node: Node) -> tuple[int, int, int] | None:
    """The dimension and the range of it that a node writes, or None."""
    if node.op != "call_function" or node.target is not aten.slice_scatter.default:
        return None
    shape = node.meta["val"].shape
    dim, start, end, step = (*node.args[2:], *(0, None, None, 1)[len(node.args) - 2 :])
    dim %= len(shape)
    start, end = start or 0, shape[dim] if end is None else end
    if step != 1 or not are_known((shape[dim], start, end)):
        return None
    first, last = (min(max(at + shape[dim] * (at < 0), 0), shape[dim]) for at in (start, end))
    return (dim, first, last) if first < last else None


def _is_written_again(node: Node, own: tuple[int, int, int]) -> bool:
    """Whether the chain goes on behind a write."""
    users = list(node.users)
    behind = _written(users[0]) if len(users) == 1 and users[0].args[0] is node else None
    return behind is not None and behind[0] == own[0]


def _parts(last: Node, own: tuple[int, int, int]) -> list[Node] | None:
    """What the chain that ends with a write has written, in order, if that is everything, each part once."""
    found: dict[int, tuple[int, Node]] = {}
    node: Node | None = last
    while node is not None and (range_ := _written(node)) is not None and range_[0] == own[0]:
        dim, first, end = range_
        if first in found or (node is not last and len(node.users) > 1):
            return None
        found[first] = end, node.args[1]
        node = node.args[0]
    at, parts = 0, []
    while at in found:
        at, part = found[at]
        parts.append(part)
    whole = at == last.meta["val"].shape[own[0]] and len(parts) == len(found) > 1
    return parts if whole else None
