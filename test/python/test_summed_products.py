"""Layers whose results are added (kitsune_mlir/frontend/summed_products.py), and kernels of gates that read operands
side by side where they are (passes/product_parts.py)."""

import copy

import pytest
import torch
from torch import nn

import kitsune_mlir
from kitsune_mlir import mlir
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")

ERRORS = {torch.float16: 2e-3, torch.bfloat16: 1.2e-2}


class Layers(nn.Module):
    """A function of layers and operands."""

    def __init__(self, function, *sizes, bias=True):
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(nn.Linear(*size, bias=bias) for size in sizes)

    def forward(self, *operands):
        return self.function(self.layers, *operands)


def both(layers, x, h):
    return (layers[0](x) + layers[1](h)).relu()


def three(layers, x, h, z):
    return layers[2](z) + (layers[0](x) + layers[1](h)) + x


def read(layers, x, h):
    y = layers[0](x)
    return (y + layers[1](h)) * y


def of_sequences(layers, x, h):
    return torch.tanh(layers[0](x.unflatten(0, (4, 10))) + layers[1](h.unflatten(0, (4, 10))))


def in_longer_rows(layers, x, h):
    return layers[0](x).reshape(20, -1) + layers[1](h).reshape(20, -1)


def gated(layers, x, h):
    """A GRU as people write it: two of three parts are added."""
    (r, z, n), (s, y, m) = (layer(v).chunk(3, -1) for layer, v in zip(layers, (x, h), strict=True))
    z = torch.sigmoid(y + z)
    return (1 - z) * torch.tanh(n + torch.sigmoid(r + s) * m) + z * h


def cell(layers, x, h, c):
    """An LSTM's step whose layer takes both operands side by side."""
    i, f, g, o = layers[0](torch.cat([x, h], -1)).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def repeated(layers, x, h):
    return layers[0](x)[:, None].expand(-1, 3, -1) + layers[1](h)[:, None].expand(-1, 3, -1)


def each_with_each(layers, x, h):
    """Two of three parts, each row of the one layer with each of the other."""
    (r, z, n), (s, y, m) = layers[0](x)[:, None].chunk(3, -1), layers[1](h).chunk(3, -1)
    return torch.sigmoid(r + s) * torch.tanh(y + z) + n * m


def biased_by_a_number(layers, x, h):
    first = torch.addmm(layers[2].bias, x, layers[0].weight.T)
    (r, z, n), (s, y, m) = first.chunk(3, -1), layers[1](h).chunk(3, -1)
    return torch.sigmoid(r + s) * torch.tanh(y + z) + n * m


def not_turned(layers, x, h):
    return x @ layers[0].weight.permute(0, 1) + h @ layers[1].weight.T


def columns(*widths, rows=40):
    return tuple(torch.randn(rows, width) for width in widths)


CASES = {  # model, operands, products of the linalg
    "both": (lambda: Layers(both, (64, 96), (128, 96)), (64, 128), 1),
    "both, without biases": (lambda: Layers(both, (64, 96), (128, 96), bias=False), (64, 128), 1),
    "three": (lambda: Layers(three, (64, 64), (128, 64), (64, 64)), (64, 128, 64), 1),
    "of sequences": (lambda: Layers(of_sequences, (64, 96), (64, 96)), (64, 64), 1),
    "in longer rows": (lambda: Layers(in_longer_rows, (64, 96), (64, 96)), (64, 64), 1),
    "a GRU": (lambda: Layers(gated, (128, 192), (64, 192)), (128, 64), 1),
    "a GRU without biases": (lambda: Layers(gated, (64, 192), (64, 192), bias=False), (64, 64), 1),
    "torch's GRU": (lambda: nn.GRUCell(64, 64), (64, 64), 1),
    "torch's RNN": (lambda: nn.RNNCell(64, 64), (64, 64), 1),
    "an LSTM": (lambda: Layers(cell, (192, 256)), (128, 64, 64), 1),
    "widths that are no whole chunks": (lambda: Layers(both, (72, 96), (128, 96)), (72, 128), 2),
    "repeated": (lambda: Layers(repeated, (64, 96), (64, 96)), (64, 64), 2),
    "each with each": (lambda: Layers(each_with_each, (64, 192), (64, 192)), (64, 64), 2),
    "a bias of one number": (lambda: Layers(biased_by_a_number, (64, 192), (64, 192), (64, 1)), (64, 64), 2),
    "a weight that is not turned": (lambda: Layers(not_turned, (64, 64), (64, 64)), (64, 64), 2),
    "one of them is read": (lambda: Layers(read, (64, 8), (64, 8)), (64, 64), 2),
}


def check(name, dtype, target, run, **options):
    torch.manual_seed(0)
    make, widths, count = CASES[name]
    model, args = make().to(dtype).eval().requires_grad_(False), [x.to(dtype) for x in columns(*widths)]
    found = kitsune_mlir.compile(model, tuple(args), target=target, **options)
    assert len(list(mlir.walk(found.module("linalg"), "linalg.matmul"))) == count
    got = run(found)(*args)
    want = copy.deepcopy(model).double()(*(x.double() for x in args))
    for x, y in zip(*([each] if isinstance(each, torch.Tensor) else each for each in (got, want)), strict=True):
        assert (torch.as_tensor(x).double() - y).norm() <= ERRORS[dtype] * y.norm()
    return found


@pytest.mark.parametrize("name", CASES)
def test_sums_of_layers_on_the_cpu(name):
    check(name, torch.bfloat16, "cpu", lambda found: found)


@pytest.mark.parametrize("name", ["both", "a GRU", "an LSTM"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_operands_side_by_side_are_read_where_they_are(name, dtype, small_gpu):
    found = check(name, dtype, small_gpu, lambda found: Simulation(found, seed=1))
    assert len(found.plan["launches"]) == 1


def test_those_of_f32_stay_apart():
    """Zeros would be multiplied in pieces."""
    found = kitsune_mlir.compile(CASES["a GRU"][0](), columns(128, 64), target="cpu")
    assert len(list(mlir.walk(found.module("linalg"), "linalg.matmul"))) == 2


def test_words_too(small_gpu):
    found = kitsune_mlir.compile(
        Layers(cell, (192, 256)), columns(128, 64, 64), target=small_gpu, matmul_precision="high"
    )
    assert [launch["form"] for launch in found.plan["launches"]] == ["scheduled product"]


def test_rows_open_until_the_call(small_gpu):
    torch.manual_seed(0)
    rows = {0: torch.export.Dim("rows")}
    model, args = CASES["a GRU"][0]().bfloat16().requires_grad_(False), [x.bfloat16() for x in columns(128, 64)]
    found = kitsune_mlir.compile(model, tuple(args), target=small_gpu, dynamic_shapes={"operands": (rows, rows)})
    simulation = Simulation(found, seed=1)
    for count in (40, 7):
        x, h = (each[:count] for each in args)
        torch.testing.assert_close(torch.as_tensor(simulation(x, h)), model(x, h), rtol=2e-2, atol=2e-2)
