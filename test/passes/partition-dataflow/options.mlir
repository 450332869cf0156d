// RUN: kitsune-opt %s --partition-dataflow=min-products=2 --verify-diagnostics | filecheck %s
// RUN: kitsune-opt %s --partition-dataflow | kitsune-opt --partition-dataflow > %t.twice
// RUN: kitsune-opt %s --partition-dataflow > %t.once
// RUN: diff %t.once %t.twice

// A group with too few products stays plain; a second run finds nothing more to do.

// CHECK-NOT: kitsune.pipeline
func.func @main(%x: tensor<64x16xf32>, %w: tensor<16x8xf32>) -> tensor<64x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x8xf32>) -> tensor<64x8xf32>
  // expected-remark @below {{stays outside pipelines: its group has 1 products, fewer than 2}}
  %y = linalg.matmul ins(%x, %w : tensor<64x16xf32>, tensor<16x8xf32>) outs(%f : tensor<64x8xf32>) -> tensor<64x8xf32>
  return %y : tensor<64x8xf32>
}
