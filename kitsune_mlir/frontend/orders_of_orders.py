"""Sorts of what a sort gave as places, which are a permutation:

    argsort(argsort(%x, 0), 0)        =>  scatter(zeros, 0, argsort(%x, 0), [0, 1, ...])
    sort(getitem(sort(%x, 0), 1), 0)  =>  values: [0, 1, ...]; places: scatter(zeros, 0, getitem(sort(%x, 0), 1), ...)

So ranks are found as people write them, `x.argsort(0).argsort(0)`.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node

from .graph_values import is_written
from .shapes import line_along
from .sorted_starts import argument

aten = torch.ops.aten

_SORTS = (aten.sort.default, aten.sort.stable)
_ORDERS = (aten.argsort.default, aten.argsort.stable)
_BY_PLACE = (aten.sort.default, aten.argsort.default)  # which are given dimension and direction so


def is_of_order(node: Node) -> bool:
    """Whether a sort is of the places that another gave along the same dimension."""
    if node.op != "call_function" or node.target not in _SORTS + _ORDERS or not isinstance(node.args[0], Node):
        return False
    order = sort = node.args[0]
    if order.target is operator.getitem and order.args[1] == 1 and order.args[0].target in _SORTS:
        sort = order.args[0]
    elif order.target not in _ORDERS:
        return False
    if not order.meta["val"].dim() or _dim(node) != _dim(sort) or is_written([order], sort, node):
        return False
    return not argument(node, "descending", 2 if node.target in _BY_PLACE else None, False)


def invert(node: Node) -> None:
    """Puts the permutation's inverse in the place of such a sort."""
    order, dim = node.args[0], _dim(node)
    value = order.meta["val"]

    def call(target: Any, *args: Any, **given: Any) -> Node:
        made = node.graph.call_function(target, args, given)
        made.meta["stack_trace"] = node.stack_trace
        return made

    with node.graph.inserting_before(node):
        size = value.shape[dim]
        if not isinstance(size, int):
            size = call(aten.sym_size.int, order, dim)
            size.meta["val"] = value.shape[dim]
        numbers = call(aten.arange.default, size, dtype=torch.int64, device=value.device)
        numbers = call(aten.view.default, numbers, line_along(dim, value.dim()))
        numbers = call(aten.clone.default, call(aten.expand_as.default, numbers, order))
        places = call(aten.scatter.src, call(aten.zeros_like.default, order), dim, order, numbers)
    if node.target in _ORDERS:
        places.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(places)
    for use in list(node.users):
        made = (numbers, places)[use.args[1]]
        made.meta["val"] = use.meta["val"]
        use.replace_all_uses_with(made)
        node.graph.erase_node(use)
    node.graph.erase_node(node)


def _dim(sort: Node) -> int:
    value = sort.args[0].meta["val"]
    return argument(sort, "dim", 1 if sort.target in _BY_PLACE else None, -1) % value.dim()
