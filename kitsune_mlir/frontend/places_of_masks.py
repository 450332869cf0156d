"""Places where a mask is true, `torch.where(mask)` or `mask.nonzero()`, as selections by the mask (selections.py):

x[torch.where(mask)], x[mask.nonzero(as_tuple=True)] = y    =>    x[mask], x[mask] = y
x.index_select(0, mask.nonzero().squeeze(1))                =>    x[mask]
torch.where(mask)[0] anywhere else                          =>    arange(rows)[mask]

So is one of the places of a mask of several dimensions, a selection of the numbers along that dimension.
"""

from __future__ import annotations

import operator

import torch
from torch.fx import Graph, Node

from .shapes import line_along

aten = torch.ops.aten

_TUPLES = {aten.where.default, aten.nonzero_numpy.default}
_INDEXED = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}
_ONE_DIMENSION = {
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.flatten.using_ints,
    aten.reshape.default,
    aten.view.default,
}

_OF_RESULTS = {"val", "unbacked_bindings"}  # what the notes of a node say of its results


def has_places(graph: Graph) -> bool:
    return any(node.target in (*_TUPLES, aten.nonzero.default) for node in graph.nodes)


def places_as_selections(graph: Graph) -> None:
    """Leaves what a graph does otherwise with such places as it is."""
    for node in list(graph.nodes):
        if node.target in (*_TUPLES, aten.nonzero.default) and not _is_written(node.args[0]):
            _replace(node, _places(node))
    graph.eliminate_dead_code()


def _is_written(mask: Node) -> bool:
    """Whether a mask is changed in place, so that later it is another one."""
    return any(
        isinstance(user.target, torch._ops.OpOverload) and user.target._schema.is_mutable and user.args[0] is mask
        for user in mask.users
    )


def _places(node: Node) -> dict[Node, int]:
    """The vectors of places that a graph takes of a result, and their dimensions of the mask."""
    if node.target in _TUPLES:
        return {user: user.args[1] for user in node.users if user.target is operator.getitem}
    found: dict[Node, int] = {}
    for user in node.users:
        if user.target is aten.select.int and user.args[1] in (1, -1):
            found[user] = user.args[2] % node.meta["val"].shape[1]
        elif user.target is aten.unbind.int and user.args[1:] in ((1,), (-1,)):
            found |= {part: part.args[1] for part in user.users}
        elif user.target in _ONE_DIMENSION and node.args[0].meta["val"].dim() == user.meta["val"].dim() == 1:
            found[user] = 0
    return found


def _replace(node: Node, places: dict[Node, int]) -> None:
    graph, mask = node.graph, node.args[0]
    with graph.inserting_before(node):
        if mask.meta["val"].dtype != torch.bool:
            mask = _made(node, graph.call_function(aten.ne.Scalar, (mask, 0)), mask.meta["val"] != 0)
    for user in {user: None for place in places for user in place.users}:
        _index_by(user, mask, places)

    def selected(dim: int, value: torch.Tensor) -> Node:
        with graph.inserting_before(node):
            return _made(node, graph.call_function(aten.index.Tensor, (_numbers(node, mask, dim), [mask])), value)

    for place, dim in places.items():
        place.replace_all_uses_with(selected(dim, place.meta["val"]))
    for user in list(node.users):
        if user.target is aten.sym_size.int and user.args[1] == 0:
            user.args = (selected(0, node.meta["val"].select(1, 0)), 0)


def _index_by(user: Node, mask: Node, places: dict[Node, int]) -> None:
    """Has an operator that takes or writes the elements at all places do so by the mask."""
    if user.target is aten.index_select.default and mask.meta["val"].dim() == 1:
        user.target, user.args = aten.index.Tensor, (user.args[0], [None] * user.args[1] + [mask])
        return
    if user.target not in _INDEXED:
        return
    index = list(user.args[1])
    given = [i for i, one in enumerate(index) if one is not None]
    dims = [places.get(index[i]) for i in given]
    if dims == list(range(mask.meta["val"].dim())) and given[-1] - given[0] == len(given) - 1:
        user.args = (user.args[0], [*index[: given[0]], mask, *index[given[-1] + 1 :]], *user.args[2:])


def _numbers(node: Node, mask: Node, dim: int) -> Node:
    """The number along a dimension of each of a mask's elements."""
    graph, value = node.graph, mask.meta["val"]
    size = value.shape[dim]
    if not isinstance(size, int):
        size = _made(node, graph.call_function(aten.sym_size.int, (mask, dim)), size)
    with value.fake_mode:
        numbers = torch.arange(value.shape[dim], device=value.device)
    made = _made(node, graph.call_function(aten.arange.default, (size,), {"device": value.device}), numbers)
    if value.dim() == 1:
        return made
    shape = line_along(dim, value.dim())
    made = _made(node, graph.call_function(aten.view.default, (made, shape)), numbers.view(shape))
    expanded = numbers.view(shape).expand_as(value)
    return _made(node, graph.call_function(aten.expand_as.default, (made, mask)), expanded)


def _made(like: Node, node: Node, value: object) -> Node:
    """A new node at the line of another one, with its value."""
    node.meta = {key: item for key, item in like.meta.items() if key not in _OF_RESULTS} | {"val": value}
    return node
