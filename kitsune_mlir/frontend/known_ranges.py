"""Sorts of numbers of which the graph says that they are few different ones, such as the experts that rows of a mixture
choose: a counting sort, where comparing all with all (sorts.py) would take longer.

An element's place is how many elements have lesser numbers, and how many equal ones come before it. Elements are cut
into pieces: how many of each number are in all pieces before one is a running sum over pieces, and how many equal ones
come before an element in its own piece is a comparison of all elements of the piece.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node

from .graph_values import is_written

aten = torch.ops.aten

_PIECE = 128  # elements
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
    if value.dim() != 1 or not isinstance(value.shape[0], int) or value.is_floating_point() or descending:
        return False
    count = _count_of(node)
    return value.shape[0] >= _LEAST and count is not None and count <= _MOST


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
    """Puts a counting sort in a sort's place."""
    numbers = node.args[0]

    def call(target: Any, *args: Any, **given: Any) -> Node:
        made = node.graph.call_function(target, args, given)
        made.meta["stack_trace"] = node.stack_trace
        return made

    size, kinds = numbers.meta["val"].shape[0], _count_of(node)
    whole = {"dtype": torch.int64, "device": numbers.meta["val"].device}
    pieces = -(-size // _PIECE)
    with node.graph.inserting_before(node):
        padded = call(aten.constant_pad_nd.default, numbers, [0, pieces * _PIECE - size], kinds)
        cut = call(aten.view.default, padded, [pieces, _PIECE])
        own, other = (call(aten.unsqueeze.default, cut, dim) for dim in (2, 1))
        found = call(aten.sum.dim_IntList, call(aten.eq.Tensor, own, call(aten.arange.default, kinds, **whole)), [1])
        upto = call(aten.cumsum.default, found, 0)
        ends = call(aten.cumsum.default, call(aten.select.int, upto, 0, pieces - 1), 0)
        before = call(aten.sub.Tensor, upto, found)  # in pieces before
        lesser = call(aten.sub.Tensor, ends, call(aten.select.int, upto, 0, pieces - 1))
        at = call(aten.arange.default, _PIECE, **whole)
        earlier = call(aten.lt.Tensor, at, call(aten.unsqueeze.default, at, 1))
        equal = call(aten.bitwise_and.Tensor, call(aten.eq.Tensor, own, other), earlier)
        inside = call(aten.clamp.default, cut, 0, kinds - 1)
        first = call(aten.gather.default, call(aten.add.Tensor, before, lesser), 1, inside)
        place = call(aten.add.Tensor, first, call(aten.sum.dim_IntList, equal, [2]))
        place = call(aten.slice.Tensor, call(aten.view.default, place, [-1]), 0, 0, size)
        rows = call(aten.arange.default, size, **whole)
        order = call(aten.scatter.src, call(aten.zeros_like.default, rows), 0, place, rows)
        values = call(aten.index.Tensor, numbers, [order])
    for use in list(node.users):
        made = (values, order)[use.args[1]]
        made.meta["val"] = use.meta["val"]
        use.replace_all_uses_with(made)
        node.graph.erase_node(use)
    node.graph.erase_node(node)
