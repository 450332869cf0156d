"""Sums of tensors of which each is zero outside of a slice, as the gradient of a tensor that was taken apart is.

    %a = aten.slice_scatter(%zeros, %x, 0, 0, 1)
    %b = aten.slice_scatter(%zeros, %y, 0, 1, 2)         =>     %s = aten.cat([%x, %y], 0)
    %s = aten.add(%a, %b)

So are queries, keys and values that a layer makes together. Each of them would be written with the zeros around it, and
read again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node

from .chosen_elements import number_of
from .graph_values import bounds_of, call
from .shapes import are_known

aten = torch.ops.aten


@dataclass(frozen=True)
class _Slice:
    """A tensor that is zero but from `start` to `end` along a dimension, where it is `source`."""

    node: Node
    source: Node
    dim: int
    start: int
    end: int


def join_slices(graph: Graph) -> None:
    """Puts concatenations in the place of such sums, in place."""
    for node in reversed(list(graph.nodes)):
        if _is_sum(node) and not _is_inner(node):
            _join(graph, node)
    graph.eliminate_dead_code()


def _join(graph: Graph, total: Node) -> None:
    leaves = _leaves(total)
    found: dict[int, list[_Slice]] = {}
    for leaf in leaves:
        if (one := _slice_of(leaf, total)) is not None:
            found.setdefault(one.dim, []).append(one)
    for slices in found.values():
        slices = sorted(slices, key=lambda one: one.start)
        if len(slices) < 2 or any(a.end > b.start for a, b in zip(slices, slices[1:])):
            continue
        taken = [one.node for one in slices]
        with graph.inserting_before(total):
            joined = _concatenated(graph, slices, total)
            for leaf in (leaf for leaf in leaves if leaf not in taken):
                joined = call(graph, aten.add.Tensor, (joined, leaf), total)
        total.replace_all_uses_with(joined)
        if len(taken) == len(leaves):
            _move_behind_views(graph, joined)
        return


def _move_behind_views(graph: Graph, joined: Node) -> None:
    """Has what alone reads a concatenation, as views do, read its parts: so these are put where they are wanted."""
    while len(joined.users) == 1:
        view, (parts, dim) = next(iter(joined.users)), joined.args
        behind = _behind(view, joined.meta["val"].shape, dim)
        if behind is None:
            return
        make, dim = behind
        with graph.inserting_before(view):
            moved = call(graph, aten.cat.default, ([make(graph, part) for part in parts], dim), view)
        view.replace_all_uses_with(moved)
        joined = moved


def _behind(view: Node, shape: Sequence[Any], dim: int) -> tuple[Callable[[Graph, Node], Node], int] | None:
    """What makes of a part of a tensor of this shape, cut along a dimension, the part of a view of it; and along which
    dimension that is then cut. None where it is no such part."""
    if view.target == aten.permute.default:
        order = [d % len(shape) for d in view.args[1]]
        return lambda graph, part: call(graph, aten.permute.default, (part, order), view), order.index(dim)
    if view.target == aten.clone.default:
        return lambda graph, part: part, dim
    if view.target not in (aten.view.default, aten.reshape.default, aten._unsafe_view.default):
        return None
    wanted = list(view.meta["val"].shape)
    if not are_known((*shape, *wanted)):
        return None
    outer, count, inner = math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :])
    found = [d for d in range(len(wanted)) if math.prod(wanted[:d]) == outer and wanted[d] % count == 0]
    at = next((d for d in found if math.prod(wanted[d + 1 :]) * (wanted[d] // count) == inner), None)
    if at is None:
        return None

    def make(graph: Graph, part: Node) -> Node:
        own = wanted[at] // count * part.meta["val"].shape[dim]
        return call(graph, aten.reshape.default, (part, [*wanted[:at], own, *wanted[at + 1 :]]), view)

    return make, at


def _leaves(total: Node) -> list[Node]:
    """What a sum adds up, through sums that nothing else reads."""
    found: list[Node] = []
    for value in total.args[:2]:
        assert isinstance(value, Node)
        found += _leaves(value) if _is_sum(value) and _is_inner(value) else [value]
    return found


def _is_sum(node: Node) -> bool:
    """Whether it adds two tensors of its own shape and type."""
    if node.op != "call_function" or node.target != aten.add.Tensor or node.kwargs or len(node.args) != 2:
        return False
    own = _kind(node)
    return own is not None and all(isinstance(value, Node) and _kind(value) == own for value in node.args)


def _is_inner(node: Node) -> bool:
    """Whether a sum alone reads it."""
    return len(node.users) == 1 and all(map(_is_sum, node.users))


def _kind(node: Node) -> tuple[Any, ...] | None:
    value = node.meta.get("val")
    return (tuple(value.shape), value.dtype) if isinstance(value, torch.Tensor) else None


def _slice_of(node: Node, total: Node) -> _Slice | None:
    if node.op != "call_function" or node.target != aten.slice_scatter.default or len(node.users) != 1:
        return None
    whole, source, dim, start, end, step = (*node.args, *(0, None, None, 1)[len(node.args) - 2 :])
    dim, value = node.kwargs.get("dim", dim), total.meta["val"]
    bounds = bounds_of(start, end, value.shape[dim])
    if node.kwargs.keys() - {"dim"} or step != 1 or bounds is None or bounds[0] == bounds[1] or number_of(whole) != 0:
        return None
    if source.meta["val"].dtype != value.dtype:
        return None
    return _Slice(node, source, dim % value.dim(), *bounds)


def _concatenated(graph: Graph, slices: Sequence[_Slice], total: Node) -> Node:
    """The slices side by side, with zeros where there are none."""
    parts, end, dim = list[Node](), 0, slices[0].dim
    size = total.meta["val"].shape[dim]
    for one in slices:
        if end < one.start:
            parts.append(_zeros(graph, one, one.start - end))
        parts.append(one.source)
        end = one.end
    if end < size:
        parts.append(_zeros(graph, slices[-1], size - end))
    return call(graph, aten.cat.default, (parts, dim), total)


def _zeros(graph: Graph, like: _Slice, count: int) -> Node:
    value = like.source.meta["val"]
    shape = [count if d == like.dim else size for d, size in enumerate(value.shape)]
    return call(graph, aten.full.default, (shape, 0.0), like.node, dtype=value.dtype, device=value.device)
