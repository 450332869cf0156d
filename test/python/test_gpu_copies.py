"""Copies into slices: those side by side are one kernel, of words as wide as their places allow."""

import numpy as np
import pytest

from kitsune_mlir import mlir
from kitsune_mlir.codegen import gpu
from kitsune_mlir.passes import pipeline
from kitsune_mlir.planning import target
from kitsune_mlir.runtime.gpu import GpuRunner
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

    module = mlir.parse(text, mlir.context())
    pipeline.run(module, [pipeline.make("convert-linalg-to-gpu")])
    section = gpu.build(module, target.load("sm_90a"))
    assert [kernel["name"] for kernel in section.manifest["kernels"]] == ["copy_0"]
    runner = GpuRunner(section.manifest, section.files, [None, None], SimulatedDevice(module))
    x, y = (np.random.default_rng(n).standard_normal((rows, width), np.float32) for n, width in enumerate((a, b)))
    (found,) = runner.run([x, y])
    np.testing.assert_array_equal(found, np.concatenate([x, y, x], 1))
