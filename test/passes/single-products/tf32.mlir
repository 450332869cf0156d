// RUN: kitsune-opt %s --partition-dataflow --design-pipeline --place-stages=target=sm_90a --single-products | filecheck %s
// RUN: kitsune-opt %s --partition-dataflow --design-pipeline --place-stages=target=sm_80 --single-products | filecheck %s --check-prefix=AMPERE

// A product of f32 that is asked for in tf32 is a kernel of its own where warpgroups multiply.

// CHECK-LABEL: func.func @layer
// CHECK-NOT:     kitsune.pipeline"
// CHECK:         linalg.matmul {{.*}}kitsune.pipeline = "pipeline0"
// AMPERE-LABEL: func.func @layer
// AMPERE:         "kitsune.pipeline"
module attributes {kitsune.matmul_precision = "high"} {
  func.func @layer(%x: tensor<4096x128xf32>, %w: tensor<256x128xf32>) -> tensor<4096x256xf32> {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<4096x256xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4096x256xf32>) -> tensor<4096x256xf32>
    %h = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
      affine_map<(m, n, k) -> (m, n)>] ins(%x, %w : tensor<4096x128xf32>, tensor<256x128xf32>)
      outs(%f : tensor<4096x256xf32>) -> tensor<4096x256xf32>
    return %h : tensor<4096x256xf32>
  }
}
