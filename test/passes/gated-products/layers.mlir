// RUN: kitsune-opt %s --gated-products | filecheck %s
// RUN: kitsune-opt %s --gated-products --verify-dataflow

// Two products of one operand whose elements meet: a chunk of it is copied once, beside one of either weight, and
// multiplied with both. What the halves of both become is written, and they are not.

// CHECK-LABEL: func.func @layers
// CHECK:         %[[P:.*]] = "kitsune.kernel"
// CHECK:           %[[LEFT:.*]] = "kitsune.alloc_ring"() {{.*}}share = "split"{{.*}}sym_name = "left"
// CHECK:           %[[R0:.*]] = "kitsune.alloc_ring"() {{.*}}sym_name = "right"
// CHECK:           %[[R1:.*]] = "kitsune.alloc_ring"() {{.*}}sym_name = "right0"
// CHECK:           "kitsune.agent"
// CHECK:             "kitsune.copy"({{.*}}, %arg0,
// CHECK:             "kitsune.copy"({{.*}}, %arg1,
// CHECK:             "kitsune.copy"({{.*}}, %arg2,
// CHECK:           "kitsune.agent"
// CHECK-DAG:         %[[A:.*]] = "kitsune.wait"(%[[LEFT]])
// CHECK-DAG:         %[[B:.*]] = "kitsune.wait"(%[[R0]])
// CHECK-DAG:         %[[C:.*]] = "kitsune.wait"(%[[R1]])
// CHECK:             "kitsune.product"({{.*}}, %[[A]], %[[B]])
// CHECK:             "kitsune.product"({{.*}}, %[[A]], %[[C]])
// CHECK:             %[[V:.*]] = "kitsune.settle"
// CHECK-NEXT:        %[[G:.*]] = "kitsune.settle"
// CHECK-NEXT:        "kitsune.release"(%{{.*}}, %[[T0:[0-9#]+]], %[[T1:[0-9#]+]])
// CHECK-NEXT:        "kitsune.release"(%{{.*}}, %[[T0]])
// CHECK-NEXT:        "kitsune.release"(%{{.*}}, %[[T1]])
// CHECK:             %[[Y:.*]] = linalg.generic {{.*}} ins(%[[V]], %[[G]] :
// CHECK:             "kitsune.write"(%[[Y]],
// CHECK-NOT:         "kitsune.write"
// CHECK:         "kitsune.result"(%[[P]]) {index = 0 : i64} : {{.*}} -> tensor<300x256xbf16>
// CHECK-NOT:     linalg.matmul
func.func @layers(%x: tensor<300x128xbf16>, %w0: tensor<256x128xbf16>, %w1: tensor<256x128xbf16>) -> tensor<300x256xbf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<300x256xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<300x256xf32>) -> tensor<300x256xf32>
  %v = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>] ins(%x, %w0 : tensor<300x128xbf16>, tensor<256x128xbf16>) outs(%f : tensor<300x256xf32>) -> tensor<300x256xf32>
  %g = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>] ins(%x, %w1 : tensor<300x128xbf16>, tensor<256x128xbf16>) outs(%f : tensor<300x256xf32>) -> tensor<300x256xf32>
  %e0 = tensor.empty() : tensor<300x256xbf16>
  %y = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]} ins(%v, %g : tensor<300x256xf32>, tensor<300x256xf32>) outs(%e0 : tensor<300x256xbf16>) {
  ^bb0(%a: f32, %b: f32, %o: bf16):
    %t = arith.mulf %a, %b : f32
    %n = arith.truncf %t : f32 to bf16
    linalg.yield %n : bf16
  } -> tensor<300x256xbf16>
  return %y : tensor<300x256xbf16>
}

// Products of two operands are two kernels.

// CHECK-LABEL: func.func @apart
// CHECK-NOT:     kitsune.kernel
// CHECK:         linalg.matmul
// CHECK:         linalg.matmul
func.func @apart(%x: tensor<300x128xbf16>, %z: tensor<300x128xbf16>, %w: tensor<128x256xbf16>) -> tensor<300x256xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<300x256xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<300x256xf32>) -> tensor<300x256xf32>
  %v = linalg.matmul ins(%x, %w : tensor<300x128xbf16>, tensor<128x256xbf16>) outs(%f : tensor<300x256xf32>) -> tensor<300x256xf32>
  %g = linalg.matmul ins(%z, %w : tensor<300x128xbf16>, tensor<128x256xbf16>) outs(%f : tensor<300x256xf32>) -> tensor<300x256xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]} ins(%v, %g : tensor<300x256xf32>, tensor<300x256xf32>) outs(%e : tensor<300x256xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %t = arith.mulf %a, %b : f32
    linalg.yield %t : f32
  } -> tensor<300x256xf32>
  return %y : tensor<300x256xf32>
}
