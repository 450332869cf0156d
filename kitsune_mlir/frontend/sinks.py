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

from .graph_values import is_written
from .working import working

aten = torch.ops.aten

_SOFTMAXES = (aten.softmax.int, aten._softmax.default)


def parts(node: Node) -> tuple[Node, Node] | None:
    """The scores and the column, of such a softmax; None for any other node."""
    if node.target not in _SOFTMAXES or not _is_last(node, node.args[1]) or not node.meta["val"].is_floating_point():
        return None
    whole = _shifted(node.args[0])
    if whole.target is not aten.cat.default or len(whole.args) < 2 or not _is_last(whole, whole.args[1]):
        return None
    tensors = whole.args[0]
    if len(tensors) != 2 or any(tensor.meta["val"].dim() != node.meta["val"].dim() for tensor in tensors):
        return None
    for scores, sink, first in ((*tensors, 0), (*reversed(tensors), 1)):
        is_column = _columns(sink) == 1 and isinstance(_columns(scores), int)
        if is_column and all(_is_without(user, first, _columns(scores)) for user in node.users):
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
    for user in list(node.users):
        user.replace_all_uses_with(shares)
        node.graph.erase_node(user)
    node.graph.erase_node(node)


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
    return user.args[2] == first and user.meta["val"].shape[-1] == count


def _is_last(node: Node, dim: int) -> bool:
    return dim in (-1, node.meta["val"].dim() - 1)


def _columns(node: Node) -> Any:
    return node.meta["val"].shape[-1]
