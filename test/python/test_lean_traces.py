"""torch.export in less time gives what torch's own does: operators, and for each the model's lines and modules."""

import re

import pytest
import torch
from torch import nn
from torch.fx import _symbolic_trace
from torch.fx.experimental import proxy_tensor

from examples.models import SMALL
from kitsune_mlir.frontend.lean_traces import lean


class Twice(nn.Module):
    """A module that is there by two names, so that torch asks by which of them it is called."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.second = self.first
        self.scale = nn.Parameter(torch.ones(4))

    def _scaled(self, x):
        return (x * self.scale).relu()

    def forward(self, x):
        return self.second(self._scaled(self.first(x)))


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Twice()

    def forward(self, x):
        return torch.cond(x.sum() > 0, self.inner.first, lambda t: t - 1, (x,)) + self.inner(x)


def lines(model, args):
    nodes = torch.export.export(model, args, strict=False).graph.nodes
    text = [re.sub(r"<eval_with_key>.\d+", "", node.stack_trace or "") for node in nodes]  # files are numbered on
    return [(node.name, str(node.target), each, node.meta.get("nn_module_stack")) for node, each in zip(nodes, text)]


MODELS = {name: SMALL[name](torch.float32) for name in ("graphcast", "vit")}
MODELS |= {"twice": (Twice(), (torch.ones(2, 4),)), "branch": (Branch(), (torch.ones(2, 4),))}


@pytest.mark.parametrize("name", MODELS)
def test_as_torchs(name):
    model, args = MODELS[name]
    expected = lines(model.eval(), args)
    with lean():
        found = lines(model, args)
    assert found == expected
    assert any(trace and "forward" in trace for _, _, trace, _ in found)


def changed():
    tracer, patcher = proxy_tensor._ModuleStackTracer, _symbolic_trace._Patcher
    return tracer.trace, tracer.create_node, patcher.patch_method


def test_torch_is_as_it_was_when_a_trace_fails():
    class Fails(nn.Module):
        def forward(self, x):
            raise ZeroDivisionError

    before = changed()
    with pytest.raises(ZeroDivisionError), lean():
        assert changed() != before
        torch.export.export(Fails(), (torch.ones(2),), strict=False)
    assert changed() == before
