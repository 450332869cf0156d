"""Models with sizes that are open until the call are planned for those of the example, and right for all others."""

import pytest
import torch
from functions import Function
from torch import nn

import kitsune_mlir
from kitsune_mlir import example_sizes, mlir
from kitsune_mlir.mlir import walk
from kitsune_mlir.planning.open_rows import NEAR, UNKNOWN_ROWS
from kitsune_mlir.tools.gpusim import Simulation

SIZES = """
func.func @main(%x: tensor<?x4x16xf32>, %t: tensor<?x16xf32>) -> tensor<?x16xf32> attributes {
    kitsune.example = [array<i64: 300, 4, 16>, array<i64: -1, 16>]} {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %flat = tensor.collapse_shape %x [[0, 1], [2]] : tensor<?x4x16xf32> into tensor<?x16xf32>
  %n = tensor.dim %flat, %c0 : tensor<?x16xf32>
  %is_negative = arith.cmpi slt, %n, %c0 : index
  %as_torch_mlir_has_it = arith.select %is_negative, %c2, %n : index
  %m = affine.apply affine_map<()[s0] -> (s0 * 2 + 1)>()[%as_torch_mlir_has_it]
  %wide_m = arith.index_cast %m : index to i64
  %narrow_m = arith.trunci %wide_m : i64 to i32
  %own_m = arith.index_cast %narrow_m : i32 to index
  %half = arith.divsi %own_m, %c2 : index
  %made = tensor.empty(%half) : tensor<?x16xf32>
  %wide = linalg.fill ins(%zero : f32) outs(%made : tensor<?x16xf32>) -> tensor<?x16xf32>
  %part = tensor.extract_slice %flat[0, 0] [%half, 16] [1, 1] : tensor<?x16xf32> to tensor<?x16xf32>
  %keys = tensor.empty(%half) : tensor<?xi64>
  %order:2 = "kitsune.order"(%keys, %c2) : (tensor<?xi64>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %two = tensor.concat dim(0) %flat, %wide : (tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  %around = tensor.pad %two low[1, 0] high[2, 0] {
  ^bb0(%i: index, %j: index):
    tensor.yield %zero : f32
  } : tensor<?x16xf32> to tensor<?x16xf32>
  %written = tensor.insert_slice %part into %around[1, 0] [%half, 16] [1, 1] : tensor<?x16xf32> into tensor<?x16xf32>
  return %t : tensor<?x16xf32>
}"""


def test_each_size_is_followed_once():
    """Two ways lead from each of these sums to the one before: a walk of all ways would not end."""
    sums = "\n".join(f"%{i + 1} = arith.addi %{i}, %{i} : index" for i in range(60))
    module = mlir.parse(
        f"""func.func @main(%x: tensor<?xf32>) -> index attributes {{kitsune.example = [array<i64: 3>]}} {{
          %c0 = arith.constant 0 : index
          %0 = tensor.dim %x, %c0 : tensor<?xf32>
          {sums}
          return %60 : index
        }}""",
        mlir.context(),
    )
    returned = walk(module, "func.return")[0]
    assert example_sizes.Known().number(returned.operands[0]) == 3 << 60


class Layers(nn.Module):
    """What is planned in several ways: a wide layer, a norm, a sum over the rows."""

    def __init__(self, width=320):
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(64, width), nn.Linear(width, 64), nn.LayerNorm(64)

    def forward(self, x):
        y = self.norm(self.second(torch.relu(self.first(x))))
        return y, (x * y).sum(0)


def test_sizes_are_computed_of_those_of_the_arguments():
    text = SIZES.replace("  %c2 =", "  %zero = arith.constant 0.0 : f32\n  %c2 =")
    module = mlir.parse(text, mlir.context())
    made = {name: example_sizes.shape_of(walk(module, name)[0].results[0]) for name in ("tensor.empty", "linalg.fill")}
    assert made == {"tensor.empty": [1200, 16], "linalg.fill": [1200, 16]}
    assert example_sizes.shape_of(walk(module, "tensor.extract_slice")[0].results[0]) == [1200, 16]
    assert example_sizes.shape_of(walk(module, "kitsune.order")[0].results[1]) == [1200]
    assert example_sizes.shape_of(walk(module, "tensor.pad")[0].results[0]) == [2403, 16]
    assert example_sizes.shape_of(walk(module, "tensor.insert_slice")[0].results[0]) == [2403, 16]
    given = walk(module, "func.func")[0].regions[0].blocks[0].arguments[1]
    assert example_sizes.known_shape(given) == [None, 16] and example_sizes.shape_of(given) == [UNKNOWN_ROWS, 16]


@pytest.mark.usefixtures("unassembled")
def test_open_rows_are_planned_as_the_example_has_them():
    model, x = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256)), torch.randn(2048, 64)
    rows = torch.export.Dim("rows", min=2)
    open_ = kitsune_mlir.compile(model, (x,), target="sm_90a", dynamic_shapes=({0: rows},)).plan
    fixed = kitsune_mlir.compile(model, (x,), target="sm_90a").plan
    assert open_["predicted_us"] < NEAR**2 * fixed["predicted_us"]
    assert open_["dram_bytes"]["bulk_sync"] == fixed["dram_bytes"]["bulk_sync"]


@pytest.mark.usefixtures("unassembled")
def test_plans_are_right_for_other_numbers_of_rows(gpu_of):
    torch.manual_seed(0)
    model, rows = Layers().to(torch.bfloat16), torch.export.Dim("rows", min=2)
    x = torch.randn(100, 64).bfloat16()
    compiled = kitsune_mlir.compile(model, (x,), target=gpu_of(2), dynamic_shapes=({0: rows},))
    simulation = Simulation(compiled)
    for count in (2, 100, 700):
        x = torch.randn(count, 64).bfloat16()
        for found, wanted in zip(simulation(x), model(x)):
            torch.testing.assert_close(found, wanted.detach(), rtol=0.05, atol=0.5)


def test_neighbours_are_words_where_an_inner_size_is_open():
    function = Function(lambda x, scale: torch.relu(x) * scale)
    args = torch.randn(8, 1024, 64).bfloat16(), torch.randn(8, 1, 64).bfloat16()
    shapes = (({1: torch.export.Dim("tokens", min=2)}, None),)
    compiled = kitsune_mlir.compile(function, args, target="sm_90a", dynamic_shapes=shapes)
    (launch,) = compiled.plan["launches"]
    assert launch["ctas"] * launch["threads"] * 8 == args[0].numel()
    for count in (2, 37):
        x = torch.randn(8, count, 64).bfloat16()
        torch.testing.assert_close(Simulation(compiled)(x, args[1]), function(x, args[1]))


class Deep(nn.Module):
    """Residual blocks of one size: the last one's batch is the first one's."""

    def __init__(self, count):
        super().__init__()
        blocks = ([nn.Conv2d(16, 8, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, padding=1)] for _ in range(count))
        self.layers = nn.ModuleList(nn.Sequential(*block) for block in blocks)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(x + layer(x))
        return x


@pytest.mark.usefixtures("unassembled")
def test_batches_of_deep_networks():
    """A batch is that of the argument, however deep a layer is: one that was followed through 152 layers was taken
    for that of a program without an example."""
    shapes = ({0: torch.export.Dim("b", min=2, max=64)},)
    compiled = kitsune_mlir.compile(Deep(2), (torch.randn(2, 16, 8, 8),), target="sm_90a", dynamic_shapes=shapes)
    module = compiled.module("sm_90a:convolutions-to-products")
    asked = [op.operands[0].owner for op in walk(module, "tensor.dim") if op.parent.name == "func.func"]
    assert asked and all(isinstance(owner, mlir.ir.Block) for owner in asked)
