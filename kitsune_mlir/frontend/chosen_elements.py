"""One element of each row that is written into a tensor of one number, as a loss's classes are, or what a gather's
gradient is: elements are compared with the place, so that what reads the rows makes them where it reads them, and
nothing is filled.

    %z = full([R, C], 0)                                  %at = eq(arange(C), %index)
    %y = scatter.value(%z, 1, %index, -1)   [R, 1]        %y = where(%at, -1, 0)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from .graph_values import call
from .shapes import line_along

aten = torch.ops.aten

_FILLED = {aten.full.default: 1, aten.full_like.default: 1, aten.new_full.default: 2, aten.scalar_tensor.default: 0}
_ZEROS = (aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default)
_SAME = (aten.expand.default, aten.view.default, aten.alias.default, aten.clone.default)
_WRITES = (aten.scatter.value, aten.scatter.src, aten.scatter_add.default)


def choose_elements(graph: Graph) -> None:
    """Changes a functional graph of aten operators, whose nodes carry fake values, in place."""
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in _WRITES and isinstance(node.args[0], Node):
            _choose(graph, node)
    graph.eliminate_dead_code()


def _choose(graph: Graph, node: Node) -> None:
    filled, dim, index, source = node.args
    number, value = number_of(filled), node.meta["val"]
    if number is None or not value.dim():
        return
    dim %= value.dim()
    places = index.meta["val"]
    wanted = [1 if d == dim else size for d, size in enumerate(value.shape)]
    if not isinstance(value.shape[dim], int) or not _alike(places.shape, wanted):
        return
    given = source.meta["val"] if isinstance(source, Node) else None
    if given is not None and not _alike([1 if d == dim else size for d, size in enumerate(given.shape)], wanted):
        return
    with graph.inserting_before(node):
        made = {"dtype": value.dtype, "device": value.device}
        kind = {"dtype": places.dtype, "device": value.device}
        numbers = call(graph, aten.arange.start_step, (0, value.shape[dim]), node, **kind)
        along = call(graph, aten.view.default, (numbers, line_along(dim, value.dim())), node)
        here = call(graph, aten.eq.Tensor, (along, index), node)
        beside = call(graph, aten.scalar_tensor.default, (number,), node, **made)
        if given is None:
            source = call(graph, aten.scalar_tensor.default, (source,), node, **made)
        elif given.shape[dim] != 1:
            source = call(graph, aten.slice.Tensor, (source, dim, 0, 1), node)
        if node.target is aten.scatter_add.default and number:
            source = call(graph, aten.add.Scalar, (source, number), node)
        found = call(graph, aten.where.self, (here, source, beside), node)
    node.replace_all_uses_with(found)


def _alike(sizes: Sequence[Any], wanted: Sequence[Any]) -> bool:
    """Whether sizes are known to be the same; open ones may be."""
    return len(sizes) == len(wanted) and all(a is b or statically_known_true(a == b) for a, b in zip(sizes, wanted))


def number_of(node: Node) -> Any:
    """The number that a tensor has everywhere, or None."""
    while node.op == "call_function" and node.target in _SAME:
        node = node.args[0]
    if node.op != "call_function":
        return None
    if node.target in _ZEROS:
        return 0
    place = _FILLED.get(node.target)
    number = None if place is None or len(node.args) <= place else node.args[place]
    return number if isinstance(number, int | float) else None
