"""Gradients by what a recurrent layer is given, within a model: their steps are traced, all others' are not."""

import pytest
import torch
from functions import OfOne
from torch import nn

import kitsune_mlir
from kitsune_mlir.frontend import import_model, recurrent_cells


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_within_a_model(kind):
    torch.manual_seed(0)
    layer = kind(4, 6)

    def gradient(x):
        with torch.enable_grad():
            x = x.requires_grad_(True)
            (found,) = torch.autograd.grad(layer(x)[0].square().sum(), x)
        return found.detach()

    x = torch.randn(5, 2, 4)
    compiled = kitsune_mlir.compile(OfOne(gradient), (x.clone(),), target="cpu")
    torch.testing.assert_close(compiled(x.clone()), gradient(x.clone()))


def test_many_steps_are_not_traced(monkeypatch):
    def refuse(*args, **options):
        raise AssertionError("the steps of a layer are traced")

    monkeypatch.setattr(recurrent_cells, "_torch_layer", refuse)
    layer = nn.LSTM(4, 6, num_layers=2, bidirectional=True).eval()
    assert "kitsune.recurrent" in str(import_model(layer, (torch.randn(400, 2, 4),)).module)
