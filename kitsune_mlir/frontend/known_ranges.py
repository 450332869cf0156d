"""Sorts of numbers of which the graph says that they are few different ones, such as the experts that rows of a mixture
choose: one sort by them (kitsune.order), where other numbers have several digits (digit_sorts.py).
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node

from .graph_values import is_written
from .own_operators import ORDER
from .shapes import in_example

aten, prims = torch.ops.aten, torch.ops.prims

_LEAST, _MOST = 4096, 1024  # elements that are sorted so, and different numbers
_SORTS = (aten.sort.default, aten.sort.stable)
_SAME = {  # what gives the numbers of its first operand in another shape or type
    *(aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.flatten.using_ints),
    *(aten.squeeze.default, aten.squeeze.dim, aten.unsqueeze.default, aten.transpose.int, aten.permute.default),
    *(aten.clone.default, aten.contiguous.default, aten.expand.default, aten.slice.Tensor, aten.select.int),
    *(aten.to.dtype, aten._to_copy.default, aten.detach.default, aten.alias.default),
}
_PLACES = {aten.topk.default: 2, aten.sort.default: 1, aten.sort.stable: 1}  # and where their dimension is given


def is_counted(node: Node) -> bool:
    """Whether it is a sort that is done so."""
    if node.op != "call_function" or node.target not in _SORTS or not isinstance(node.args[0], Node):
        return False
    value, given = node.args[0].meta["val"], {**node.kwargs}
    descending = given.get("descending", node.args[2] if len(node.args) > 2 else False)
    if value.dim() != 1 or value.is_floating_point() or descending:
        return False
    count = _count_of(node)
    return in_example(value.shape[0]) >= _LEAST and count is not None and count <= _MOST


def _count_of(sort: Node) -> int | None:
    """A number that all elements that are sorted are less than, none of them being negative; None where that is not
    known."""
    node = sort.args[0]
    while node.op == "call_function" and node.target in _SAME:
        node = node.args[0]
    if node.op != "call_function" or node.target is not operator.getitem or node.args[1] != 1:
        return None
    source = node.args[0]
    if source.target not in _PLACES:
        return None
    if is_written([node], source, sort):
        return None
    at = _PLACES[source.target]
    dim = source.kwargs.get("dim", source.args[at] if len(source.args) > at else -1)
    size = source.args[0].meta["val"].shape[dim] if source.args[0].meta["val"].dim() else 1
    return size if isinstance(size, int) else None


def count(node: Node) -> None:
    """Puts a sort of numbers in a sort's place."""
    numbers = node.args[0]

    def call(target: Any, *args: Any) -> Node:
        made = node.graph.call_function(target, args)
        made.meta["stack_trace"] = node.stack_trace
        return made

    with node.graph.inserting_before(node):
        keys = call(prims.convert_element_type.default, numbers, torch.int32)
        order = call(prims.convert_element_type.default, call(ORDER, keys, None, _count_of(node)), torch.int64)
        values = call(aten.index.Tensor, numbers, [order])
    for use in list(node.users):
        made = (values, order)[use.args[1]]
        made.meta["val"] = use.meta["val"]
        use.replace_all_uses_with(made)
        node.graph.erase_node(use)
    node.graph.erase_node(node)
