// RUN: kitsune-opt %s --emit=ptx --target=sm_90a | filecheck %s --check-prefix=PTX
// RUN: kitsune-opt %s --emit=llvm | filecheck %s --check-prefix=LLVM
// RUN: not kitsune-opt %S/passes.mlir --emit=ptx 2>&1 | filecheck %s --check-prefix=NONE
// RUN: kitsune-opt %S/../dialects/example.mlir --emit=plan --target=sm_90a | filecheck %s --check-prefix=PLAN
// RUN: not kitsune-opt %S/passes.mlir --emit=plan 2>&1 | filecheck %s --check-prefix=NOPLAN
// RUN: kitsune-opt %S/../dialects/example.mlir --emit=dot | filecheck %s --check-prefix=DOT

// PTX: .target sm_90a
// PTX: .entry answer
// PTX: ret;

// LLVM: define ptx_kernel void @answer(

// NONE: error: --emit=ptx wants a gpu.module, which --convert-kitsune-to-gpu makes

// PLAN: "target": "sm_90a"
// PLAN: "total": 2
// PLAN: "pipelined": 2
// PLAN: "name": "hidden"
// PLAN: "producer": "up"

// DOT: digraph plan
// DOT: "0.up" [label="up\nmatmul 64→256\ntensor, not placed"
// DOT: "0.up" -> "0.down" [label="hidden: open, 2 × 1.0 KiB"];

module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @answer(%out: memref<1xi32>) kernel {
      %zero = arith.constant 0 : index
      %value = arith.constant 42 : i32
      memref.store %value, %out[%zero] : memref<1xi32>
      gpu.return
    }
  }
}

// NOPLAN: error: --emit=plan wants kitsune.pipelines, which --partition-dataflow makes and conversions replace
