"""Recurrent networks, exported with their loops unrolled: what a step launches, and numbers in the simulator."""

import pytest
import torch
from torch import nn

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled", "one_by_one")

ROUNDING = {torch.float32: 5e-6, torch.bfloat16: 2e-2, torch.float16: 3e-3}


class States(nn.Module):
    """A state for each channel, and sums over the states: [n, time, width] -> the same. Steps are read where they lie,
    as columns of longer rows."""

    def __init__(self, width, states):
        super().__init__()
        self.choice, self.rates = nn.Linear(width, 2 * states), nn.Parameter(torch.rand(width, states))

    def forward(self, x):
        into, out = self.choice(x).chunk(2, -1)
        state = torch.zeros(x.shape[0], *self.rates.shape, dtype=x.dtype)
        found = []
        for i in range(x.shape[1]):
            state = state * torch.exp(-self.rates) + x[:, i, :, None] * into[:, i, None]
            found.append((state * out[:, i, None]).sum(-1))
        return torch.stack(found, 1)


class Last(nn.Module):
    """A layer of what torch's own network gives last, of [n, time, width], or always, where it has two directions."""

    def __init__(self, network):
        super().__init__()
        self.network, self.out = network, nn.Linear(network.hidden_size * (1 + network.bidirectional), 5)

    def forward(self, x):
        found = self.network(x)[0]
        return self.out(found if self.network.bidirectional else found[:, -1])


def lstm(width, hidden, **kwargs):
    return Last(nn.LSTM(width, hidden, batch_first=True, **kwargs))


def gru(width, hidden, **kwargs):
    return Last(nn.GRU(width, hidden, batch_first=True, **kwargs))


def compiled(make, size, dtype, target="sm_90a", **options):
    torch.manual_seed(0)
    model, x = make().to(dtype).eval(), torch.randn(*size).to(dtype)
    return kitsune_mlir.compile(model, (x,), target=target, options=options), model, x


def check(made, model, x):
    want, got = model(x).detach().float(), torch.as_tensor(Simulation(made, seed=1)(x)).float()
    torch.testing.assert_close(got, want, rtol=0, atol=ROUNDING[x.dtype] * max(1.0, float(want.abs().max())))


def kernels(made):
    return [launch["kernel"].rpartition("_")[0] or launch["kernel"] for launch in made.plan["launches"]]


@pytest.mark.parametrize(
    ("make", "size", "dtype"),
    [
        (lambda: States(128, 8), (5, 4, 128), torch.float32),
        (lambda: States(64, 8), (3, 3, 64), torch.bfloat16),
        (lambda: lstm(32, 32), (24, 3, 32), torch.float32),
        (lambda: lstm(64, 64), (64, 3, 64), torch.bfloat16),
    ],
)
def test_steps_are_read_where_they_lie(make, size, dtype):
    """What is copied are results of steps, side by side."""
    made, model, x = compiled(make, size, dtype)
    assert kernels(made).count("copy") <= 1
    check(made, model, x)


@pytest.mark.parametrize(
    ("make", "size", "dtype"),
    [
        (lambda: States(7, 3), (3, 3, 7), torch.float32),  # steps begin within 16 bytes
        (lambda: lstm(9, 5), (3, 3, 9), torch.float32),
        (lambda: lstm(20, 33, bidirectional=True), (3, 3, 20), torch.bfloat16),
        (lambda: gru(12, 17), (1, 3, 12), torch.float32),
        (lambda: gru(20, 72), (70, 3, 20), torch.float32),  # gates of products in pieces
    ],
)
def test_steps_of_odd_sizes(make, size, dtype):
    check(*compiled(make, size, dtype))


@pytest.mark.parametrize(
    ("make", "size", "dtype", "target"),
    [
        (lambda: lstm(64, 64), (64, 3, 64), torch.bfloat16, "sm_90a"),
        (lambda: lstm(24, 72), (70, 3, 24), torch.float16, "sm_90a"),  # no tile is full
        (lambda: lstm(64, 64), (64, 3, 64), torch.bfloat16, "sm_80"),
        (lambda: gru(64, 64), (64, 3, 64), torch.bfloat16, "sm_90a"),
    ],
)
def test_a_step_is_one_kernel(make, size, dtype, target):
    """The product with its gates behind it, which lie side by side: a launch for each of the steps."""
    made, model, x = compiled(make, size, dtype, target, **{"gated-products": "steps=never"})
    assert sum(name.startswith("gated") for name in kernels(made)) == 3
    assert len(made.plan["launches"]) <= 3 + 6
    check(made, model, x)


@pytest.mark.parametrize(
    ("make", "size", "dtype"),
    [
        (lambda: lstm(40, 32, bidirectional=True), (16, 3, 40), torch.float32),
        (lambda: lstm(20, 40, bidirectional=True), (5, 3, 20), torch.bfloat16),
        (lambda: gru(20, 48), (1, 3, 20), torch.float32),
    ],
)
def test_a_step_of_few_rows_is_one_kernel(make, size, dtype):
    """The products are sums along rows, and gates are of their row group; both directions' steps are one kernel."""
    made, model, x = compiled(make, size, dtype)
    assert len(made.plan["launches"]) <= size[1] + 8
    check(made, model, x)


class Two(nn.Module):
    """Norms of two tensors, and norms of one behind the other, whose rows are the columns of that."""

    def forward(self, x, y, z):
        behind = torch.softmax(torch.softmax(z, -1).T.contiguous() * z, -1)
        return torch.softmax(x, -1), nn.functional.layer_norm(y, y.shape[-1:]), behind


def test_row_groups_beside_each_other():
    """Those of which neither needs the other are one kernel."""
    args = torch.randn(48, 64), torch.randn(48, 64), torch.randn(56, 56)
    made = kitsune_mlir.compile(Two(), args, target="sm_90a")
    assert sum(name.startswith("rows") for name in kernels(made)) == 3
    for got, want in zip(Simulation(made, seed=1)(*args), Two()(*args), strict=True):
        torch.testing.assert_close(torch.as_tensor(got), want, rtol=0, atol=1e-5)


def test_a_step_that_two_kernels_read():
    """Its rows are handed to both."""

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))

        def forward(self, x):
            a, b, c = self.layers
            y = a(x).relu()
            return torch.softmax(y[1] @ y[2].T, -1) @ b(y[1]), c(y[1]).softmax(-1) + y[1]

    torch.manual_seed(0)
    model, x = Both(), torch.randn(3, 64, 64)
    made = kitsune_mlir.compile(model, (x,), target="sm_90a")
    for got, want in zip(Simulation(made, seed=1)(x), model(x), strict=True):
        torch.testing.assert_close(torch.as_tensor(got), want.detach(), rtol=0, atol=1e-5)


class Cell(nn.Module):
    """Two steps from a state of zeros."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(8, 40)

    def forward(self, x, y):
        zeros = x.new_zeros(x.shape[0], self.cell.hidden_size)
        return self.cell(y, self.cell(x, (zeros, zeros)))[0]


def test_gates_of_open_rows_that_something_else_is_added_to():
    """Parts are taken out of what is added, too."""
    torch.manual_seed(0)
    model, rows = Cell().eval(), {0: torch.export.Dim("rows", min=2, max=4096)}
    example = torch.randn(2048, 8), torch.randn(2048, 8)
    made = kitsune_mlir.compile(model, example, target="sm_90a", dynamic_shapes=(rows, rows))
    assert "gated0" in [launch["kernel"] for launch in made.plan["launches"]]
    args = torch.randn(70, 8), torch.randn(70, 8)
    got = torch.as_tensor(Simulation(made, seed=1)(*args))
    torch.testing.assert_close(got, model(*args).detach(), rtol=0, atol=ROUNDING[torch.float32])


class Averages(nn.Module):
    """Weighted averages of all steps so far, by exponents whose largest is carried along, as RWKV has them."""

    def forward(self, keys, values, bonus, decay):
        above = below = torch.zeros_like(keys[:, 0])
        largest, found = above - 1e38, []
        for key, value in zip(keys.unbind(1), values.unbind(1), strict=True):
            top = torch.maximum(largest, bonus + key)
            old, new = torch.exp(largest - top), torch.exp(bonus + key - top)
            found.append((old * above + new * value) / (old * below + new))
            top = torch.maximum(largest + decay, key)
            old, new = torch.exp(largest + decay - top), torch.exp(key - top)
            above, below, largest = old * above + new * value, old * below + new, top
        return torch.stack(found, 1)


def test_elementwise_steps_of_open_rows_are_few_kernels():
    """There are as many kernels as with known rows, and as many threads."""
    torch.manual_seed(0)
    steps, batch = 12, {0: torch.export.Dim("batch")}
    args = torch.randn(6, steps, 40), torch.randn(6, steps, 40), torch.randn(40), -torch.rand(40)
    made = kitsune_mlir.compile(Averages(), args, target="sm_90a", dynamic_shapes=(batch, batch, None, None))
    assert len(made.plan["launches"]) < steps // 2
    for rows in (1, 6, 11):
        args = torch.randn(rows, steps, 40), torch.randn(rows, steps, 40), *args[2:]
        got = torch.as_tensor(Simulation(made, seed=1)(*args))
        torch.testing.assert_close(got, Averages()(*args), rtol=0, atol=1e-5)
