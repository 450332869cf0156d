"""Parameters whose `data` a model sets while it is trained."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kitsune_mlir import torch_backend


def averaged(p, q):
    p.data = p.data * 0.9 + q.data * 0.1


def averaged_in_place(p, q):
    p.data = p.data.mul(0.9).add_(q.detach(), alpha=0.1)


def kept_before(p, q):
    old = p.data[:]
    p.data = q.data.clone()
    p.data = p.data + 0.1 * old


def exchanged(p, q):
    old = p.data
    p.data = q.data * 1.0
    p.data = old


def changed_before(p, q):
    p.data.mul_(0.5)
    p.data = q.data + p.data


class Follows(nn.Module):
    """Momentum contrast: an encoder that follows another one, and a queue of what it gave."""

    def __init__(self, follow):
        super().__init__()
        self.queries = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
        self.keys = copy.deepcopy(self.queries).requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(4, 12), dim=0))
        self.follow = follow

    def forward(self, x, y):
        queries = F.normalize(self.queries(x), dim=1)
        with torch.no_grad():
            for p, q in zip(self.keys.parameters(), self.queries.parameters()):
                self.follow(p, q)
            keys = F.normalize(self.keys(y), dim=1)
        scores = torch.cat([(queries * keys).sum(1, keepdim=True), queries @ self.queue.clone()], 1)
        self.queue = torch.cat([keys.T, self.queue[:, : -len(x)]], 1)
        return F.cross_entropy(scores / 0.1, torch.zeros(len(x), dtype=torch.long))


@pytest.mark.parametrize("follow", [averaged, averaged_in_place, kept_before, exchanged, changed_before])
def test_steps(follow, monkeypatch):
    """What takes over memory that there is, or writes to what was set, runs as torch runs it."""
    compiled = []
    monkeypatch.setattr(
        torch_backend,
        "_compile",
        lambda gm, *args, own=torch_backend._compile, **options: (compiled.append(gm), own(gm, *args, **options))[1],
    )
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Follows(follow)
    other = copy.deepcopy(model)
    run = torch.compile(other, backend="kitsune", dynamic=False)
    optimizers = [torch.optim.SGD(each.queries.parameters(), 0.1) for each in (model, other)]
    for _ in range(3):
        x, y = torch.randn(3, 6), torch.randn(3, 6)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            losses = model(x, y), run(x, y)
        for loss, optimizer in zip(losses, optimizers):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.testing.assert_close(*losses)
    for one, wanted in zip(other.state_dict().values(), model.state_dict().values()):
        torch.testing.assert_close(one, wanted)
    assert bool(compiled) == (follow is not changed_before)
