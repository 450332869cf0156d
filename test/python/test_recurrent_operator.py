"""Recurrent layers as one operator: on a CPU and in the simulator, of any batch and any number of steps, held against
torch in float64; how GPUs share their steps."""

from dataclasses import replace

import pytest
import torch
from functions import on_both
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import kitsune_mlir
from kitsune_mlir.codegen import gpu_recurrent
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.planning import recurrences
from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.recurrences import GATES, STATIC, Layer, Shares
from kitsune_mlir.tools.gpusim import Simulation

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
ANY = {0: torch.export.Dim("a", min=1, max=512), 1: torch.export.Dim("b", min=1, max=512)}


class Both(nn.Module):
    """All that a recurrent layer gives, from first states of its caller's, or from none."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x, *states):
        found, last = self.network(x, states if len(states) == 2 else states[0] if states else None)
        return (found, *last) if isinstance(last, tuple) else (found, last)


def check(run, model, dtype, *args):
    with torch.no_grad():
        wanted = model.double()(*(x.double() for x in args))
    model.to(dtype)
    bound = {F32: 2e-6, F16: 3e-3, BF16: 2e-2}[dtype]
    for a, b in zip(run(*args), wanted, strict=True):
        torch.testing.assert_close(torch.as_tensor(a).double(), b, rtol=0, atol=bound)


def kernels(made):
    return [launch["kernel"] for launch in made.plan["launches"]]


CASES = {
    "lstm": (lambda: nn.LSTM(9, 40, batch_first=True), (6, 5), F32),
    "gru, both ways, two layers": (lambda: nn.GRU(9, 24, num_layers=2, bidirectional=True), (5, 3), F32),
    "tanh, time second": (lambda: nn.RNN(9, 33, batch_first=True), (2, 7), F32),
    "relu, no biases": (lambda: nn.RNN(9, 17, nonlinearity="relu", bias=False), (4, 2), F32),
    "lstm in bf16": (lambda: nn.LSTM(9, 72, batch_first=True, bidirectional=True), (30, 4), BF16),
    "projected": (lambda: nn.LSTM(9, 40, proj_size=7, batch_first=True), (6, 5), F32),
    "projected, both ways": (lambda: nn.LSTM(9, 24, 2, proj_size=8, bidirectional=True), (5, 3), BF16),
    "gru in f16": (lambda: nn.GRU(9, 130), (4, 9), F16),
}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("name", CASES)
def test_any_batch_and_any_number_of_steps(name):
    make, sizes, dtype = CASES[name]
    torch.manual_seed(0)
    model = Both(make().eval().to(dtype))
    x = torch.randn(*sizes, 9).to(dtype)
    cpu, gpu = on_both(model, (x,), dynamic_shapes=(ANY,))
    for own in (x, torch.randn(1, 1, 9).to(dtype), torch.randn(7, 11, 9).to(dtype)):
        for run in (cpu, gpu):
            check(run, model, dtype, own)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("projected", [0, 6])
def test_states_of_the_caller(projected):
    torch.manual_seed(0)
    model = Both(nn.LSTM(8, 20, batch_first=True, bidirectional=True, proj_size=projected).eval())
    args = torch.randn(5, 4, 8), torch.randn(2, 5, projected or 20), torch.randn(2, 5, 20)
    for run in on_both(model, args):
        check(run, model, F32, *args)


def test_what_reads_results_has_their_sizes():
    """Open rows of a layer's results are those of its input, of which there is an example."""
    model = Both(nn.LSTM(12, 16, num_layers=2, proj_size=6).eval().bfloat16())
    args = torch.randn(5, 3, 12).bfloat16(), torch.randn(2, 3, 6).bfloat16(), torch.randn(2, 3, 16).bfloat16()
    steps, batch = torch.export.Dim("steps", min=1, max=999), torch.export.Dim("batch", min=1, max=999)
    shapes = ({0: steps, 1: batch}, ({1: batch}, {1: batch}))
    made = kitsune_mlir.compile(model, args, target="sm_90a", dynamic_shapes=shapes)
    assert made.plan["predicted_us"] < 60


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_all_steps_are_one_launch(target):
    """Compilation does not take longer for more steps; code for GPUs without clusters as well."""
    model = nn.GRU(16, 48, batch_first=True).eval()
    made = kitsune_mlir.compile(model, (torch.randn(3, 300, 16),), target=target)
    assert len(kernels(made)) <= 4 and any(name.startswith("recurrent") for name in kernels(made))


# Rows and CTAs of a cluster, its threads, columns of each: weights that are held, in part, not at all.
FORCED = [(2, 4, 128, 2, 1 << 17), (4, 2, 256, 4, 20 << 10), (1, 8, 128, 1, 0), (8, 1, 256, 8, 9 << 10)]


@pytest.mark.parametrize("dtype", [F32, F16])
@pytest.mark.parametrize("form", FORCED)
def test_however_they_are_shared(form, dtype, monkeypatch):
    rows, cluster, threads, each, room = form
    monkeypatch.setattr(
        gpu_recurrent, "choose", lambda layer, target: Shares(layer, rows, cluster, threads, each, room, room)
    )
    torch.manual_seed(0)
    model = Both(nn.LSTM(6, 100, batch_first=True).eval().to(dtype))
    x = torch.randn(5, 4, 6).to(dtype)
    made = kitsune_mlir.compile(model, (x,), target="sm_90a")
    check(Simulation(made, seed=1), model, dtype, x)


def test_large_products_are_steps_of_their_own():
    """They go to tensor cores, as long as they are few."""
    model = nn.LSTM(64, 256, batch_first=True).to(BF16).eval()
    made = kitsune_mlir.compile(model, (torch.randn(128, 4, 64).to(BF16),), target="sm_90a")
    assert not any(name.startswith("recurrent") for name in kernels(made))


def test_open_steps_of_what_is_no_operator():
    network, x = nn.GRU(8, 16, batch_first=True).double(), torch.randn(2, 5, 8).double()
    with pytest.raises(UnsupportedError, match="an open number of steps"):
        kitsune_mlir.compile(network.eval(), (x,), target="cpu", dynamic_shapes=({1: torch.export.Dim("t", min=2)},))


layers = st.builds(
    Layer,
    rows=st.integers(1, 300),
    directions=st.integers(1, 2),
    steps=st.integers(1, 500),
    width=st.integers(1, recurrences.MOST_WIDTH),
    gates=st.sampled_from(sorted({*GATES.values()})),
    element_bytes=st.sampled_from([2, 4]),
)


@settings(max_examples=60, deadline=None)
@given(layers, st.sampled_from(["sm_90a", "sm_80"]))
def test_shares(layer, name):
    """There are some for every layer; shared memory holds what they say, and all columns are somebody's."""
    target = targets.load(name)
    own = recurrences.choose(layer, target)
    assert own is not None and own.microseconds > 0
    whole = max(own.least_bytes, own.weight_bytes() + own.static_bytes())
    assert whole <= target.shared_bytes and (own.is_one or own.static_bytes() <= STATIC)
    assert own.columns * own.cluster >= layer.width and own.across * own.each >= own.own
    assert own.across * own.slices <= own.threads and own.padded >= layer.width and own.held <= own.slice
    assert own.pitch // own.word % 2 == 1 and own.pitch >= own.slices * own.held
    assert replace(own, rows=own.rows).items * own.threads >= own.rows * own.columns
