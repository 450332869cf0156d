"""Softmaxes over scores and one column more, which is left out of the result: attention sinks.

    softmax(cat([%scores, %sink], -1), -1)[..., :-1]
  =>
    %largest = maximum(amax(%scores, -1), %sink)
    %weights = exp(%scores - %largest)
    %weights / (sum(%weights, -1) + exp(-(%largest - %sink)))

Nothing is concatenated, and rows are as long as those that are multiplied with such weights, so that these are computed
in the kernel of that product. What models take off before, the largest of the concatenation, is left out. What is
changed in place before the softmax stays as it is.

Source: Xiao et al., Efficient Streaming Language Models with Attention Sinks (arXiv 2309.17453); gpt-oss learns them.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from .graph_values import is_written
from .working import working

aten = torch.ops.aten

_CASTS = (aten.to.dtype, aten._to_copy.default)
_SOFTMAXES = (aten.softmax.int, aten._softmax.default)


def parts(node: Node) -> tuple[Node, Node] | None:
    """The scores and the column, of such a softmax; None for any other node."""
    if node.target not in _SOFTMAXES or not _is_last(node, node.args[1]) or not node.meta["val"].is_floating_point():
        return None
    whole = _shifted(_before_cast(node.args[0]))
    if whole.target is not aten.cat.default or len(whole.args) < 2 or not _is_last(whole, whole.args[1]):
        return None
    tensors = whole.args[0]
    if len(tensors) != 2 or any(tensor.meta["val"].dim() != node.meta["val"].dim() for tensor in tensors):
        return None
    for scores, sink, first in ((*tensors, 0), (*reversed(tensors), 1)):
        is_column = statically_known_true(_columns(sink) == 1)
        if is_column and all(_is_without(user, first, _columns(scores)) for user in _readers(_rounded(node))):
            return None if is_written((scores, sink, whole, node.args[0]), whole, node) else (scores, sink)
    return None


def weigh(node: Node, scores: Node, sink: Node) -> None:
    """Puts the weights in the place of what is taken of such a softmax."""

    def call(target: Any, *args: Any) -> Node:
        made = node.graph.call_function(target, args)
        made.meta["stack_trace"] = node.stack_trace
        return made

    with node.graph.inserting_before(node):
        wide = working(node.meta["val"]).dtype
        scores, sink = (call(aten.to.dtype, value, wide) for value in (scores, sink))
        largest = call(aten.maximum.default, call(aten.amax.default, scores, [-1], True), sink)
        weights = call(aten.exp.default, call(aten.sub.Tensor, scores, largest))
        own = call(aten.exp.default, call(aten.neg.default, call(aten.sub.Tensor, largest, sink)))
        total = call(aten.add.Tensor, call(aten.sum.dim_IntList, weights, [-1], True), own)
        shares = call(aten.to.dtype, call(aten.div.Tensor, weights, total), node.meta["val"].dtype)
        whole = _rounded(node)
        if whole is not node:
            shares = call(aten.to.dtype, shares, whole.meta["val"].dtype)
    for user in _readers(whole):
        user.replace_all_uses_with(shares)
        node.graph.erase_node(user)
    for old in dict.fromkeys((whole, node)):
        for check in list(old.users):
            node.graph.erase_node(check)
        node.graph.erase_node(old)


def _rounded(node: Node) -> Node:
    """A softmax, or what alone reads it and has its numbers in another type."""
    users = _readers(node)
    return users[0] if len(users) == 1 and users[0].target in _CASTS and len(users[0].args) <= 2 else node


def _readers(node: Node) -> list[Node]:
    """What reads a value, but for what checks its type when the model is traced."""
    return [user for user in node.users if user.target is not aten._assert_tensor_metadata.default]


def _before_cast(node: Node) -> Node:
    """What a softmax of more exact numbers, which a model makes of less exact ones before, is taken of: the weights are
    computed so in any case."""
    if node.target not in _CASTS or len(node.args) > 2 or not isinstance(node.args[0], Node):
        return node
    before, kind = node.args[0].meta["val"], node.meta["val"].dtype
    is_wider = before.is_floating_point() and torch.promote_types(before.dtype, kind) == kind
    return node.args[0] if is_wider and len(_readers(node)) == 1 else node


def _shifted(node: Node) -> Node:
    """What a softmax is taken of, before its rows' largest numbers are taken off, which changes nothing."""
    if node.target is not aten.sub.Tensor or node.kwargs or not isinstance(node.args[1], Node):
        return node
    x, largest = node.args
    if largest.target is operator.getitem and largest.args[1] == 0 and largest.args[0].target is aten.max.dim:
        largest = largest.args[0]
    elif largest.target is not aten.amax.default:
        return node
    dim, *kept = largest.args[1:]
    dims = dim if isinstance(dim, list) else [dim]
    return x if largest.args[0] is x and kept == [True] and len(dims) == 1 and _is_last(x, dims[0]) else node


def _is_without(user: Node, first: int, count: int) -> bool:
    """Whether a node takes so many columns from `first` on."""
    if user.target is not aten.slice.Tensor or len(user.args) not in (3, 4) or not _is_last(user, user.args[1]):
        return False
    return user.args[2] == first and statically_known_true(user.meta["val"].shape[-1] == count)


def _is_last(node: Node, dim: int) -> bool:
    return dim in (-1, node.meta["val"].dim() - 1)


def _columns(node: Node) -> Any:
    return node.meta["val"].shape[-1]
