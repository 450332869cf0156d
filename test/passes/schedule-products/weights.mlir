// RUN: kitsune-opt %s --schedule-products | filecheck %s
// RUN: kitsune-opt %s --schedule-products --verify-dataflow

// The rows of a weight, which is laid out once, begin at whole sectors of the L2: 104 numbers lie in rows of 128. Those of
// an operand that comes with each call stay as they are.

// CHECK-LABEL: func.func @main
// CHECK:         %[[W:.*]] = linalg.generic {{.*}} outs({{.*}} : tensor<512x128xbf16>) attrs = {kitsune.padded}
// CHECK:         "kitsune.kernel"
// CHECK:           "kitsune.copy"({{.*}}, %[[W]], {{.*}} tensor<512x128xbf16>
// CHECK:         "kitsune.kernel"
// CHECK-NOT:     tensor<512x128xbf16>
func.func @main(%w: tensor<512x104xbf16>, %x: tensor<300x104xbf16>, %y: tensor<512x104xbf16>) -> (tensor<300x512xf32>, tensor<300x512xf32>) attributes {kitsune.weights = array<i64: 0>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<300x512xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<300x512xf32>) -> tensor<300x512xf32>
  %p = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>] ins(%x, %w : tensor<300x104xbf16>, tensor<512x104xbf16>) outs(%f : tensor<300x512xf32>) -> tensor<300x512xf32>
  %q = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>] ins(%x, %y : tensor<300x104xbf16>, tensor<512x104xbf16>) outs(%f : tensor<300x512xf32>) -> tensor<300x512xf32>
  return %p, %q : tensor<300x512xf32>, tensor<300x512xf32>
}
