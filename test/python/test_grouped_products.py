"""Products of groups of rows, each with a matrix of its own, and histograms that say how many rows each has."""

import pytest
import torch

import kitsune_mlir


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


def _sorted(x, choice):
    choice, order = torch.sort(choice, stable=True)
    return x[order], choice


class Histograms(torch.nn.Module):
    def forward(self, x, whole):
        return torch.histc(x, bins=7, min=-1, max=2), torch.histc(x, bins=5), torch.histc(whole, bins=4)


def test_histograms():
    x, whole = torch.randn(500), torch.ones(6)
    got = kitsune_mlir.compile(Histograms(), (x, whole), target="cpu")(x, whole)
    for one, other in zip(got, Histograms()(x, whole)):
        assert torch.equal(one, other)
