"""A module after convert-linalg-to-gpu -> host program, PTX, manifest."""

import json

import numpy as np

from kitsune_mlir import mlir
from kitsune_mlir.codegen import gpu
from kitsune_mlir.planning import target

MODULE = """
module attributes {gpu.container_module} {
  memref.global "private" constant @narrow : memref<2x2xbf16> = dense<[[1.5, -2.0], [3.0, 0.0]]>
  memref.global "private" constant @flags : memref<3xi1> = dense<[true, false, true]>
  func.func private @pipeline_0(memref<?x4xf32>) -> memref<?x2xf32> attributes {kitsune.sizes_from = [array<i64: 0, 0>]}
  func.func @main(%x: memref<?x4xf32>) -> memref<?x2xf32> {
    %narrow = memref.get_global @narrow : memref<2x2xbf16>
    %flags = memref.get_global @flags : memref<3xi1>
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c255 = arith.constant 255 : index
    %c256 = arith.constant 256 : index
    %rows = memref.dim %x, %c0 : memref<?x4xf32>
    %more = arith.addi %rows, %c255 : index
    %blocks = arith.divui %more, %c256 : index
    gpu.launch_func @kernels::@touch blocks in (%blocks, %c1, %c1) threads in (%c256, %c1, %c1)
        args(%x : memref<?x4xf32>, %narrow : memref<2x2xbf16>, %flags : memref<3xi1>, %rows : index)
    %y = func.call @pipeline_0(%x) : (memref<?x4xf32>) -> memref<?x2xf32>
    return %y : memref<?x2xf32>
  }
  gpu.module @kernels {
    gpu.func @touch(%x: memref<?x4xf32>, %n: memref<2x2xbf16>, %f: memref<3xi1>, %rows: index) kernel {
      %c0 = arith.constant 0 : index
      %v = memref.load %x[%c0, %c0] : memref<?x4xf32>
      %w = arith.addf %v, %v : f32
      memref.store %w, %x[%c0, %c0] : memref<?x4xf32>
      gpu.return
    }
  }
  gpu.module @pipeline_0_code attributes {kitsune.pipeline = "pipeline_0", kitsune.launch = "{\\"grid\\": 132}"} {
    llvm.func @run() attributes {gpu.kernel, nvvm.kernel} { llvm.return }
  }
}
"""


def test_section():
    module = mlir.parse(MODULE, mlir.context())
    before = str(module)
    section = gpu.build(module, target.load("sm_90a"))
    assert str(module) == before
    manifest = json.loads(json.dumps(section.manifest))
    assert manifest == section.manifest
    assert manifest["arguments"] == [{"shape": [None, 4], "dtype": "f32"}]
    assert manifest["results"] == [{"shape": [None, 2], "dtype": "f32"}]
    assert manifest["modules"] == {"kernels": ["touch"], "pipeline_0_code": ["run"]}
    assert manifest["pipelines"] == {"pipeline_0": {"module": "pipeline_0_code", "launch": {"grid": 132}}}
    assert [kernel["name"] for kernel in manifest["kernels"]] == ["touch", "run"]
    assert all(kernel["registers"] > 0 for kernel in manifest["kernels"])
    assert set(section.files) == {
        "kernels.ptx",
        "kernels.cubin",
        "pipeline_0_code.ptx",
        "pipeline_0_code.cubin",
        "globals.bin",
    }

    steps = {step["op"]: step for step in manifest["program"]}
    assert steps["launch"]["kernel"] == "touch"
    assert steps["launch"]["grid"] == [steps["arith.divui"]["to"], 1, 1]
    sizes = [step["to"] for step in manifest["program"] if step["op"] == "dim"]
    assert steps["launch"]["args"][0] == "a0" and steps["launch"]["args"][3] == ["i64", sizes[0]]
    rows = sizes[-1]
    assert steps["pipeline"]["results"] == [{"to": steps["return"]["values"][0], "dtype": "f32", "shape": [rows, 2]}]

    narrow, flags = manifest["globals"]["narrow"], manifest["globals"]["flags"]
    data = section.files["globals.bin"]
    bits = np.frombuffer(data, np.uint16, 4, narrow["offset"])
    np.testing.assert_array_equal(bits, [0x3FC0, 0xC000, 0x4040, 0])
    np.testing.assert_array_equal(np.frombuffer(data, np.bool_, 3, flags["offset"]), [True, False, True])


def test_constants_that_the_context_holds():
    """What torch-mlir makes of tables of indices: their elements stand apart from the operation, under a name."""
    source = """
    module {
      memref.global "private" constant @rows : memref<2x2xi64> = dense_resource<rows>
      memref.global "private" constant @halves : memref<2xbf16> = dense_resource<halves>
      func.func @main() -> (memref<2x2xi64>) { %0 = memref.alloc() : memref<2x2xi64> return %0 : memref<2x2xi64> }
    }
    {-# dialect_resources: { builtin: {
      rows: "0x080000000100000000000000020000000000000003000000000000000400000000000000",
      halves: "0x02000000C03F00C0"
    } } #-}
    """
    section = gpu.build(mlir.parse(source, mlir.context()), target.load("sm_90a"))
    rows, halves = (section.manifest["globals"][name]["offset"] for name in ("rows", "halves"))
    data = section.files["globals.bin"]
    np.testing.assert_array_equal(np.frombuffer(data, np.int64, 4, rows), [1, 2, 3, 4])
    np.testing.assert_array_equal(np.frombuffer(data, np.uint16, 2, halves), [0x3FC0, 0xC000])


def test_pipelines_of_equal_code_share_a_module():
    first = MODULE[MODULE.index("  gpu.module @pipeline_0_code") : MODULE.rindex("}")]
    second = first.replace("pipeline_0", "pipeline_1").replace("@run", "@walk").replace("132", "64")
    other = first.replace("pipeline_0", "pipeline_2").replace("llvm.return", "nvvm.barrier llvm.return")
    source = MODULE[: MODULE.rindex("}")] + second + other + "}"
    manifest = gpu.build(mlir.parse(source, mlir.context()), target.load("sm_90a")).manifest
    assert manifest["modules"].keys() == {"kernels", "pipeline_0_code", "pipeline_2_code"}
    assert {name: entry["module"] for name, entry in manifest["pipelines"].items()} == {
        "pipeline_0": "pipeline_0_code",
        "pipeline_1": "pipeline_0_code",
        "pipeline_2": "pipeline_2_code",
    }
    assert manifest["pipelines"]["pipeline_1"]["launch"] == {"grid": 64}
