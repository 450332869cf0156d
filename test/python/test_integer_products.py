"""Products of 8-bit integers are products of tensor cores, and exact."""

import pytest
import torch
from functions import Function

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")


def numbers(*shape):
    return torch.randint(-128, 128, shape, dtype=torch.int8)


class Layer(torch.nn.Module):
    """Rows as 8-bit numbers by their largest, a layer of such, scales: [n, k] -> [n, m] of f32."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.register_buffer("weight", numbers(inputs, outputs))

    def forward(self, x):
        scale = x.abs().amax(-1, keepdim=True) / 127
        return torch._int_mm((x / scale).round().to(torch.int8), self.weight) * scale


@pytest.mark.parametrize(("count", "length", "columns"), [(17, 40, 24), (33, 1025, 9), (20, 2200, 72)])
def test_sums_are_exact(count, length, columns):
    """The largest numbers are among them."""
    x, y = numbers(count, length), numbers(length, columns)
    x[0], x[1], y[:, 0] = -128, 127, -128
    want = (x.long() @ y.long()).int()
    for target in ("cpu", "sm_90a"):
        made = kitsune_mlir.compile(Function(torch._int_mm), (x, y), target=target)
        got = made(x, y) if target == "cpu" else Simulation(made, seed=1)(x, y)
        assert torch.equal(torch.as_tensor(got), want)


def test_a_layer_of_open_rows():
    """Its operands are bf16, and its rows are rounded by the kernel that finds their largest."""
    torch.manual_seed(0)
    model, rows = Layer(64, 48).eval(), {0: torch.export.Dim("rows", min=2, max=4096)}
    made = kitsune_mlir.compile(model, (torch.randn(512, 64),), target="sm_90a", dynamic_shapes=(rows,))
    assert len(made.plan["launches"]) <= 2
    x = torch.randn(37, 64)
    torch.testing.assert_close(torch.as_tensor(Simulation(made, seed=1)(x)), model(x), rtol=1e-6, atol=1e-4)


def test_a_product_of_two_arguments_is_one_of_bf16():
    x, y = numbers(256, 1024), numbers(1024, 512)
    made = kitsune_mlir.compile(Function(torch._int_mm), (x, y), target="sm_90a")
    (product,) = [launch for launch in made.plan["launches"] if launch["form"] == "scheduled product"]
    assert "pieces" not in product["computes"]
