"""torch's recurrent layers with an open batch, in the simulator and on a CPU, held against torch in float64."""

import pytest
import torch
from torch import nn

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")

CASES = {
    "lstm": lambda: nn.LSTM(12, 32, batch_first=True),
    "lstm-odd": lambda: nn.LSTM(7, 19, num_layers=2),
    "lstm-projected": lambda: nn.LSTM(12, 32, batch_first=True, proj_size=8, bidirectional=True),
    "lstm-without-biases": lambda: nn.LSTM(16, 16, bias=False),
    "gru": lambda: nn.GRU(8, 64, batch_first=True, num_layers=2),
    "gru-both-ways": lambda: nn.GRU(12, 24, batch_first=True, bidirectional=True),
    "rnn": lambda: nn.RNN(8, 16, batch_first=True),
    "rnn-relu": lambda: nn.RNN(5, 9, nonlinearity="relu", bidirectional=True),
}


def compiled(name, target):
    torch.manual_seed(0)
    model = CASES[name]().eval()
    size = (6, 4, model.input_size) if model.batch_first else (4, 6, model.input_size)
    batch = torch.export.Dim("batch", min=1, max=4096)
    shapes = ({0 if model.batch_first else 1: batch},)
    return kitsune_mlir.compile(model, (torch.randn(size),), target=target, dynamic_shapes=shapes), model


def check(call, model, batch):
    x = torch.randn((batch, 4, model.input_size) if model.batch_first else (4, batch, model.input_size))
    got, last = call(x)
    with torch.no_grad():
        want, ends = model.double()(x.double())
    model.float()
    found, wanted = ([got, *last], [want, *ends]) if model.mode == "LSTM" else ([got, last], [want, ends])
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(torch.as_tensor(a).double(), b, rtol=0, atol=5e-6)


@pytest.mark.parametrize("name", CASES)
def test_open_batches_on_a_cpu(name):
    made, model = compiled(name, "cpu")
    for batch in (6, 1, 13):
        check(made, model, batch)


@pytest.mark.parametrize("name", CASES)
def test_open_batches_on_a_gpu(name):
    made, model = compiled(name, "sm_90a")
    for batch in (7, 1):
        check(Simulation(made, seed=1), model, batch)
