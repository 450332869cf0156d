"""Nodes of exported graphs and the values, without data, that they have in `meta`."""

from __future__ import annotations

import contextlib
import operator
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._guards import detect_fake_mode
from torch.fx import Graph, Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves, tree_map


def value_of(node: Node) -> Any:
    """What the node computes, of the values that its operands have."""
    args, kwargs = map_arg((node.args, node.kwargs), lambda operand: operand.meta["val"])
    held = [other.meta.get("val") for other in node.graph.find_nodes(op="placeholder")]
    mode = detect_fake_mode(tree_leaves((args, kwargs, held))) or contextlib.nullcontext()
    with enable_python_dispatcher(), mode:  # some operators' own code would take open sizes for the example's
        return node.target(*args, **kwargs)


def _given(graph: Graph, args: Any, origin: Node) -> Any:
    """Arguments in which open sizes are nodes, those of the tensors that the arguments are computed of, and of numbers
    among these."""

    def node_of(size: Any) -> Any:
        if not isinstance(size, torch.SymInt):
            return size
        behind = deque([leaf for leaf in tree_leaves(args) if isinstance(leaf, Node)] + [origin])
        seen: set[Node] = set()
        while behind:
            node = behind.popleft()
            if node in seen:
                continue
            seen.add(node)
            behind.extend(node.all_input_nodes)
            value = node.meta.get("val")
            if isinstance(value, torch.SymInt) and value.node.expr == size.node.expr:
                return node
            if node is origin or not isinstance(value, torch.Tensor) or value.is_complex():
                continue
            for dim, own in enumerate(value.shape):
                if isinstance(own, torch.SymInt) and own.node.expr == size.node.expr:
                    return call(graph, torch.ops.aten.sym_size.int, (node, dim), origin)
        return size

    return tree_map(node_of, args)


def call(graph: Graph, target: Any, args: tuple[Any, ...], origin: Node, **kwargs: Any) -> Node:
    """A call at the insertion point, which counts as the model's line of `origin`."""
    made = graph.call_function(target, _given(graph, args, origin), kwargs)
    made.meta |= {"stack_trace": origin.stack_trace, "val": value_of(made)}
    return made


def bounds_of(start: Any, end: Any, size: Any) -> tuple[int, int] | None:
    """Where a slice begins and ends along a dimension of this size, for what torch may be given for it: nothing, places
    that are counted from the end, and such beyond it. None where any of these is open."""
    given = (0 if start is None else start, size if end is None else end)
    if not isinstance(size, int) or not all(isinstance(place, int) for place in given):
        return None
    first, last = (min(max(place + size if place < 0 else place, 0), size) for place in given)
    return first, max(first, last)


def convert(graph: Graph, operand: Node, dtype: torch.dtype, origin: Node) -> Node:
    """A conversion at the insertion point; the operand itself when it has the type already."""
    if operand.meta["val"].dtype == dtype:
        return operand
    return call(graph, torch.ops.aten._to_copy.default, (operand,), origin, dtype=dtype)


def is_written(values: Iterable[Node], first: Node, last: Node | None = None) -> bool:
    """Whether anything behind `first`, and before `last` where that is given, changes memory in which a value lies:
    what read the values there must not be moved to `last`. Graphs are as torch exports them, with what a model does in
    place; functional ones have nothing that writes."""
    held = {_memory(value) for value in values}
    node = first.next
    while node is not last and node.op != "root":
        if any(_memory(target) in held for target in _changed_by(node)):
            return True
        node = node.next
    return False


def _changed_by(node: Node) -> Iterator[Node]:
    """The tensors that a node changes in place."""
    schema = _schema(node)
    if schema is None or not schema.is_mutable:
        return
    for place, argument in enumerate(schema.arguments):
        given = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
        if argument.is_write:
            yield from (leaf for leaf in tree_leaves(given) if isinstance(leaf, Node))


def _memory(node: Node) -> Node:
    """The node that makes the memory in which a value lies, or may lie: what it is a view of."""
    while node.op == "call_function":
        maker = node.args[0] if node.target is operator.getitem else node
        schema = _schema(maker)
        if schema is None or schema.arguments[0].alias_info is None or not isinstance(maker.args[0], Node):
            break
        node = maker.args[0]
    return node


def _schema(node: Node) -> Any:
    return node.target._schema if isinstance(node.target, torch._ops.OpOverload) else None
