"""Columns that chained stages read all over a row, on the stand-in device: gates of one column, and slices."""

import copy

import pytest
import torch
from test_gpu_chained import maps_of
from test_gpu_models import check
from test_gpu_pipelines import runner_of
from torch import nn

pytestmark = pytest.mark.usefixtures("unassembled")

PAIRS = {"add": torch.add, "sub": torch.sub, "mul": torch.mul}
BOUNDS = {torch.bfloat16: 2e-2, torch.float16: 4e-3, torch.float32: 2e-6}


def run(model, args, target, bound=None, **options):
    """Against float64; of one pipeline, which is chained."""
    model = model.eval()
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(*(x.double() for x in args))
    dtype = args[0].dtype
    wanted = tuple(x.to(dtype) for x in exact) if isinstance(exact, tuple) else exact.to(dtype)
    program, runner, device = runner_of(model, args, target, "chained", tile=0, **options)
    check(program, runner, args, wanted, bound or BOUNDS[dtype])
    assert len(device.described) == 1 and maps_of(runner)


class Gated(nn.Module):
    """Every column of a tile and one number of its row, then a product; with `stored` the gate is a result too."""

    def __init__(self, pair, width=64, activation=None, bias=True, stored=False, outputs=40):
        super().__init__()
        self.gate, self.last = nn.Linear(width, 1, bias=bias), nn.Linear(width, outputs)
        self.pair, self.activation, self.stored = PAIRS[pair], activation or nn.Identity(), stored

    def forward(self, x):
        gate = self.activation(self.gate(x))
        y = self.last(self.pair(x, gate))
        return (y, gate) if self.stored else y


@pytest.mark.parametrize("rows", [1, 65, 300])
@pytest.mark.parametrize("pair", PAIRS)
def test_pairs(pair, rows, small_gpu):
    torch.manual_seed(1)
    run(Gated(pair, activation=nn.Sigmoid()).bfloat16(), (torch.randn(rows, 64).bfloat16(),), small_gpu)


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "f16"])
def test_a_gate_that_is_stored(dtype, stored, small_gpu):
    torch.manual_seed(2)
    model = Gated("sub", width=72, bias=not stored, stored=stored, outputs=9)
    run(model.to(dtype), (torch.randn(65, 72, dtype=dtype),), small_gpu)


@pytest.mark.parametrize("precision, bound", [("highest", 2e-6), ("high", 1e-3)])
def test_f32(precision, bound, small_gpu):
    torch.manual_seed(3)
    model = Gated("mul", width=40, activation=nn.Tanh(), stored=True)
    run(model, (torch.randn(65, 40),), small_gpu, bound, precision=precision)


class Twice(nn.Module):
    """A gate of a product's tile, which two stages read; the first of them is a product's epilogue."""

    def __init__(self, width):
        super().__init__()
        self.first, self.gate = nn.Linear(64, width), nn.Linear(width, 1)
        self.second, self.last = nn.Linear(width, width), nn.Linear(width, 32)

    def forward(self, x):
        x = torch.relu(self.first(x))
        gate = torch.sigmoid(self.gate(x))
        x = torch.tanh(self.second(x)) * gate
        return self.last(x) + gate


@pytest.mark.parametrize("width", [48, 136])
def test_a_gate_that_is_used_twice(width, small_gpu):
    torch.manual_seed(4)
    run(Twice(width).bfloat16(), (torch.randn(65, 64).bfloat16(),), small_gpu)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "f32"])
def test_a_gate_in_a_cluster(dtype, small_gpu):
    """Each of its CTAs has all gates, and a part of the columns of other tiles."""
    torch.manual_seed(5)
    args = (torch.randn(65, 64, dtype=dtype),)
    run(Twice(64).to(dtype), args, small_gpu, place="cluster=2")
    run(Gated("add", outputs=32, stored=True).to(dtype), args, small_gpu, place="cluster=2")


class Column(nn.Module):
    """One column of a product's tile scales what follows: the column itself is read, or what a mean makes of it."""

    def __init__(self, column, wide, width):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(48, wide), nn.Linear(wide, width), nn.Linear(width, 24)
        self.column = column

    def forward(self, x):
        x = torch.relu(self.first(x))
        gate = x[:, self.column : self.column + 1]
        y = torch.tanh(self.second(x)) * gate
        return self.last(y) + torch.sigmoid(gate) * 2


@pytest.mark.parametrize("column, wide", [(0, 3), (5, 7), (11, 64), (130, 136)])
def test_a_column_of_a_tile(column, wide, small_gpu):
    torch.manual_seed(6)
    run(Column(column, wide, 32).bfloat16(), (torch.randn(65, 48).bfloat16(),), small_gpu)


class Mean(nn.Module):
    """What is made of a mean is a tile of one column that no product computes."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(48, 64), nn.Linear(64, 64), nn.Linear(64, 8)

    def forward(self, x):
        x = torch.relu(self.first(x))
        gate = torch.sigmoid(x.mean(-1, keepdim=True))
        y = torch.tanh(self.second(x)) * gate
        return self.last(y) - gate, gate


def test_what_is_made_of_a_mean(small_gpu):
    torch.manual_seed(7)
    run(Mean().half(), (torch.randn(65, 48).half(),), small_gpu)
