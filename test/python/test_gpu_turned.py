"""Transposes: blocks of elements by threads, rectangles of threads, on the stand-in GPU."""

import numpy as np
import pytest
import torch
from functions import Function, computed
from test_gpu_copies import run

import kitsune_mlir
from kitsune_mlir import mlir
from kitsune_mlir.codegen import gpu_turned, gpu_words
from kitsune_mlir.codegen.gpu_turned import Side, rectangle
from kitsune_mlir.passes import pipeline
from kitsune_mlir.tools.gpusim import Simulation

TRANSPOSE = """
func.func @main(%x: tensor<{before}x{a}x{b}x{dtype}>) -> tensor<{before}x{b}x{a}x{dtype}> {{
  %e = tensor.empty({sizes}) : tensor<{before}x{b}x{a}x{dtype}>
  %y = linalg.transpose ins(%x : tensor<{before}x{a}x{b}x{dtype}>) outs(%e : tensor<{before}x{b}x{a}x{dtype}>)
    permutation = [0, 2, 1]
  return %y : tensor<{before}x{b}x{a}x{dtype}>
}}
"""
DTYPES = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "i8": np.int8, "i64": np.int64}


@pytest.fixture
def blocks(monkeypatch):
    """Threads have blocks of elements even where there are few."""
    monkeypatch.setattr(gpu_turned, "ENOUGH", 1)
    monkeypatch.setattr(gpu_words, "ENOUGH", 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape", [(1, 72, 136), (3, 40, 64), (1, 33, 72), (2, 24, 81), (1, 65, 67), (5, 16, 16), (1, 1, 9)]
)
def test_elements_change_places(dtype, shape, blocks):
    before, a, b = shape
    x = np.random.default_rng(0).integers(-100, 100, shape).astype(DTYPES[dtype])
    section, (found,) = run(TRANSPOSE.format(before=before, a=a, b=b, dtype=dtype, sizes=""), x)
    assert len(section.manifest["kernels"]) == 1
    np.testing.assert_array_equal(found, x.swapaxes(1, 2))


@pytest.mark.parametrize("rows", [0, 1, 41])
def test_sizes_that_are_open(rows, blocks):
    """The results have them as columns, and matrices are many of them."""
    text = """
    func.func @main(%x: tensor<?x64xf16>) -> tensor<64x?xf16> {
      %c0 = arith.constant 0 : index
      %n = tensor.dim %x, %c0 : tensor<?x64xf16>
      %e = tensor.empty(%n) : tensor<64x?xf16>
      %y = linalg.transpose ins(%x : tensor<?x64xf16>) outs(%e : tensor<64x?xf16>) permutation = [1, 0]
      return %y : tensor<64x?xf16>
    }
    """
    x = np.random.default_rng(0).standard_normal((rows, 64)).astype(np.float16)
    np.testing.assert_array_equal(run(text, x)[1][0], x.T)


def accesses(text):
    """The loads and stores of the only kernel, in bytes."""
    module = mlir.parse(text, mlir.context())
    pipeline.run(module, [pipeline.make("convert-linalg-to-gpu")])
    (kernel,) = mlir.walk(module, "gpu.func")
    loads = [str(op.results[0].type) for op in mlir.walk(kernel, "vector.load", "memref.load")]
    return loads, [str(op.operands[0].type) for op in mlir.walk(kernel, "vector.store", "memref.store")]


@pytest.mark.parametrize("shape", [(0, 3), (90, 67), (5, 200)])
def test_both_sizes_are_open(shape, blocks):
    """A thread has an element at a time, several times."""
    text = """
    func.func @main(%x: tensor<?x?xf16>) -> tensor<?x?xf16> attributes {kitsune.example = [array<i64: 512, 512>]} {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %m = tensor.dim %x, %c0 : tensor<?x?xf16>
      %n = tensor.dim %x, %c1 : tensor<?x?xf16>
      %e = tensor.empty(%n, %m) : tensor<?x?xf16>
      %y = linalg.transpose ins(%x : tensor<?x?xf16>) outs(%e : tensor<?x?xf16>) permutation = [1, 0]
      return %y : tensor<?x?xf16>
    }
    """
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float16)
    np.testing.assert_array_equal(run(text, x)[1][0], x.T)
    assert len(accesses(text)[0]) == gpu_turned.TURNS


def test_both_sides_move_words_of_16_bytes():
    loads, stores = accesses(TRANSPOSE.format(before=1, a=4096, b=1024, dtype="bf16", sizes=""))
    assert loads == stores == ["vector<8xbf16>"] * 8
    loads, stores = accesses(TRANSPOSE.format(before=1, a=4096, b=1024, dtype="f32", sizes=""))
    assert loads == stores == ["vector<4xf32>"] * 4


def test_few_elements_are_shared_by_more_threads():
    loads, stores = accesses(TRANSPOSE.format(before=1, a=1000, b=1024, dtype="bf16", sizes=""))
    assert loads == ["vector<4xbf16>"] * 8 and stores == ["vector<8xbf16>"] * 4


def test_rows_that_are_no_words_are_read_as_words():
    loads, stores = accesses(TRANSPOSE.format(before=1, a=16383, b=1024, dtype="bf16", sizes=""))
    assert loads == ["vector<8xbf16>"] and stores == ["vector<1xbf16>"] * 8


@pytest.mark.parametrize(
    "count, deep, nbytes, words, lines, wide, long",
    [
        (
            8,
            8,
            2,
            32768,
            128,
            Side(8, 32, 2, 8),
            Side(8, 8, 2, 8),
        ),  # 512 bytes of each row of the results, 128 of lines
        (4, 4, 4, 1024, 1024, Side(4, 32, 2, 8), Side(4, 8, 2, 8)),
        (8, 8, 2, 8, 392, Side(8, 8, 2, 8), Side(8, 32, 2, 8)),  # 64 columns of results: more of the lines
        (8, 8, 2, 2, 2, Side(8, 2, 2, 2), Side(8, 2, 2, 2)),  # 64 matrices of 16 by 16
        (1, 1, 2, 1023, 1023, Side(1, 16, 16, 16), Side(1, 16, 16, 16)),  # no words: squares
        (1, 8, 2, None, 128, Side(1, 64, 16, 64), Side(8, 4, 2, 4)),
    ],
)
def test_rectangles_of_threads(count, deep, nbytes, words, lines, wide, long):
    assert rectangle(count, deep, nbytes, words, lines) == (wide, long)


X, Y = torch.randn(64, 200), torch.randn(200, 64)
BESIDE = {  # and the kernels that they are
    "read": (lambda x, y: x.mT + y, 1),
    "read twice": (lambda x, y: (x.mT * x.mT).contiguous() + y, 1),
    "written": (lambda x, y: torch.relu(x).mT.contiguous(), 1),
    "written, a column's number": (lambda x, y: (x - y[:, 0]).mT.contiguous(), 1),
    "between two": (lambda x, y: torch.relu(x).mT + y, 2),
    "two readers": (lambda x, y: (x.mT + y, x.mT * 2.0), 3),
    "a view of what is written": (lambda x, y: torch.relu(x).mT, 1),
    "read for several": (lambda x, y: x.mT + torch.stack([y, y]), 4),
    "summed": (lambda x, y: (x.mT * y).sum(0), 2),
}


@pytest.mark.parametrize("name", BESIDE)
def test_transposes_beside_elementwise_operators(name, blocks):
    function, kernels = BESIDE[name]
    compiled = kitsune_mlir.compile(Function(function), (X, Y), target="sm_90a")
    assert len(computed(compiled)) == kernels
    found = Simulation(compiled, seed=1)(X, Y)
    for one, wanted in zip(found if isinstance(found, tuple) else [found], [function(X, Y)], strict=False):
        torch.testing.assert_close(torch.as_tensor(one), wanted[0] if isinstance(wanted, tuple) else wanted)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("last", [False, True])
def test_short_lines_of_images_are_one(scaled, last, blocks):
    """14 elements of a line have no sector; 196 of an image do. Channels become the last dimension, or cease to be."""
    order = [0, 2, 3, 1] if last else [0, 3, 1, 2]

    def model(x, rows):
        y = x.permute(order)
        return y * 2 + rows if scaled else y.clone()

    torch.manual_seed(0)
    x = torch.randn((2, 24, 14, 14) if last else (2, 14, 14, 24)).bfloat16()
    args = x, torch.randn((14, 14, 1) if last else (14, 14)).bfloat16()
    compiled = kitsune_mlir.compile(Function(model), args, target="sm_90a")
    assert len(compiled.plan["launches"]) == 1
    assert "vector<4xbf16>" in compiled.mlir("sm_90a:convert-linalg-to-gpu")
    torch.testing.assert_close(torch.as_tensor(Simulation(compiled)(*args)), model(*args), rtol=1e-2, atol=1e-2)


def test_filters_of_two_shapes_are_turned_once(small_gpu):
    """Their lines as one are alike, and each has a buffer of its own, which is written when the program is loaded."""
    model = torch.nn.Sequential(
        torch.nn.Conv2d(64, 64, (7, 1), padding=(3, 0), bias=False),
        torch.nn.Conv2d(64, 64, (1, 7), padding=(0, 3), bias=False),
    )
    compiled = kitsune_mlir.compile(model.bfloat16().eval(), (torch.randn(1, 64, 9, 9).bfloat16(),), target=small_gpu)
    assert [launch["form"] for launch in compiled.plan["launches"]].count("operator") == 1  # of the images
