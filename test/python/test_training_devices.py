"""Graphs whose values are on a GPU, as torch.compile has them there: no rewrite of them may ask for that device."""

import copy

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.fx import GraphModule
from torch.nn import functional as F
from torch.utils._pytree import tree_map

from kitsune_mlir import torch_backend
from kitsune_mlir.frontend.indexing import index


def on_gpu(value):
    if not isinstance(value, FakeTensor):
        return value
    with value.fake_mode:
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cuda")


@pytest.fixture
def graphs(monkeypatch):
    """Has graphs from AOTAutograd imported as if their values were on a GPU; gives how many were."""
    torch._dynamo.reset()
    found = []
    import_on_cpu = torch_backend.import_aot_graph

    def imported(gm, name, fixed, examples=(), changed=()):
        gm = GraphModule(gm, copy.deepcopy(gm.graph))
        for node in gm.graph.nodes:
            node.meta["val"] = tree_map(on_gpu, node.meta.get("val"))
            if "device" in node.kwargs:
                node.kwargs = {**node.kwargs, "device": torch.device("cuda", 0)}
        graph = import_on_cpu(gm, name, fixed, [on_gpu(value) for value in examples], changed)
        found.append(graph)
        return graph

    monkeypatch.setattr(torch_backend, "import_aot_graph", imported)
    return found


class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(12, 12)


class Classes(Loss):
    def forward(self, x, y):
        return F.cross_entropy(self.net(x), y % 12, ignore_index=3, label_smoothing=0.1)


class Contrast(Loss):
    def forward(self, x, y):
        z = F.normalize(self.net(x), dim=1)
        z = z @ z.T / 0.1
        z = z.fill_diagonal_(float("-inf"))
        targets = torch.ops.prims.device_put(torch.arange(len(x)).roll(1), x.device)
        return F.cross_entropy(z, targets)


class Tokens(Loss):
    def forward(self, x, y):
        logits = self.net(x)
        return F.nll_loss(logits[:-1].log_softmax(-1), y[1:] % 12) + logits.gather(1, y[:, None] % 12).mean()


class Penalty(Loss):
    def forward(self, x, y):
        z = self.net(x)
        rows = torch.where(y[:, None] > 6, z, z.new_zeros(()))
        return torch.zeros(3, 12, device=x.device).index_add(0, y % 3, rows).logsumexp(1).sum()


@pytest.mark.parametrize("kind", [Classes, Contrast, Tokens, Penalty])
def test_losses_of_a_gpu(graphs, kind):
    torch.manual_seed(0)
    module, x, y = kind(), torch.randn(9, 12), torch.randint(0, 24, (9,))
    plain = copy.deepcopy(module)
    wanted, found = plain(x, y), torch.compile(module, backend="kitsune")(x, y)
    wanted.backward()
    found.backward()
    assert len(graphs) == 2
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(module.net.weight.grad, plain.net.weight.grad)


def test_places_that_are_not_on_the_gpu():
    """As torch.triu_indices makes them, if it is not told where."""
    with FakeTensorMode():
        x = torch.empty(3, 4, 5, device="cuda")
        rows, columns = torch.ones(6, dtype=torch.int64), torch.ones(6, dtype=torch.int64)
        for places in ([None, rows, columns], [None, rows], [None, None, columns]):
            assert index(x, places).device.type == "cuda"
