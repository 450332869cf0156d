"""What a forward pass keeps for its gradients, and that these are right."""

import copy

import pytest
import torch
from torch import nn
from torch._functorch.aot_autograd import make_boxed_func

from kitsune_mlir import torch_backend
from kitsune_mlir.frontend.recurrent_cells import fused_gru_backward, fused_gru_cell, fused_lstm_backward
from kitsune_mlir.frontend.recurrent_cells import fused_lstm_cell as lstm

ROWS, WIDTH = 24, 16


class Cell(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cell = kind(WIDTH, WIDTH)

    def forward(self, x, hidden, *more):
        return self.cell(x, (hidden, *more) if more else hidden)


class Squashed(nn.Module):
    """Two products' sum, squashed: in f32, of 16 bits, with a part of it beside it."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, 2 * WIDTH)

    def forward(self, x, y):
        a, b = (self.one(x) + self.other(y)).float().split(WIDTH, 1)
        return (a.tanh() * b.sigmoid()).to(x.dtype)


MODELS = {  # and how many rows of how many columns are kept of what the forward pass computes
    "glu": (lambda: nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GLU(), nn.Linear(2 * WIDTH, WIDTH)), 1, 6),
    "lstm": (lambda: Cell(nn.LSTMCell), 3, 5),
    "gru": (lambda: Cell(nn.GRUCell), 2, 6),
    "squashed": (Squashed, 2, 2),
    "norm": (lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)), 1, 1),
    "relu": (lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)), 1, 1),
}


def step(call, module, args):
    """Results, and gradients by parameters and inputs, for gradients of 16 bits."""
    given = [arg.detach().requires_grad_() for arg in args]
    results = torch.utils._pytree.tree_leaves(call(*given))
    torch.manual_seed(2)
    tangents = [torch.randn(result.shape).bfloat16().to(result.dtype) for result in results]
    return [*results, *torch.autograd.grad(results, [*module.parameters(), *given], tangents)]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


@pytest.mark.parametrize("name", MODELS)
def test_what_is_kept(name, monkeypatch):
    torch.manual_seed(0)
    make, count, columns = MODELS[name]
    module, args = make().bfloat16(), [torch.randn(ROWS, WIDTH).bfloat16() for _ in range(count)]
    graphs = []

    def compile_(gm, inputs, **options):
        graphs.append(gm)
        return make_boxed_func(gm.forward)

    monkeypatch.setattr(torch_backend, "_compile", compile_)
    found = step(torch.compile(module, backend="kitsune"), module, args)
    exact = copy.deepcopy(module).double()
    wanted = step(exact, exact, [arg.double() for arg in args])
    for a, b in zip(found, wanted, strict=True):
        assert (a - b).norm() <= 2e-2 * b.norm()
    results = len(found) - len(args) - len(list(module.parameters()))
    kept = {node for node in graphs[0].graph.output_node().args[0][results:] if node.op == "call_function"}
    large = [node.meta["val"] for node in kept if node.meta["val"].dim() > 1 and node.meta["val"].shape[1] > 1]
    assert {value.dtype for value in large if value.dtype != torch.bool} <= {torch.bfloat16}
    assert sum(value.numel() * value.dtype.itemsize for value in large) <= ROWS * WIDTH * columns * 2


@pytest.mark.parametrize("name", ["glu", "lstm", "norm"])
def test_open_batches(name, monkeypatch):
    """Nothing that is asked of sizes holds for the first batch only."""
    torch.manual_seed(0)
    make, count, _ = MODELS[name]
    module, graphs = make(), []

    def compile_(gm, inputs, **options):
        graphs.append(gm)
        return make_boxed_func(gm.forward)

    monkeypatch.setattr(torch_backend, "_compile", compile_)
    compiled = torch.compile(module, backend="kitsune", dynamic=True)
    for rows in (ROWS, 5 * ROWS, 7):
        args = [torch.randn(rows, WIDTH) for _ in range(count)]
        for a, b in zip(step(compiled, module, args), step(module, module, args), strict=True):
            torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
    assert len(graphs) == 2


def test_operators_of_gpus():
    """Gradients of cells, as torch's own operators on a GPU have them, are those of their rules."""
    torch.manual_seed(0)
    x, h, c = (torch.randn(3, size, dtype=torch.float64, requires_grad=True) for size in (16, 16, 4))
    b_x, b_h = (torch.randn(16, dtype=torch.float64, requires_grad=True) for _ in range(2))
    hidden, cell, workspace = lstm(x, h, c, b_x, b_h)
    tangents = torch.randn_like(hidden), torch.randn_like(cell)
    wanted = torch.autograd.grad([hidden, cell], [x, c, b_x], tangents)
    torch.testing.assert_close(fused_lstm_backward(*tangents, c, cell, workspace, True), wanted)
    x, h, b_x, b_h = (tensor[..., :12].detach().requires_grad_() for tensor in (x, h, b_x, b_h))
    hidden, workspace = fused_gru_cell(x, h, c, b_x, b_h)
    wanted = torch.autograd.grad(hidden, [x, h, c, b_x, b_h], tangents[0])
    torch.testing.assert_close(fused_gru_backward(tangents[0], workspace, True), wanted)
