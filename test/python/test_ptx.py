"""gpu.module -> PTX -> cubin, and what happens to input that cannot be lowered."""

from pathlib import Path

import pytest

from kitsune_mlir import mlir
from kitsune_mlir.codegen import ptx, ptxas
from kitsune_mlir.errors import InternalError
from kitsune_mlir.planning import target

SCALE = """
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @scale(%x: memref<?xbf16>, %y: memref<?xf32>, %n: index) kernel
        attributes {known_block_size = array<i32: 128, 1, 1>} {
      %block = gpu.block_id x
      %thread = gpu.thread_id x
      %size = gpu.block_dim x
      %first = arith.muli %block, %size : index
      %i = arith.addi %first, %thread : index
      %inside = arith.cmpi slt, %i, %n : index
      scf.if %inside {
        %v = memref.load %x[%i] : memref<?xbf16>
        %e = arith.extf %v : bf16 to f32
        memref.store %e, %y[%i] : memref<?xf32>
      }
      gpu.return
    }
  }
}
"""
CLUSTER = """
module attributes {gpu.container_module} {
  gpu.module @kernels {
    llvm.func @meet() attributes {gpu.kernel, nvvm.kernel, nvvm.cluster_dim = array<i32: 2, 1, 1>} {
      nvvm.cluster.arrive {aligned}
      nvvm.cluster.wait {aligned}
      llvm.return
    }
  }
}
"""
UNTRANSLATABLE = """
module attributes {gpu.container_module} {
  gpu.module @kernels {
    func.func @tensor(%x: tensor<4xf32>) -> tensor<4xf32> {
      return %x : tensor<4xf32>
    }
  }
}
"""


def gpu_module(source):
    module = mlir.parse(source, mlir.context())
    return module, mlir.walk(module, "gpu.module")[0]


@pytest.mark.parametrize("chip", ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120"])
def test_assembles_for_every_gpu(chip):
    _module, kernels = gpu_module(SCALE)
    text = ptx.to_ptx(kernels, target.load(chip))
    assert f".target {chip}" in text and ".visible .entry scale(" in text
    assembled = ptxas.assemble(text, target.load(chip))
    assert 0 < assembled.kernels["scale"].registers <= 32
    assert assembled.kernels["scale"].spill_stores == 0
    assert assembled.cubin.startswith(b"\x7fELF")


def test_the_source_module_is_left_alone():
    module, kernels = gpu_module(SCALE)
    before = str(module)
    ptx.to_ptx(kernels, target.load("sm_90a"))
    assert str(module) == before


@pytest.mark.parametrize(("source", "chip"), [(CLUSTER, "sm_80"), (UNTRANSLATABLE, "sm_90a")])
def test_an_abort_of_the_code_generator_is_an_error_with_a_reproducer(source, chip):
    _module, kernels = gpu_module(source)
    with pytest.raises(InternalError) as caught:
        ptx.to_ptx(kernels, target.load(chip))
    assert "kernels" in str(caught.value)
    assert mlir.parse(Path(caught.value.reproducer).read_text(), mlir.context())
    _module, kernels = gpu_module(SCALE)  # the next request finds a living worker
    assert ".entry scale(" in ptx.to_ptx(kernels, target.load("sm_90a"))


def test_llvm_ir_marks_inline_assembly_convergent():
    _module, kernels = gpu_module(
        """gpu.module @kernels { llvm.func @k() attributes {gpu.kernel, nvvm.kernel} {
             llvm.inline_asm has_side_effects "bar.sync 1, 64;", "" : () -> ()
             llvm.return } }"""
    )
    assert 'asm sideeffect "bar.sync 1, 64;", ""() convergent' in ptx.to_llvm(kernels, target.load("sm_90a"))


def test_ptxas_refuses_with_the_ptx_kept():
    with pytest.raises(InternalError, match="ptxas does not take") as caught:
        ptxas.assemble(".version 8.6\n.target sm_90a\n.address_size 64\nnonsense\n", target.load("sm_90a"))
    assert "nonsense" in Path(caught.value.reproducer).read_text()


def test_report_of_several_kernels():
    said = """ptxas info    : Compiling entry function 'a' for 'sm_90a'
ptxas info    : Function properties for a
    16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 16 bytes stack, 1024 bytes smem, 400 bytes cmem[0]
ptxas info    : Compiling entry function 'b' for 'sm_90a'
ptxas info    : Used 12 registers, used 0 barriers
"""
    kernels = ptxas.parse_report(said)
    assert kernels["a"] == ptxas.KernelInfo(32, 1024, 16, 8, 4)
    assert kernels["b"] == ptxas.KernelInfo(12)


def test_without_ptxas_there_is_no_cubin(monkeypatch):
    monkeypatch.setattr(ptxas, "find", lambda: None)
    assert ptxas.assemble("", target.load("sm_90a")) is None
