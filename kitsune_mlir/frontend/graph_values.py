"""Nodes of exported graphs and the values, without data, that they have in `meta`."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch.fx import Graph, Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves


def value_of(node: Node) -> Any:
    """What the node computes, of the values that its operands have."""
    args, kwargs = map_arg((node.args, node.kwargs), lambda operand: operand.meta["val"])
    held = [other.meta.get("val") for other in node.graph.find_nodes(op="placeholder")]
    with detect_fake_mode(tree_leaves((args, kwargs, held))) or contextlib.nullcontext():
        return node.target(*args, **kwargs)


def call(graph: Graph, target: Any, args: tuple[Any, ...], origin: Node, **kwargs: Any) -> Node:
    """A call at the insertion point, which counts as the model's line of `origin`."""
    made = graph.call_function(target, args, kwargs)
    made.meta |= {"stack_trace": origin.stack_trace, "val": value_of(made)}
    return made


def convert(graph: Graph, operand: Node, dtype: torch.dtype, origin: Node) -> Node:
    """A conversion at the insertion point; the operand itself when it has the type already."""
    if operand.meta["val"].dtype == dtype:
        return operand
    return call(graph, torch.ops.aten._to_copy.default, (operand,), origin, dtype=dtype)
