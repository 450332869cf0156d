"""What takes long is computed once, however many elements of others it is for."""

import pytest
import torch
from torch import nn

import kitsune_mlir
from kitsune_mlir.tools.gpusim.simulation import Simulation


class Decays(nn.Module):
    """What a number of each head makes of all its elements."""

    def forward(self, x, heads):
        rates = torch.log1p(-(2.0 ** (-5.0 - heads)))[:, None, None]
        return x * rates.abs()


ONE = "elementwise"


@pytest.mark.parametrize(
    "rows, least, found", [(6, None, [ONE]), (6, 1, [f"{ONE}, then {ONE}"]), (1500, None, [ONE] * 2)]
)
def test_powers_of_few_heads(rows, least, found, monkeypatch):
    """Before their reader where many elements take each, and in it where few do."""
    if least is not None:
        monkeypatch.setattr("kitsune_mlir.passes.apart_elements.LEAST", least)
    args = torch.randn(8, rows, rows), torch.arange(8.0)
    compiled = kitsune_mlir.compile(Decays(), args, target="sm_90a")
    assert [launch["computes"] for launch in compiled.plan["launches"]] == found
    if rows < 100:
        torch.testing.assert_close(torch.as_tensor(Simulation(compiled)(*args)), Decays()(*args))


def test_many_elements_of_an_open_number():
    """The example says how many there are; nothing is left of what kept them apart."""
    tokens = torch.export.Dim("tokens", min=2)
    args = torch.randn(8, 1500, 1500), torch.arange(8.0)
    compiled = kitsune_mlir.compile(Decays(), args, target="sm_90a", dynamic_shapes=({1: tokens, 2: tokens}, None))
    assert len(compiled.plan["launches"]) == 2
    assert "kitsune.apart" not in compiled.mlir("sm_90a:convert-linalg-to-gpu")


class Weighted(nn.Module):
    """Weights of keys [images, 4, queries, keys] times values of all heads [images, keys, width], both open."""

    def forward(self, scores, values):
        return scores.softmax(-1) @ values[:, None]


def test_what_tensor_cores_multiply(monkeypatch):
    """Each of 40 columns divided by the weights' sum again, in threads: 516 us of 676 of a decoder (predicted)."""
    monkeypatch.setattr("kitsune_mlir.passes.apart_elements.LEAST_PRODUCT", 1)
    monkeypatch.setattr("kitsune_mlir.codegen.gpu_products.LEAST", 1)
    batch, tokens = torch.export.Dim("batch", min=2), torch.export.Dim("tokens", min=2)
    args = torch.randn(2, 4, 24, 24).bfloat16(), torch.randn(2, 24, 40).bfloat16()
    shapes = {0: batch, 2: tokens, 3: tokens}, {0: batch, 1: tokens}
    compiled = kitsune_mlir.compile(Weighted(), args, target="sm_90a", dynamic_shapes=shapes)
    assert "wgmma" in compiled.ptx and not any(
        launch["form"] == "operator" and "product" in launch["computes"] for launch in compiled.plan["launches"]
    )
    torch.testing.assert_close(torch.as_tensor(Simulation(compiled)(*args)), Weighted()(*args), rtol=2e-2, atol=2e-2)
