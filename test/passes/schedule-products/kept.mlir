// RUN: kitsune-opt %s --schedule-products | filecheck %s
// RUN: kitsune-opt %s --schedule-products --verify-dataflow

// The right operand is the same for all tiles: its chunks are copied once, before them, and released behind them. Of the
// left one a chunk is released when the product behind its own has begun.

// CHECK-LABEL: func.func @kept
// CHECK:         %[[X:.*]] = "kitsune.alloc_ring"() {{.*}}sym_name = "left"}
// CHECK:         %[[W:.*]] = "kitsune.alloc_ring"() {{.*}}sym_name = "right"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
// CHECK:         "kitsune.agent"() ({
// CHECK:           scf.for %{{.*}} = %{{.*}} to %c128 step %c64
// CHECK-NEXT:        "kitsune.acquire"(%[[W]])
// CHECK:           scf.for
// CHECK-NOT:         "kitsune.acquire"(%[[W]])
// CHECK:         "kitsune.agent"() ({
// CHECK:           %[[W0:.*]] = "kitsune.wait"(%[[W]])
// CHECK-NEXT:      %[[W1:.*]] = "kitsune.wait"(%[[W]])
// CHECK-NEXT:      scf.for
// CHECK:             %[[X0:.*]] = "kitsune.wait"(%[[X]])
// CHECK-NEXT:        %[[P0:.*]]:2 = "kitsune.product"(%{{.*}}, %[[X0]], %[[W0]])
// CHECK-NEXT:        %[[X1:.*]] = "kitsune.wait"(%[[X]])
// CHECK-NEXT:        %[[P1:.*]]:2 = "kitsune.product"(%[[P0]]#0, %[[X1]], %[[W1]])
// CHECK-NEXT:        "kitsune.release"(%[[X0]], %[[P0]]#1)
// CHECK-NEXT:        "kitsune.release"(%[[X1]], %[[P1]]#1)
// CHECK:             "kitsune.settle"(%[[P1]]#0)
// CHECK:             "kitsune.write"
// CHECK:           "kitsune.release"(%[[W0]])
// CHECK-NEXT:      "kitsune.release"(%[[W1]])
func.func @kept(%a: tensor<65536x128xbf16>, %b: tensor<64x128xbf16>) -> tensor<65536x64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<65536x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<65536x64xf32>) -> tensor<65536x64xf32>
  %c = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
      affine_map<(m, n, k) -> (m, n)>] ins(%a, %b : tensor<65536x128xbf16>, tensor<64x128xbf16>)
      outs(%f : tensor<65536x64xf32>) -> tensor<65536x64xf32>
  return %c : tensor<65536x64xf32>
}
