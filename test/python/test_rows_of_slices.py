"""Losses of all tokens but the last, or the first: rows are computed where the tensor lies."""

import pytest
import torch
from functions import Function
from torch import nn
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir import torch_backend
from kitsune_mlir.tools.gpusim import Simulation

torch.manual_seed(0)
FIRST, SECOND = nn.Linear(8, 40), nn.Linear(8, 40)
WEIGHTS = torch.linspace(1, 2, 40)


def log_p(x, taken, layer=FIRST):
    return layer(x)[:, taken].reshape(-1, 40).log_softmax(-1)


ALL_BUT_LAST, ALL_BUT_FIRST = slice(None, -1), slice(1, None)
LOSSES = {
    "classes": lambda x, y: F.nll_loss(log_p(x, ALL_BUT_LAST), y[:, 1:].reshape(-1)),
    "smoothed": lambda x, y: F.cross_entropy(
        FIRST(x)[:, 1:].reshape(-1, 40), y[:, 1:].reshape(-1), label_smoothing=0.1, weight=WEIGHTS
    ),
    "two tensors": lambda x, y: (log_p(x, ALL_BUT_LAST) - log_p(x, ALL_BUT_LAST, SECOND)).square().sum(1).mean(),
    "shifted": lambda x, y: (log_p(x, ALL_BUT_LAST).exp() * log_p(x, ALL_BUT_FIRST, SECOND)).sum(),
    "a product": lambda x, y: (log_p(x, ALL_BUT_LAST) @ SECOND.weight).square().mean(),
    "rounded": lambda x, y: F.nll_loss(
        FIRST(x)[:, :-1].bfloat16().float().reshape(-1, 40).log_softmax(-1), y[:, 1:].reshape(-1), reduction="sum"
    ),
    "places": lambda x, y: (log_p(x, ALL_BUT_LAST).argmax(-1) * log_p(x, ALL_BUT_LAST).amax(-1)).mean(),
    "of several dimensions": lambda x, y: (
        FIRST(x.view(3, 1, 9, 8).expand(3, 2, 9, 8))[:, :, :-1].reshape(-1, 40).exp().sum(1).mean()
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients(name, monkeypatch):
    torch._dynamo.reset()
    monkeypatch.setattr(torch_backend, "_warn", lambda reason: pytest.fail(reason))
    torch.manual_seed(1)
    x, y = torch.randn(3, 9, 8), torch.randint(0, 40, (3, 9))
    y[y < 8] = -100
    found = []
    for call in (LOSSES[name], torch.compile(LOSSES[name], backend="kitsune", dynamic=False)):
        given = x.clone().requires_grad_()
        loss = call(given, y)
        found.append([loss.detach(), *torch.autograd.grad(loss, [given, FIRST.weight])])
    for ours, wanted in zip(found[1], found[0], strict=True):
        tolerance = 1e-2 if name == "rounded" else 1e-4
        torch.testing.assert_close(ours, wanted, rtol=tolerance, atol=tolerance * float(wanted.abs().max()))


@pytest.mark.parametrize("opened", [False, True])
def test_nothing_is_copied(opened):
    class Model(nn.Module):
        def forward(self, x, y):
            loss = F.cross_entropy(x[:, :-1].reshape(-1, 40), y[:, 1:].reshape(-1), reduction="none")
            return loss.sum()

    args = torch.randn(3, 9, 40), torch.randint(0, 40, (3, 9))
    sizes = {"dynamic_shapes": ({0: torch.export.Dim("rows", min=2)},) * 2} if opened else {}
    compiled = kitsune_mlir.compile(Model(), args, target="sm_90a", **sizes)
    torch.testing.assert_close(Simulation(compiled)(*args), Model()(*args), rtol=1e-5, atol=1e-4)
    if not opened:
        rows = [launch for launch in compiled.plan["launches"] if launch["form"] == "scheduled rows"]
        assert rows[0]["computes"].startswith("27, ")


@pytest.mark.parametrize("taken", [slice(-100, -1), slice(1, 100), slice(-8, None)])
def test_places_from_the_end_and_beyond(taken):
    x = torch.randn(3, 9, 40)
    model = Function(lambda x: x[:, taken].reshape(-1, 40).exp().sum(1))
    torch.testing.assert_close(torch.as_tensor(kitsune_mlir.compile(model, (x,))(x)), model(x))
