"""Graphs that AOTAutograd makes, in which parameters are inputs like any other."""

from __future__ import annotations

import copy

import torch
from torch._guards import detect_fake_mode
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, GraphModule, Node

from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.program import Argument, Output, Program
from kitsune_mlir.signature import Tree

from .broadcasts import share_sizes
from .torch_program import array_of, lower_graph, node_spec


def import_aot_graph(gm: GraphModule, name: str) -> Program:
    """The Program of a functional graph of aten operators; `gm` is left as it is.

    Its inputs are the tensor placeholders in order, whatever they are to the model: a call passes the
    weights too. Sizes that come as integers are read off the tensors instead. A call returns a list with
    None where the graph has it. Raises UnsupportedError for what cannot be imported.
    """
    graph = copy.deepcopy(gm.graph)
    _sizes_from_tensors(graph, name)
    placeholders = list(graph.find_nodes(op="placeholder"))
    arguments = [Argument(node_spec(node.name, node), "input") for node in placeholders]
    arguments += _constants_as_placeholders(graph, gm, placeholders, name)

    outputs: list[Output] = []
    returned: list[Node] = []
    results: list[Tree] = []
    for value in graph.output_node().args[0]:
        if value is None:
            results.append({"constant": None})
            continue
        if not isinstance(value, Node) or not isinstance(value.meta["val"], torch.Tensor):
            raise UnsupportedError(f"{name}: a part of the model returns a number; return tensors only")
        results.append({"leaf": len(outputs)})
        outputs.append(Output(node_spec(value.name, value)))
        returned.append(value)
    graph.output_node().args = (tuple(returned),)

    signature = {
        "args": {"tuple": [{"leaf": i} for i in range(len(placeholders))]},
        "kwargs": {"dict": {}},
        "results": {"list": results},
    }
    module = lower_graph(graph, name, set())
    share_sizes(module, [argument.spec for argument in arguments])
    return Program(name, module, arguments, outputs, signature)


def _sizes_from_tensors(graph: Graph, name: str) -> None:
    """Replaces integer placeholders, which are sizes of dynamic dimensions, by the sizes themselves."""
    placeholders = graph.find_nodes(op="placeholder")
    tensors = [node for node in placeholders if isinstance(node.meta["val"], torch.Tensor)]
    with graph.inserting_before(next(node for node in graph.nodes if node.op != "placeholder")):
        for node in placeholders:
            if node in tensors:
                continue
            if node.users:
                size = node.meta["val"]
                found = ((t, i) for t in tensors for i, s in enumerate(t.meta["val"].shape) if _same(s, size))
                tensor, axis = next(found, (None, 0))
                if tensor is None:
                    raise UnsupportedError(f"{name}: the number {node.name} is no size of a tensor; pass a tensor")
                read = graph.call_function(torch.ops.aten.sym_size.int, (tensor, axis))
                read.meta["val"] = size
                node.replace_all_uses_with(read)
            graph.erase_node(node)


def _same(size: object, symbol: object) -> bool:
    return isinstance(size, torch.SymInt) and isinstance(symbol, torch.SymInt) and size.node.expr == symbol.node.expr


def _constants_as_placeholders(graph: Graph, gm: GraphModule, placeholders: list[Node], name: str) -> list[Argument]:
    """Makes tensors that the graph holds arguments after `placeholders`."""
    arguments: list[Argument] = []
    mode = detect_fake_mode([node.meta["val"] for node in placeholders]) or FakeTensorMode()
    last = placeholders[-1] if placeholders else None
    for node in graph.find_nodes(op="get_attr"):
        tensor = getattr(gm, node.target)
        with graph.inserting_after(last) if last is not None else graph.inserting_before():
            last = graph.placeholder(node.name)
        last.meta["val"] = mode.from_tensor(tensor)  # what the importer reads types from
        node.replace_all_uses_with(last)
        graph.erase_node(node)
        arguments.append(Argument(node_spec(last.name, last), "constant", array_of(tensor, f"{name}: {node.target}")))
    return arguments
