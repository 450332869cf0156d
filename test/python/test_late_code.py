"""Code of torch's graphs, made when it is asked for."""

import inspect
import operator

import torch
from torch.fx import GraphModule, symbolic_trace

from kitsune_mlir.frontend.late_code import made_when_called


def doubled(x):
    return x + x


def test_a_graph_that_changed_is_called_as_it_is():
    graph = symbolic_trace(doubled).graph
    with made_when_called():
        module = GraphModule({}, graph)
        assert "_code" not in vars(module)
        (added,) = graph.find_nodes(op="call_function", target=operator.add)
        added.args = (added.args[0], 1)
        module.recompile()
    assert module(torch.tensor(3)) == 4 and "x + 1" in module.code
    added.args = (added.args[0], 2)
    module.recompile()
    assert module(torch.tensor(3)) == 5


def test_the_class_says_the_signature():
    with made_when_called():
        module = GraphModule({}, symbolic_trace(doubled).graph)
        assert list(inspect.signature(type(module).forward).parameters) == ["self", "x"]
        assert symbolic_trace(module)(torch.tensor(3)) == 6
