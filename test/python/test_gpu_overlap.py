"""Weights that a kernel fetches before it waits for the one before it: only what no kernel writes, which the simulator
sees."""

import pytest
import torch

import kitsune_mlir
from kitsune_mlir.passes import convert_kitsune_to_gpu, overlap_launches
from kitsune_mlir.tools.gpusim import MemoryFault, Simulation


class Steps(torch.nn.Module):
    """Two chains of layers with a sum over rows between them, so that they are kernels of their own."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
        self.second = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))

    def forward(self, x):
        h = self.first(x)
        return self.second(h - h.float().mean(0).to(h.dtype))


def compiled():
    torch.manual_seed(0)
    model, x = Steps().bfloat16().eval(), torch.randn(200, 64, dtype=torch.bfloat16)
    return model, x, kitsune_mlir.compile(model, (x,), target="sm_90a")


def test_weights_are_fetched_before_the_wait():
    model, x, made = compiled()
    found = Simulation(made)(x).double()
    with torch.no_grad():
        wanted = model.float()(x.float()).double()
    assert (found - wanted).norm() <= 1e-2 * wanted.norm()
    second = made.mlir("sm_90a:overlap-launches").partition("gpu.func @pipeline1(")[2]
    early = second.index("kitsune.reads")
    assert "cp.async.bulk.tensor" in second[:early]
    assert "griddepcontrol wait" not in second[: second.index("cp.async.bulk.tensor")]
    assert "griddepcontrol wait" in second[early:]


def test_what_a_kernel_writes_is_not(monkeypatch):
    monkeypatch.setattr(convert_kitsune_to_gpu, "_is_constant", lambda value: True)
    everything = {name: set(range(100)) for name in ("pipeline0_part0", "pipeline1")}
    monkeypatch.setattr(overlap_launches, "constant_tensors", lambda module: everything)
    _, x, made = compiled()
    with pytest.raises(MemoryFault, match="pipeline1 is faulty: argument .* used before the wait"):
        Simulation(made)(x)
