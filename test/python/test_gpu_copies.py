"""Words of 16 bytes outside pipelines: copies into slices, those side by side one launch, and elementwise operators."""

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from test_gpu_rows import run as run_function
from torch import nn

import kitsune_mlir
from kitsune_mlir import mlir
from kitsune_mlir.codegen import gpu
from kitsune_mlir.codegen.gpu_parts import are_apart
from kitsune_mlir.mlir import ir
from kitsune_mlir.passes import pipeline
from kitsune_mlir.planning import target
from kitsune_mlir.runtime.gpu import GpuRunner
from kitsune_mlir.runtime.host_program import make_plan
from kitsune_mlir.runtime.prepared import Prepared
from kitsune_mlir.tools.gpusim import Simulation
from kitsune_mlir.tools.gpusim.device import SimulatedDevice

CONCAT = """
func.func @main(%x: tensor<{rows}x{a}xf32>, %y: tensor<{rows}x{b}xf32>) -> tensor<{rows}x{all}xf32> {{
  %z = tensor.concat dim(1) %x, %y, %x : (tensor<{rows}x{a}xf32>, tensor<{rows}x{b}xf32>, tensor<{rows}x{a}xf32>)
    -> tensor<{rows}x{all}xf32>
  return %z : tensor<{rows}x{all}xf32>
}}
"""


@pytest.mark.parametrize("rows, a, b", [(1, 1, 1), (7, 12, 4), (300, 33, 64), (1000, 8, 16)])
def test_a_concatenation_is_one_kernel(rows, a, b):
    text = CONCAT.format(rows=rows, a=a, b=b, all=2 * a + b)

    x, y = (np.random.default_rng(n).standard_normal((rows, width), np.float32) for n, width in enumerate((a, b)))
    section, (found,) = run(text, x, y)
    assert [kernel["name"] for kernel in section.manifest["kernels"]] == ["joined_0"]
    np.testing.assert_array_equal(found, np.concatenate([x, y, x], 1))


NESTED = """
func.func @main(%x: tensor<60x416xf32>, %y: tensor<60x64xf32>) -> (tensor<60x832xf32>, tensor<60x960xf32>) {
  %z = tensor.concat dim(1) %x, %x : (tensor<60x416xf32>, tensor<60x416xf32>) -> tensor<60x832xf32>
  %w = tensor.concat dim(1) %y, %z, %y : (tensor<60x64xf32>, tensor<60x832xf32>, tensor<60x64xf32>)
    -> tensor<60x960xf32>
  return %z, %w : tensor<60x832xf32>, tensor<60x960xf32>
}
"""


def run(text, *inputs):
    """The section of a program, and its results on the stand-in GPU."""
    module = mlir.parse(text, mlir.context())
    pipeline.run(module, [pipeline.make("convert-linalg-to-gpu"), pipeline.make("join-launches")])
    section = gpu.build(module, target.load("sm_90a"))
    runner = GpuRunner(section.manifest, section.files, [None] * len(inputs), SimulatedDevice(module))
    return section, runner.run(list(inputs))


def test_a_concatenation_of_a_concatenation():
    x, y = (np.random.default_rng(n).standard_normal((60, width), np.float32) for n, width in enumerate((416, 64)))
    _, (z, w) = run(NESTED, x, y)
    np.testing.assert_array_equal(z, np.concatenate([x, x], 1))
    np.testing.assert_array_equal(w, np.concatenate([y, x, x, y], 1))


@pytest.mark.parametrize(
    "a, b, apart",
    [
        ("60x832xf32, strided<[2880, 1]>", "60x416xf32, strided<[2880, 1], offset: 832>", True),
        ("60x832xf32, strided<[2880, 1]>", "60x416xf32, strided<[2880, 1], offset: 416>", False),
        ("10x8xf32, strided<[8, 1]>", "10x8xf32, strided<[8, 1], offset: 80>", True),
        ("10x8xf32, strided<[8, 1]>", "10x8xf32, strided<[16, 1]>", False),
        ("?x4xf32, strided<[8, 1]>", "?x4xf32, strided<[8, 1], offset: 4>", True),
        ("?x4xf32, strided<[8, 1], offset: ?>", "?x4xf32, strided<[8, 1], offset: 4>", False),
    ],
)
def test_parts_that_are_apart(a, b, apart):
    with mlir.context():
        kinds = [ir.MemRefType(ir.Type.parse(f"memref<{kind}>")) for kind in (a, b)]
        assert are_apart(*kinds) is apart and are_apart(*kinds[::-1]) is apart


def test_an_elementwise_operator_computes_words():
    """Two rows of four neighbours a thread; two rows' numbers are a word, a transposed operand is loaded by words."""
    text = """
    #id = affine_map<(d0, d1) -> (d0, d1)>
    func.func @main(%x: tensor<512x512xf32>, %y: tensor<512x512xf32>, %r: tensor<512xf32>) -> tensor<512x512xf32> {
      %e = tensor.empty() : tensor<512x512xf32>
      %z = linalg.generic {indexing_maps = [#id, affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d0)>, #id],
          iterator_types = ["parallel", "parallel"]} ins(%x, %y, %r : tensor<512x512xf32>, tensor<512x512xf32>,
          tensor<512xf32>) outs(%e : tensor<512x512xf32>) {
        ^bb0(%a: f32, %b: f32, %c: f32, %o: f32):
          %p = arith.addf %a, %b : f32
          %q = arith.mulf %p, %c : f32
          linalg.yield %q : f32
      } -> tensor<512x512xf32>
      return %z : tensor<512x512xf32>
    }"""
    x, y = (np.random.default_rng(n).standard_normal((512, 512), np.float32) for n in range(2))
    r = np.arange(512, dtype=np.float32)
    section, (found,) = run(text, x, y, r)
    np.testing.assert_array_equal(found, (x + y.T) * r[:, None])
    ptx = section.files["kernels.ptx"].decode()
    assert ptx.count("ld.global.v4") == ptx.count("st.global.v4") == 2
    assert ptx.count("ld.global.v2") == 5 and ptx.count("ld.global.b32") == 0


def test_inputs_between_words_are_copied():
    class Device:
        def __init__(self):
            self.copies, self.taken = [], []

        def allocate(self, nbytes, stream):
            return SimpleNamespace(pointer=1 << 20)

        def copy(self, *arguments):
            self.copies.append(arguments)

        def launch(self, kernel, grid, block, parameters, stream, alone, *clusters):
            addresses = (ctypes.c_uint64 * 2).from_address(parameters)
            self.taken += [ctypes.c_uint64.from_address(address).value for address in addresses]

    kernel = {"op": "launch", "kernel": "k", "grid": [1] * 3, "block": [32, 1, 1], "args": ["a0"], "writes": []}
    manifest = {
        "program": [kernel, {"op": "return", "values": []}],
        "arguments": [{"dtype": "f32", "shape": [300, 4]}],
        "globals": {},
    }
    device = Device()
    prepared = Prepared(make_plan(manifest, [(300, 4)]), device, {"k": None}, {}, {}, [None])
    for pointer in (4096, 4104):
        prepared.run(7, [pointer], [], 0)
    assert device.copies == [(1 << 20, 4104, 4800, 7)]
    assert device.taken == [4096, 4096, 1 << 20, 1 << 20]


def side_by_side(x, table, numbers, other):
    """Rows of tables beside a tensor: the tables' elements make words of 8 and of 2."""
    return torch.cat([x, table[numbers], other[numbers]], 1)


@pytest.mark.parametrize("rows", [1, 3000])
def test_rows_of_tables_are_parts_of_one_kernel(rows, small_gpu):
    torch.manual_seed(rows)
    x, table, other = (torch.randn(shape).bfloat16() for shape in ((rows, 8), (50, 64), (60, 10)))
    device = run_function(side_by_side, (x, table, torch.randint(-50, 50, (rows,)), other), small_gpu)
    assert device.launches == 1


def test_what_is_copied_to_where_it_lies_takes_no_kernel(small_gpu):
    """Sums of twos and fours in place, through views of views: a slice is put back where it was computed."""

    def sums(x):
        x = x.clone().transpose(1, 2)
        level = x
        for _ in range(2):
            level = level.view(1, 2, -1, 2, 4)
            level[:, :, :, 1].add_(level[:, :, :, 0])
            level = level[:, :, :, 1]
        return x

    run_function(sums, (torch.randn(1, 16, 2, 4),), small_gpu)


class Crossed(nn.Module):
    """A layer of products of pairs of fields, of two tensors, beside one another."""

    def __init__(self, fields, width):
        super().__init__()
        self.first, self.second = torch.triu_indices(fields, fields, 1)
        self.layer = nn.Linear(2 * len(self.first) * width, 64)

    def forward(self, x, y):
        pairs = [z[:, self.first] * z[:, self.second] for z in (x, y)]
        return self.layer(torch.cat(pairs, 1).flatten(1)).relu()


def test_parts_of_an_open_concatenation_are_computed_where_they_lie():
    """No copies of many rows; the numbers of another batch than the example's."""
    torch.manual_seed(0)
    batch = {0: torch.export.Dim("batch")}

    def compiled(rows, fields, width):
        args = [torch.randn(rows, fields, width).bfloat16() for _ in range(2)]
        model = Crossed(fields, width).bfloat16()
        return model, kitsune_mlir.compile(model, tuple(args), target="sm_90a", dynamic_shapes=(batch, batch))

    _, made = compiled(4096, 26, 16)
    assert not any("copy" in launch["computes"] for launch in made.plan["launches"])
    model, made = compiled(40, 6, 8)
    args = [torch.randn(33, 6, 8).bfloat16() for _ in range(2)]
    found = torch.as_tensor(Simulation(made, seed=1)(*args)).double()
    torch.testing.assert_close(found, model.double()(*(x.double() for x in args)).detach(), rtol=0, atol=3e-2)
