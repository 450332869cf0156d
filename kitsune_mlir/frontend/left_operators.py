"""Graphs with operators that no program has, such as singular values: programs before and behind them, torch between.

    %c = aten.mm(%a, %b)                        program 0: a, b -> c
    %u, %s, %v = aten._linalg_svd(%c)     =>    torch computes u, s, v of c
    %d = aten.mul(%u, %s)                       program 1: u, s -> d

Each value is computed as early as what it is made of allows, so that there are as many programs as operators that are
left follow one another, and one."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from .checks import drop_checks
from .left_names import NAMES

LEFT = frozenset(
    getattr(getattr(torch.ops.aten, name), overload or "default")
    for name, _, overload in (each.partition(".") for each in NAMES)
    if hasattr(torch.ops.aten, name) and (overload or "default") in getattr(torch.ops.aten, name).overloads()
)


@dataclass(frozen=True)
class Stage:
    """A graph, None where there is nothing to compute, of some values of the whole; its results, in order; and then
    what is left to torch."""

    graph: GraphModule | None
    inputs: list[Node]
    results: list[Node]
    left: list[Node]


def stages(gm: GraphModule) -> list[Stage]:
    """The stages of a functional graph of aten operators, which is changed; none where nothing is left to torch."""
    if not any(_is_of_torch(node) for node in gm.graph.nodes):
        return []
    drop_checks(gm.graph)  # which a graph's tokens keep in order, that no program has
    level: dict[Node, int] = {}
    for node in gm.graph.nodes:
        level[node] = max((level[one] + _is_of_torch(one) for one in node.all_input_nodes), default=0)
    parts = {node for node in gm.graph.nodes if node.target is operator.getitem and _is_of_torch(node.args[0])}
    for part in parts:
        level[part] = level[part.args[0]]
    last = gm.graph.output_node()
    count = level[last] + 1
    left = [[node for node in gm.graph.nodes if _is_left(node, parts) and level[node] == k] for k in range(count)]
    own = [_computed(gm.graph, level, parts, k) for k in range(count)]
    return [Stage(*_graph(gm, nodes), beside) for nodes, beside in zip(own, left, strict=True)]


def run(
    gm: GraphModule, parts: Sequence[Stage], programs: Sequence[Callable[..., Any] | None], values: Sequence[Any]
) -> list[Any]:
    """The graph's results of its values, by the functions that compute the stages' graphs."""
    found = dict(zip(gm.graph.find_nodes(op="placeholder"), values, strict=True))
    for stage, program in zip(parts, programs, strict=True):
        if program is not None:
            results = program(*(found[node] for node in stage.inputs))
            found.update(zip(stage.results, results, strict=True))
        for node in stage.left:
            args, kwargs = map_arg((node.args, node.kwargs), found.__getitem__)
            found[node] = node.target(*args, **kwargs)
    return list(map_arg(gm.graph.output_node().args[0], found.__getitem__))


def _is_of_torch(node: Node) -> bool:
    """Whether no program has an operator, such as those of linear algebra on complex numbers."""
    if node.target in LEFT:
        return True
    values = (one.meta.get("val") for one in node.all_input_nodes)
    is_linear = isinstance(node.target, torch._ops.OpOverload) and "linalg_" in node.target.name()
    return is_linear and any(isinstance(value, torch.Tensor) and value.is_complex() for value in values)


def _is_left(node: Node, parts: set[Node]) -> bool:
    return _is_of_torch(node) or node in parts


def _computed(graph: Graph, level: dict[Node, int], parts: set[Node], number: int) -> list[Node]:
    return [
        node
        for node in graph.nodes
        if node.op in ("call_function", "get_attr") and level[node] == number and not _is_left(node, parts)
    ]


def _graph(gm: GraphModule, nodes: list[Node]) -> tuple[GraphModule | None, list[Node], list[Node]]:
    """These nodes as a graph of their own, and what values and results of it are in the whole."""
    own = set(nodes)
    results = [node for node in nodes if node.op != "get_attr" and not node.users.keys() <= own]
    if not results:
        return None, [], []
    inputs = [one for one in gm.graph.nodes if one not in own and one.op != "output" and not own.isdisjoint(one.users)]
    graph, copies = Graph(), dict[Node, Node]()
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output([copies[node] for node in results])
    return GraphModule(gm, graph), inputs, results
