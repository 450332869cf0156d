// What f32 is computed with each call comes as it is, and its pieces are made in the kernel, by an agent of its own; those
// of a weight are made once, and come by copies.

// RUN: kitsune-opt %s --schedule-products --verify-dataflow | filecheck %s

// CHECK-LABEL: func.func @both
// CHECK-NOT:     linalg.generic
// CHECK:         "kitsune.kernel"
// CHECK-DAG:       %[[X:.*]] = "kitsune.alloc_ring"() {box = "rows", {{.*}} sym_name = "left_whole"} : {{.*}}xf32>
// CHECK-DAG:       %[[Y:.*]] = "kitsune.alloc_ring"() {box = "columns", {{.*}} sym_name = "right_whole"} : {{.*}}xf32>
// CHECK-DAG:       %[[R:.*]] = "kitsune.alloc_ring"() {box = "columns", {{.*}} sym_name = "right"} : {{.*}}xbf16>
// CHECK:           "kitsune.acquire"(%[[X]])
// CHECK:           "kitsune.copy"(%{{[0-9]+}}, %arg0,
// CHECK:           "kitsune.acquire"(%[[Y]])
// CHECK:           "kitsune.copy"(%{{[0-9]+}}, %arg1,
// CHECK:           sym_name = "feed"
// CHECK:           sym_name = "math"
// CHECK:           %[[S:.*]] = "kitsune.wait"(%[[Y]])
// CHECK-COUNT-3:   "kitsune.acquire"(%[[R]])
// CHECK:           "kitsune.split"(%[[S]], %{{[0-9]+}}, %{{[0-9]+}}, %{{[0-9]+}})
// CHECK-COUNT-3:   "kitsune.commit"
// CHECK:           "kitsune.release"(%[[S]])
// CHECK:           sym_name = "make"
func.func @both(%x: tensor<1024x128x64xf32>, %y: tensor<1024x64x128xf32>) -> tensor<1024x128x128xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1024x128x128xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1024x128x128xf32>) -> tensor<1024x128x128xf32>
  %p = linalg.batch_matmul ins(%x, %y : tensor<1024x128x64xf32>, tensor<1024x64x128xf32>) outs(%f : tensor<1024x128x128xf32>) -> tensor<1024x128x128xf32>
  return %p : tensor<1024x128x128xf32>
}

// CHECK-LABEL: func.func @main
// CHECK:         linalg.generic {{.*}} ins(%arg1 : tensor<128x64xf32>)
// CHECK:         "kitsune.kernel"
// CHECK:           sym_name = "left_whole"
// CHECK-NOT:       right_whole
// CHECK:           sym_name = "make"
func.func @main(%x: tensor<16384x64xf32>, %w: tensor<128x64xf32>) -> tensor<16384x128xf32> attributes {kitsune.weights = array<i64: 1>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<16384x128xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<16384x128xf32>) -> tensor<16384x128xf32>
  %p = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>] ins(%x, %w : tensor<16384x64xf32>, tensor<128x64xf32>) outs(%f : tensor<16384x128xf32>) -> tensor<16384x128xf32>
  return %p : tensor<16384x128xf32>
}
