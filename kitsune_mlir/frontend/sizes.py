"""Sizes of computed tensors, computed of those of a graph's inputs."""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch.fx import Graph, Proxy
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

_SIZE = torch.ops.aten.sym_size.int


def sizes_of_inputs(graph: Graph) -> None:
    """Replaces sizes that are read off tensors by what torch knows them to be, in place, where that is made of inputs'
    sizes and of numbers among the inputs:

        %size = aten.sym_size.int(%convolution, 2)      %size = (%s0 - 1) // 2 + 1
    """
    readers = [node for node in graph.nodes if node.target is _SIZE and isinstance(node.meta["val"], torch.SymInt)]
    if not readers:
        return
    known = _known(graph)
    for node in readers:
        expression = node.meta["val"].node.expr
        if node.args[0].op == "placeholder" or not expression.free_symbols <= known.keys():
            continue
        with graph.inserting_before(node):
            found = sympy_interp(PythonReferenceAnalysis, known, expression)
        if isinstance(found, Proxy):
            found.node.meta["val"] = node.meta["val"]
            node.replace_all_uses_with(found.node)
            graph.erase_node(node)


def _known(graph: Graph) -> dict[sympy.Symbol, Any]:
    """The symbols that an input, or a size of one, is."""
    known: dict[sympy.Symbol, Any] = {}
    placeholders = graph.find_nodes(op="placeholder")
    with graph.inserting_before(next(node for node in graph.nodes if node.op != "placeholder")):
        for node in placeholders:
            value = node.meta["val"]
            sizes = enumerate(value.shape) if isinstance(value, torch.Tensor) else [(None, value)]
            for axis, size in sizes:
                if not isinstance(size, torch.SymInt) or not isinstance(size.node.expr, sympy.Symbol):
                    continue
                if size.node.expr not in known:
                    read = node if axis is None else graph.call_function(_SIZE, (node, axis))
                    read.meta["val"] = size
                    known[size.node.expr] = Proxy(read)
    return known
