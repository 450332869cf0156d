// RUN: kitsune-opt %s --partition-dataflow=min-products=2 --split-input-file --verify-diagnostics | filecheck %s
// RUN: kitsune-opt %s --partition-dataflow --split-input-file | kitsune-opt --partition-dataflow --split-input-file > %t.twice
// RUN: kitsune-opt %s --partition-dataflow --split-input-file > %t.once
// RUN: kitsune-opt %s --partition-dataflow=min-summed=64 --split-input-file | filecheck %s --check-prefix=SUMMED
// RUN: diff %t.once %t.twice

// A group with too few products stays plain; a second run finds nothing more to do.

// CHECK-NOT: kitsune.pipeline
// SUMMED-COUNT-2: kitsune.pipeline
func.func @main(%x: tensor<64x16xf32>, %w: tensor<16x8xf32>) -> tensor<64x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x8xf32>) -> tensor<64x8xf32>
  // expected-remark @below {{stays outside pipelines: its group has 1 products, fewer than 2}}
  %y = linalg.matmul ins(%x, %w : tensor<64x16xf32>, tensor<16x8xf32>) outs(%f : tensor<64x8xf32>) -> tensor<64x8xf32>
  return %y : tensor<64x8xf32>
}

// -----

// A product that sums over few rows is left to be one of its own.

func.func @sums(%x: tensor<64x16xf32>, %y: tensor<64x8xf32>) -> tensor<16x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<16x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<16x8xf32>) -> tensor<16x8xf32>
  // expected-remark @below {{stays outside pipelines: sums so few rows that it is better a product of its own}}
  %s = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%x, %y : tensor<64x16xf32>, tensor<64x8xf32>) outs(%f : tensor<16x8xf32>) -> tensor<16x8xf32>
  return %s : tensor<16x8xf32>
}
