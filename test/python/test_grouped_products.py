"""Products of groups of rows, each with a matrix of its own, and histograms that say how many rows each has."""

import pytest
import torch
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation


class Experts(torch.nn.Module):
    """A layer whose rows choose an expert each, as transformers writes it."""

    def __init__(self, experts):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(experts, 24, 16, dtype=torch.bfloat16), requires_grad=False)

    def forward(self, x, choice):
        choice, order = torch.sort(choice, stable=True)
        bins = self.weight.shape[0]
        ends = torch.histc(choice.float(), bins=bins, min=0, max=bins - 1).cumsum(0, dtype=torch.int32)
        return torch.nn.functional.grouped_mm(x[order], self.weight.transpose(1, 2), offs=ends)


@pytest.mark.parametrize(
    ("rows", "experts"),
    [(150, 5), (3, 7), (1100, 4)],
    ids=["one without rows", "fewer rows than experts", "many rows an expert"],
)
def test_experts(rows, experts):
    torch.manual_seed(0)
    model = Experts(experts)
    x, choice = torch.randn(rows, 16, dtype=torch.bfloat16), torch.randint(0, experts, (rows,))
    choice[choice == 2] = 1
    want = torch.stack([model.weight[e].double() @ row.double() for row, e in zip(*_sorted(x, choice))])
    got = kitsune_mlir.compile(model, (x, choice), target="cpu")(x, choice)
    torch.testing.assert_close(got.double(), want, rtol=1e-2, atol=1e-2)


def test_an_open_number_of_rows():
    torch.manual_seed(0)
    model, rows = Experts(3), torch.export.Dim("rows", min=2)
    x, choice = torch.randn(70, 16, dtype=torch.bfloat16), torch.randint(0, 3, (70,))
    compiled = kitsune_mlir.compile(model, (x, choice), target="cpu", dynamic_shapes=({0: rows}, {0: rows}))
    x, choice = torch.randn(131, 16, dtype=torch.bfloat16), torch.randint(0, 3, (131,))
    torch.testing.assert_close(compiled(x, choice), model(x, choice), rtol=1e-2, atol=1e-2)


def test_products_of_a_library_of_other_types():
    """Those of transformers, an operator of its own; rows behind the last group are zeros."""
    library = torch.library.Library("transformers", "FRAGMENT")
    if not hasattr(torch.ops.transformers, "grouped_mm_fallback"):
        library.define("grouped_mm_fallback(Tensor input, Tensor weight, Tensor offs) -> Tensor")
        library.impl("grouped_mm_fallback", lambda x, w, offs: x.new_empty(x.shape[0], w.shape[2]), "Meta")

    class Product(torch.nn.Module):
        def forward(self, x, weight, offs):
            return torch.ops.transformers.grouped_mm_fallback(x, weight, offs)

    x, weight, offs = torch.randn(9, 4), torch.randn(3, 4, 5), torch.tensor([2, 2, 7])
    wanted = torch.cat([x[:2] @ weight[0], x[2:7] @ weight[2], torch.zeros(2, 5)])
    compiled = kitsune_mlir.compile(Product(), (x, weight, offs), target="cpu")
    torch.testing.assert_close(compiled(x, weight, offs), wanted)


def _sorted(x, choice):
    choice, order = torch.sort(choice, stable=True)
    return x[order], choice


class Mixture(torch.nn.Module):
    """A mixture's layer as transformers writes it: rows in the order of their experts, two products with a gate between
    them, and back in the order of tokens."""

    def __init__(self, interleaved, experts=4, width=48, inner=40):
        super().__init__()
        self.interleaved = interleaved
        weights = torch.randn(experts, 2 * inner, width) / 7, torch.randn(experts, width, inner) / 7
        self.up, self.down = (torch.nn.Parameter(w.to(torch.bfloat16), requires_grad=False) for w in weights)

    def forward(self, x, scores):
        weights, choice = scores.softmax(-1).topk(2, dim=-1)
        choice, order = torch.sort(choice.reshape(-1), stable=True)
        experts = self.up.shape[0]
        ends = torch.histc(choice.float(), bins=experts, min=0, max=experts - 1).cumsum(0, dtype=torch.int32)
        y = F.grouped_mm(x[order // 2], self.up.transpose(1, 2), offs=ends)
        gate, up = (y[:, ::2], y[:, 1::2]) if self.interleaved else y.chunk(2, dim=-1)
        y = F.grouped_mm(F.silu(gate) * up, self.down.transpose(1, 2), offs=ends)
        y = y * weights.reshape(-1)[order].unsqueeze(-1)
        back = torch.empty_like(order)
        back[order] = torch.arange(order.shape[0])
        return y[back].view(x.shape[0], 2, -1).sum(1)


@pytest.mark.parametrize("favourite", [None, 1], ids=["some rows each", "all rows to one"])
def test_a_mixture_of_experts(favourite, gpu_of, unassembled):
    torch.manual_seed(0)
    model, x, scores = (
        Mixture(interleaved=favourite is None),
        torch.randn(75, 48, dtype=torch.bfloat16),
        torch.randn(75, 4, dtype=torch.bfloat16),
    )
    if favourite is not None:
        scores[:, favourite] += 20
    scores[:, 2] -= 20
    compiled = kitsune_mlir.compile(model, (x, scores), target=gpu_of(4))
    torch.testing.assert_close(Simulation(compiled)(x, scores), model(x, scores), rtol=3e-2, atol=3e-2)


@pytest.mark.usefixtures("unassembled")
def test_a_mixture_of_experts_for_any_number_of_tokens(gpu_of):
    torch.manual_seed(0)
    model, tokens = Mixture(interleaved=False), torch.export.Dim("tokens", min=2)
    x, scores = torch.randn(75, 48, dtype=torch.bfloat16), torch.randn(75, 4, dtype=torch.bfloat16)
    shapes = {"dynamic_shapes": ({0: tokens}, {0: tokens})}
    compiled = kitsune_mlir.compile(model, (x, scores), target=gpu_of(4), **shapes)
    x, scores = torch.randn(31, 48, dtype=torch.bfloat16), torch.randn(31, 4, dtype=torch.bfloat16)
    torch.testing.assert_close(Simulation(compiled)(x, scores), model(x, scores), rtol=3e-2, atol=3e-2)


class Histograms(torch.nn.Module):
    def forward(self, x, whole):
        return torch.histc(x, bins=7, min=-1, max=2), torch.histc(x, bins=5), torch.histc(whole, bins=4)


def test_histograms():
    x, whole = torch.randn(500), torch.ones(6)
    got = kitsune_mlir.compile(Histograms(), (x, whole), target="cpu")(x, whole)
    for one, other in zip(got, Histograms()(x, whole)):
        assert torch.equal(one, other)
