"""Selections in one form, rows of one dimension that a mask of this dimension selects (selections.py):

x[mask], a mask of several dimensions    =>    flatten(x)[flatten(mask)], and so where it is written to
masked_select(x, mask)                   =>    the same, of both broadcast to one shape
masked_scatter(x, mask, y[mask])         =>    x[mask] = y[mask]
mse_loss(x[mask], y[mask])               =>    mse_loss(x[mask], y[mask], reduction="none").mean()
cross_entropy(x[mask], y[mask])          =>    of all rows, those that are left out of the class that is ignored

Places where a mask is true become selections before (places_of_masks.py).
"""

from __future__ import annotations

import operator
import sys
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true

from .places_of_masks import has_places, places_as_selections

aten = torch.ops.aten

PUTS = {aten.index_put.default, aten.index_put_.default}
_SCATTERS = {aten.masked_scatter.default: aten.index_put.default, aten.masked_scatter_.default: aten.index_put_.default}
# Losses of elements, and where their reduction stands among the arguments; in the one form they have none.
ELEMENTWISE_LOSSES = {
    aten.mse_loss.default: 2,
    aten.l1_loss.default: 2,
    aten.smooth_l1_loss.default: 2,
    aten.huber_loss.default: 2,
    aten.kl_div.default: 2,
    aten.binary_cross_entropy.default: 3,
    aten.binary_cross_entropy_with_logits.default: 4,
}
# What is computed with numbers, and the same of tensors.
NUMBERS: dict[Any, Any] = {
    operator.add: aten.add.Tensor,
    operator.sub: aten.sub.Tensor,
    operator.mul: aten.mul.Tensor,
    operator.truediv: aten.div.Tensor,
    torch.sym_max: aten.clamp_min.default,
    torch.sym_float: aten._to_copy.default,
}
_MEAN = 1  # torch's number of this reduction; 0 is none, 2 a sum


def in_one_form(graph: Graph) -> None:
    """Brings the selections of a graph, and losses of what they select, to the form that is named above."""
    places_as_selections(graph)
    _join_masks(graph)
    flat: dict[Node, Node] = {}  # masks of one dimension by those of several
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if node.target is aten.masked_select.default:
            node = _as_index(node)
        elif node.target in _SCATTERS and is_selected(node.args[2]):
            node.target, node.args = _SCATTERS[node.target], (node.args[0], [node.args[1]], node.args[2])
        if _takes_all(node):
            _flatten(node)
        elif node.target is aten.index.Tensor and (mask := mask_of(node)) is not None:
            _select_rows(node, mask, flat)
        elif node.target in PUTS and (mask := mask_of(node)) is not None and is_selected(node.args[2]):
            _write_rows(node, mask, flat)
        elif node.target in ELEMENTWISE_LOSSES and is_selected(node.args[0]):
            _reduce_behind(node)


def _join_masks(graph: Graph) -> None:
    """Makes masks that are computed alike one, as those of `x[n == 3] = y[n == 3]`, for rows that one mask selects are
    known to be as many. Nothing may change between them, and no mask in place."""
    known: dict[str, Node] = {}
    for node in list(graph.nodes):
        if not isinstance(node.target, torch._ops.OpOverload):
            continue
        if node.target._schema.is_mutable:
            known.clear()
            if node.args and node.args[0].meta["val"].dtype == torch.bool:
                return
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.dtype == torch.bool and node.all_input_nodes:
            first = known.setdefault(f"{node.target}{node.args}{node.kwargs}", node)
            if first is not node:
                node.replace_all_uses_with(first)


def has_selections(graph: Graph) -> bool:
    """Whether anything is selected by a mask, or by where it is true."""
    taking = {aten.index.Tensor: mask_of, aten.masked_select.default: lambda node: node.args[1]}
    return has_places(graph) or any(
        node.op == "call_function" and node.target in taking and taking[node.target](node) is not None
        for node in graph.nodes
    )


def mask_of(node: Node) -> Node | None:
    """The mask that is all that selects for an `index` or an `index_put`, where one is."""
    given = [index for index in node.args[1] if index is not None]
    return given[0] if len(given) == 1 and given[0].meta["val"].dtype == torch.bool else None


def is_selected(node: Any) -> bool:
    """Whether an operand, a tensor, several or a size, depends on how many rows a mask selects."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    if isinstance(value, list | tuple):
        return any(selected_sizes(one) for one in value)
    return bool(selected_sizes(value)) or _is_unbacked(value)


def is_count(operand: Any) -> bool:
    """Whether an operand is a number, in the graph, that depends on how many rows a mask selects."""
    return isinstance(operand, Node) and _is_unbacked(operand.meta.get("val"))


def selected_sizes(tensor: Any) -> dict[int, str]:
    """The dimensions of a tensor, or of a node's, that hold selected rows, and their sizes."""
    value = tensor.meta.get("val") if isinstance(tensor, Node) else tensor
    if not isinstance(value, torch.Tensor):
        return {}
    return {dim: str(size.node.expr) for dim, size in enumerate(value.shape) if _is_unbacked(size)}


def _is_unbacked(value: Any) -> bool:
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool) and bool(free_unbacked_symbols(value))


def _call(target: Any, like: Node, *args: Any) -> Node:
    """A new operator, behind the last one, with what torch makes of its operands as its value."""
    node = like.graph.call_function(target, args)
    values = torch.fx.node.map_arg(args, lambda one: one.meta["val"])
    node.meta = {key: value for key, value in like.meta.items() if key != "val"} | {"val": target(*values)}
    return node


def _as_index(node: Node) -> Node:
    operands = list(node.args)
    shape = torch.broadcast_shapes(*(one.meta["val"].shape for one in operands))
    with node.graph.inserting_before(node):
        for place, operand in enumerate(operands):
            if operand.meta["val"].shape != shape:
                other = operands[1 - place]
                if other.meta["val"].shape != shape:
                    return node
                operands[place] = _call(aten.expand_as.default, node, operand, other)
    node.target, node.args = aten.index.Tensor, (operands[0], [operands[1]])
    return node


def _rows(node: Node, x: Node, mask: Node, flat: dict[Node, Node]) -> tuple[Node, list[Node | None]]:
    """`x` with the dimensions that the mask has as one, and the index of this one."""
    dim, count = node.args[1].index(mask), mask.meta["val"].dim()
    if mask not in flat:
        with mask.graph.inserting_after(mask):
            flat[mask] = _call(aten.flatten.using_ints, mask, mask)
    with node.graph.inserting_before(node):
        rows = _call(aten.flatten.using_ints, node, x, dim, dim + count - 1)
    return rows, [None] * dim + [flat[mask]]


def _select_rows(node: Node, mask: Node, flat: dict[Node, Node]) -> None:
    if mask.meta["val"].dim() > 1 and not _is_changed(mask):
        node.args = _rows(node, node.args[0], mask, flat)


def _write_rows(node: Node, mask: Node, flat: dict[Node, Node]) -> None:
    if mask.meta["val"].dim() < 2 or _is_changed(mask):
        return
    into = node.args[0]
    rows, where = _rows(node, into, mask, flat)
    with node.graph.inserting_before(node):
        put = _call(aten.index_put.default, node, rows, where, *node.args[2:])
        whole = _call(aten.view_as.default, node, put, into)
        if node.target._schema.is_mutable:
            whole = _call(aten.copy_.default, node, into, whole)
    node.replace_all_uses_with(whole)
    node.graph.erase_node(node)


def _is_changed(mask: Node) -> bool:
    """Whether a mask is another one later, which what is made of it once would not see."""
    return any(
        isinstance(user.target, torch._ops.OpOverload) and user.target._schema.is_mutable and user.args[0] is mask
        for user in mask.users
    )


def _reduce_behind(node: Node) -> None:
    """A loss of all elements as one of each, and the mean or the sum of these."""
    place = ELEMENTWISE_LOSSES[node.target]
    reduction = node.kwargs.get("reduction", node.args[place] if len(node.args) > place else _MEAN)
    if reduction == 0:
        return
    none = (None,) * max(0, place - len(node.args))
    node.kwargs = {key: value for key, value in node.kwargs.items() if key != "reduction"}
    node.args = (*node.args[:place], *none, 0, *node.args[place + 1 :])
    one, like = node.meta["val"], node.args[0].meta["val"]
    with node.graph.inserting_after(node):
        whole = node.graph.call_function(aten.mean.default if reduction == _MEAN else aten.sum.default, (node,))
    whole.meta = node.meta | {"val": one}
    node.meta["val"] = like
    node.replace_all_uses_with(whole, delete_user_cb=lambda user: user is not whole)


def _takes_all(node: Node) -> bool:
    """Whether a mask of a tensor's first dimensions selects all, for what was selected is as many."""
    if node.target is not aten.index.Tensor or (found := mask_of(node)) is None or node.args[1][0] is None:
        return False
    mask, value = found.meta["val"], node.args[0].meta["val"]
    if mask.shape != value.shape[: mask.dim()]:
        return False
    return bool(statically_known_true(node.meta["val"].shape[0] == mask.numel()))


def _flatten(node: Node) -> None:
    """Puts all rows in the place of a selection of all."""
    last = node.args[1][0].meta["val"].dim() - 1
    with node.graph.inserting_before(node):
        result = _call(aten.flatten.using_ints, node, node.args[0], 0, last)
    result.meta |= node.meta
    node.replace_all_uses_with(result)
    node.graph.erase_node(node)


def is_whole(node: Node) -> bool:
    """Whether an operator takes a slice of all that there is."""
    if node.target is not aten.slice.Tensor:
        return False
    start, end, step = (*node.args[2:], *(None, None, None)[len(node.args) - 2 :])
    return start in (None, 0) and end in (None, sys.maxsize) and step in (None, 1)


def mask_of_rows(node: Node) -> Node | None:
    """The mask by which an operator selects rows, where it does."""
    if node.op != "call_function" or node.target is not aten.index.Tensor:
        return None
    mask = mask_of(node)
    return mask if mask is not None and mask.meta["val"].dim() == 1 else None
