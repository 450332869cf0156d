"""Steps of recurrent networks as one kernel: what becomes one, and its numbers in the simulator and the interpreter."""

import re

import numpy as np
import pytest
import torch
from test_recurrent import ROUNDING, Last, gru, kernels, lstm
from torch import nn

import kitsune_mlir
from kitsune_mlir.dialects import schedule as dialect
from kitsune_mlir.passes.schedule_events import Reading
from kitsune_mlir.planning import schedule_proof
from kitsune_mlir.planning import target as targets
from kitsune_mlir.schedule import Program
from kitsune_mlir.tools.gpusim import Simulation

ALWAYS = {"gated-products": "steps=always"}
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
GPU = targets.load("sm_90a")


class Ends(nn.Module):
    """What a network's states are behind the last step, of [n, time, width]."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        return self.network(x)[1]


class Decoder(nn.Module):
    """A cell whose inputs are computed of its own states, by a layer besides."""

    def __init__(self, width):
        super().__init__()
        self.cell, self.layer = nn.GRUCell(width, width), nn.Linear(width, width)

    def forward(self, x, h):
        for _ in range(5):
            h = self.cell(x, h)
            x = torch.softmax(self.layer(h), -1)
        return h


class Layers(nn.Module):
    """Cells one behind the other, each with weights of its own."""

    def __init__(self, width):
        super().__init__()
        self.cells = nn.ModuleList(nn.GRUCell(width, width) for _ in range(5))

    def forward(self, x, h):
        for cell in self.cells:
            h = cell(x, h)
        return h


class Stepwise(nn.Module):
    """A GRU's cell whose inputs [time, n, 3 * width] have been multiplied, over every so many of them, backwards where
    that is negative, from a state that is given; all states."""

    def __init__(self, width, step):
        super().__init__()
        self.layer, self.step = nn.Linear(width, 3 * width), step

    def forward(self, inputs, h):
        found = []
        for i in range(inputs.shape[0])[:: self.step]:
            a, b, c = inputs[i].chunk(3, -1)
            d, e, f = self.layer(h).chunk(3, -1)
            r, z = torch.sigmoid(a + d), torch.sigmoid(b + e)
            h = (1 - z) * torch.tanh(c + r * f) + z * h
            found.append(h)
        return torch.stack(found)


def compiled(model, args, options=None):
    return kitsune_mlir.compile(model, args, target="sm_90a", options=options or ALWAYS)


def made(make, *args):
    torch.manual_seed(0)
    dtype = args[0].dtype
    return make().to(dtype).eval()


def check(got, want, dtype):
    for one, other in zip(got, want, strict=True):
        wanted = other.detach().float()
        torch.testing.assert_close(
            torch.as_tensor(one).float(), wanted, rtol=0, atol=ROUNDING[dtype] * max(1.0, float(wanted.abs().max()))
        )


@pytest.mark.parametrize(
    ("make", "size", "dtype", "form"),
    [
        (lambda: lstm(32, 128), (64, 6, 32), BF16, "tensor<16x8xbf16>"),
        (lambda: lstm(24, 64), (70, 5, 24), F16, "tensor<64x8xf16>"),  # the last tile reaches behind the last row
        (lambda: gru(20, 64), (64, 5, 20), F32, "tensor<16x8xbf16>"),
        (lambda: gru(20, 128), (70, 5, 20), F32, "tensor<64x8xbf16>"),
        (lambda: gru(16, 64, num_layers=2), (80, 5, 16), BF16, "tensor<16x8xbf16>"),
    ],
)
def test_numbers(make, size, dtype, form):
    torch.manual_seed(0)
    model, x = make().to(dtype).eval(), torch.randn(*size).to(dtype)
    program = compiled(model, (x,))
    assert "steps0" in kernels(program)
    assert form in " ".join(re.findall(r'"kitsune.collect".*', program.mlir("sm_90a:gated-products")))
    check([Simulation(program, seed=1)(x)], [model(x)], dtype)


@pytest.mark.parametrize("step", [1, 2, -1])
def test_steps_are_read_and_written_in_any_order(step):
    torch.manual_seed(0)
    model, args = Stepwise(64, step), (torch.randn(9, 64, 192), torch.randn(64, 64))
    program = compiled(model, args)
    assert kernels(program).count("steps0") == 1
    check([Simulation(program, seed=2)(*args)], [model(*args)], F32)


def test_states_behind_the_last_step():
    """They leave behind the loop, others nowhere."""
    torch.manual_seed(0)
    model, x = Ends(nn.LSTM(32, 64, batch_first=True)).to(BF16).eval(), torch.randn(64, 6, 32).to(BF16)
    program = compiled(model, (x,))
    assert "steps0" in kernels(program)
    check(Simulation(program, seed=3)(x), model(x), BF16)


@pytest.mark.parametrize("make", [lambda: Decoder(64), lambda: Layers(64)])
def test_steps_that_are_not_equal(make):
    """Something else stands between them, or their weights differ."""
    torch.manual_seed(0)
    model, args = make().eval(), (torch.randn(64, 64), torch.randn(64, 64))
    program = compiled(model, args)
    assert not any(name.startswith("steps") for name in kernels(program))
    check([Simulation(program, seed=1)(*args)], [model(*args)], F32)


def test_widths_that_have_no_such_kernel():
    model, x = made(lambda: gru(20, 72), torch.zeros(1)), torch.randn(64, 5, 20)
    assert "steps0" not in kernels(compiled(model, (x,)))


def test_it_is_chosen_by_time():
    """One launch where weights are small, one for each step where each CTA would have much to compute."""
    torch.manual_seed(0)
    x = torch.randn(64, 8, 64).to(BF16)
    small = Last(nn.GRU(64, 128, batch_first=True)).to(BF16).eval()
    assert "steps0" in kernels(kitsune_mlir.compile(small, (x,), target="sm_90a"))
    assert "steps0" not in kernels(compiled(small, (x,), {"gated-products": "steps=never"}))


@pytest.mark.parametrize("dtype", [BF16, F32])
def test_it_is_proven_and_interpreted(dtype):
    """The kernel alone, agents in random orders."""
    torch.manual_seed(0)
    model, args = Stepwise(64, 1).to(dtype), (torch.randn(5, 64, 192).to(dtype), torch.randn(64, 64).to(dtype))
    module = compiled(model, args).module("sm_90a:gated-products")
    (kernel,) = (op for op in dialect.kernels(module) if op.label == "steps0")
    assert schedule_proof.verify(Reading(kernel).schedule(), GPU) == []
    parameters = [*model.state_dict().values(), *args]
    given = [np.asarray(value.detach().float()) for value in parameters]
    want = model(*args).detach().float()
    for seed in range(3):
        found = Program(kernel).run(given, ctas=2 * kernel.cluster, seed=seed)
        got = torch.as_tensor(np.asarray(found[0], np.float32)).reshape(want.shape)
        torch.testing.assert_close(got, want, rtol=0, atol=ROUNDING[dtype])
