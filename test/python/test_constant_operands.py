"""Operands that are one scalar everywhere: streamed (an LSTM's first state) and resident (a weight of ones)."""

import pytest
import torch

import kitsune_mlir


class Padded(torch.nn.Module):
    """Concatenates zeros to every row."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(12, 4)

    def forward(self, x):
        zeros = torch.zeros(x.shape[0], 4, dtype=x.dtype)
        return self.second(torch.cat([torch.relu(self.first(x)), zeros], 1))


class Summed(torch.nn.Module):
    """Multiplies by a weight of ones."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.relu(self.layer(x)) @ torch.ones(8, 5) + torch.full((5,), 2.0)


CASES = {
    "padded": (Padded(), (33, 8)),
    "summed": (Summed(), (33, 8)),
    "lstm": (torch.nn.LSTM(8, 16, batch_first=True), (3, 5, 8)),
    "gru": (torch.nn.GRU(8, 16, batch_first=True), (3, 5, 8)),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_torch(name):
    model, shape = CASES[name]
    x = torch.randn(shape)
    compiled = kitsune_mlir.compile(model.eval(), (x,), target=["cpu", "sm_90a"])
    assert compiled.plans["cpu"]["operators"]["pipelined"] > 0
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-6)


def test_tiles_of_one_number_beside_computed_ones_in_16_bits():
    """They have no form at the schedule level, which placement knows: their chain is cut."""
    model, x = Padded().bfloat16(), torch.randn(33, 8).bfloat16()
    compiled = kitsune_mlir.compile(model, (x,), target="sm_90a")
    assert "fused" not in {launch["form"] for launch in compiled.plan["launches"]}
