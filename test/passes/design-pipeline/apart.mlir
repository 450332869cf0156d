// Operators of which one has no rows in common with a product of the pipeline: they stay around it.

// RUN: kitsune-opt %s --design-pipeline | filecheck %s
// CHECK-LABEL: func.func @main
// CHECK-NOT:   kitsune.pipeline
// CHECK:       %[[Y:.*]] = linalg.matmul
// CHECK:       %[[R:.*]] = linalg.generic
// CHECK-NOT:   kitsune.result
// CHECK:       return %[[Y]], %[[R]]

#rows = affine_map<(n, c) -> (n, c)>

func.func @main(%x: tensor<64x16xf32>, %w: tensor<16x8xf32>, %a: tensor<32x4xf32>) -> (tensor<64x8xf32>, tensor<32x4xf32>) {
  %zero = arith.constant 0.0 : f32
  %p = "kitsune.pipeline"() ({
    %f = tensor.empty() : tensor<64x8xf32>
    %z = linalg.fill ins(%zero : f32) outs(%f : tensor<64x8xf32>) -> tensor<64x8xf32>
    %y = linalg.matmul ins(%x, %w : tensor<64x16xf32>, tensor<16x8xf32>) outs(%z : tensor<64x8xf32>) -> tensor<64x8xf32>
    %e = tensor.empty() : tensor<32x4xf32>
    %r = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel"]}
        ins(%a : tensor<32x4xf32>) outs(%e : tensor<32x4xf32>) {
    ^bb0(%in: f32, %out: f32):
      %m = arith.maximumf %in, %zero : f32
      linalg.yield %m : f32
    } -> tensor<32x4xf32>
    "kitsune.store"(%y) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
    "kitsune.store"(%r) {index = 1 : i64} : (tensor<32x4xf32>) -> ()
  }) {sym_name = "pipeline0"} : () -> !kitsune.outputs
  %h = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<64x8xf32>
  %g = "kitsune.result"(%p) {index = 1 : i64} : (!kitsune.outputs) -> tensor<32x4xf32>
  return %h, %g : tensor<64x8xf32>, tensor<32x4xf32>
}
