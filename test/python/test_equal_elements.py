"""Gradients that ask which numbers are equal, as those of maxima, where the numbers would be computed again."""

import copy

import pytest
import torch
from torch import nn
from torch._functorch.aot_autograd import make_boxed_func

from kitsune_mlir import torch_backend

_QUESTIONS = {torch.ops.aten.eq.Tensor, torch.ops.aten.ne.Tensor}


def by_number(z):
    numbers = torch.tensor([0, 1, 2, 0, 1, 3, 3])[:, None].expand(7, 8)
    return torch.zeros(4, 8).scatter_reduce(0, numbers, z[0], "amax", include_self=False)


READERS = {
    "amax": lambda z: z.relu().amax(1),
    "max": lambda z: z.relu().max(1)[0],
    "min of rows": lambda z: z.min(2)[0],
    "both": lambda z: torch.add(*z.aminmax(dim=1)),
    "norm": lambda z: nn.functional.normalize(z, float("inf"), 1),
    "by number": by_number,
}


class Normed(nn.Module):
    def __init__(self, read):
        super().__init__()
        self.first, self.norm = nn.Linear(6, 8), nn.LayerNorm(8)
        self.scale, self.read = nn.Parameter(torch.randn(8)), read

    def forward(self, x):
        return self.read(self.norm(self.first(x)) * self.scale.sigmoid() + 0.3).square().sum()


@pytest.mark.parametrize("reader", READERS)
def test_gradients_of_extrema_of_what_is_computed(reader):
    torch._dynamo.reset()
    torch.manual_seed(2)
    model, x = Normed(READERS[reader]), torch.randn(5, 7, 6)
    exact = copy.deepcopy(model)
    try:
        exact(x).backward()
    except RuntimeError as error:  # aminmax has no gradients in torch 2.11
        pytest.skip(str(error).partition("\n")[0])
    torch.compile(model, backend="kitsune", dynamic=False)(x).backward()
    for own, other in zip(model.parameters(), exact.parameters()):
        torch.testing.assert_close(own.grad, other.grad, rtol=1e-4, atol=1e-4)


class Windowed(nn.Module):
    """The largest of what batch norms and ramps give, as of points of a cloud."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv1d(3, 4, 1), nn.BatchNorm1d(4), nn.ReLU(), nn.Conv1d(4, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        )

    def forward(self, x):
        return self.layers(x).max(2, keepdim=True)[0].square().sum()


@pytest.mark.parametrize("model", [Normed(READERS["amax"]), Windowed()], ids=["elements", "places"])
def test_the_forward_pass_asks(model, monkeypatch):
    passes = []

    def note(gm, example_inputs, **options):
        passes.append({node.target for node in gm.graph.nodes})
        return make_boxed_func(gm.forward)

    monkeypatch.setattr(torch_backend, "_compile", note)
    torch._dynamo.reset()
    x = torch.randn(5, 7, 6) if isinstance(model, Normed) else torch.randn(5, 3, 7)
    torch.compile(model, backend="kitsune", dynamic=False)(x).backward()
    forward, backward = passes
    assert forward & _QUESTIONS
    assert not backward & _QUESTIONS
