"""What the compiler knows to be the same in every call."""

import torch
from torch import nn

import kitsune_mlir
from kitsune_mlir import mlir, weights
from kitsune_mlir.frontend import import_model
from kitsune_mlir.tools.gpusim import Simulation


class Counted(nn.Module):
    """A parameter that stays, and a buffer that a call changes."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8, bias=False)
        self.register_buffer("calls", torch.zeros(8))

    def forward(self, x):
        self.calls.add_(1)
        return self.layer(x) + self.calls


def test_what_a_call_changes_is_no_weight():
    program = import_model(Counted(), (torch.randn(2, 8),))
    weights.give(program.module, program.arguments, program.outputs)
    (main,) = [op for op in program.module.body.operations if "sym_name" in op.attributes]
    own = [program.arguments[i].spec.name for i in main.attributes[weights.ATTRIBUTE]]
    assert [name.split(".")[-1] for name in own] == ["weight"]


def test_what_is_computed_of_weights_alone_is_one():
    module = mlir.parse(
        """
        func.func @main(%w: tensor<8x4xf32>, %x: tensor<8x4xf32>) attributes {kitsune.weights = array<i64: 0>} {
          %e = tensor.empty() : tensor<4x8xf32>
          %own = linalg.transpose ins(%w : tensor<8x4xf32>) outs(%e : tensor<4x8xf32>) permutation = [1, 0]
          %given = linalg.transpose ins(%x : tensor<8x4xf32>) outs(%e : tensor<4x8xf32>) permutation = [1, 0]
          %flat = tensor.collapse_shape %own [[0, 1]] : tensor<4x8xf32> into tensor<32xf32>
          return
        }
        """,
        mlir.context(),
    )
    (main,) = module.body.operations
    found = [weights.is_weight(op.results[0]) for op in list(main.regions[0].blocks[0].operations)[1:4]]
    assert found == [True, False, True]


def test_a_deep_network_of_weights():
    """A Perceiver's queries are computed of parameters, through layers without end; sums with what a layer was given
    double the ways to each."""
    count = 1500
    add = "linalg.add ins(%{0}, %{0} : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>"
    lines = [f"%{number + 1} = {add.format(number)}" for number in range(count)]
    module = mlir.parse(
        f"""
        func.func @main(%w: tensor<4xf32>) attributes {{kitsune.weights = array<i64: 0>}} {{
          %e = tensor.empty() : tensor<4xf32>
          %0 = linalg.add ins(%w, %w : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
          {chr(10).join(lines)}
          return
        }}
        """,
        mlir.context(),
    )
    (main,) = module.body.operations
    assert weights.is_weight(list(main.regions[0].blocks[0].operations)[count + 1].results[0])


def test_rows_of_a_weight_are_laid_out_once():
    torch.manual_seed(0)
    model, x = nn.Linear(104, 512).bfloat16(), torch.randn(300, 104).bfloat16()
    compiled = kitsune_mlir.compile(model, (x,), target="sm_90a")
    assert "kitsune.padded" in compiled.mlir("sm_90a:schedule-products")
    assert [launch["form"] for launch in compiled.plan["launches"]] == ["scheduled product"]
    with torch.no_grad():
        torch.testing.assert_close(torch.as_tensor(Simulation(compiled, seed=1)(x)), model(x), rtol=2e-2, atol=2e-2)
