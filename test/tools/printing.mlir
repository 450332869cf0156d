// IR after each pass and timing go to stderr, with our passes by name; the result alone to stdout.
// RUN: kitsune-opt %s --partition-dataflow --cse --mlir-print-ir-after-all 2>&1 >/dev/null | filecheck %s --check-prefix=AFTER
// RUN: kitsune-opt %s --cse --partition-dataflow --mlir-print-ir-before-all 2>&1 >/dev/null | filecheck %s --check-prefix=BEFORE
// RUN: kitsune-opt %s --partition-dataflow --cse --mlir-timing 2>&1 >/dev/null | filecheck %s --check-prefix=TIMING
// RUN: kitsune-opt %s --partition-dataflow --mlir-timing 2>/dev/null | filecheck %s --check-prefix=RESULT
// RUN: kitsune-opt %s --partition-dataflow --mlir-print-debuginfo | filecheck %s --check-prefix=LOCATION

// AFTER: IR Dump After partition-dataflow
// AFTER: func.func @main
// AFTER: IR Dump After CSE

// BEFORE: IR Dump Before CSE
// BEFORE: IR Dump Before partition-dataflow

// TIMING: Execution time report
// TIMING: partition-dataflow
// TIMING: CSE

// RESULT-NOT: Execution time
// RESULT: func.func @main

// LOCATION: linalg.fill{{.*}}loc(
// LOCATION: printing.mlir":28

func.func @main(%x: tensor<64x32xf32>) -> tensor<64x32xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x32xf32>
  %y = linalg.fill ins(%zero : f32) outs(%e : tensor<64x32xf32>) -> tensor<64x32xf32>
  return %y : tensor<64x32xf32>
}
