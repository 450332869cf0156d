// RUN: kitsune-opt %s --schedule-products | filecheck %s
// RUN: kitsune-opt %s --schedule-products --verify-dataflow

// Two sets of 128 columns of sums. A group of two chunks is multiplied for the one set, then for the other; beside the
// first group's products for the one the other set of the tile before leaves, beside the last group's for the other
// the one set.

// CHECK-LABEL: func.func @pingpong
// CHECK:         "kitsune.tiles"({{.*}}) {{.*}}tile = array<i64: 128, 256>
// CHECK:         %[[LEFT:.*]] = "kitsune.alloc_ring"() {{.*}}sym_name = "left"} : () -> !kitsune.ring<tensor<128x64xbf16>, 4 : i64>
// CHECK:         %[[RIGHT:.*]] = "kitsune.alloc_ring"() {{.*}}sym_name = "right"} : () -> !kitsune.ring<tensor<128x64xbf16>, 7 : i64>
// CHECK:         %[[BIAS:.*]] = "kitsune.alloc_ring"() {box = "dense"
// CHECK:         "kitsune.agent"
// CHECK:           "kitsune.copy"({{.*}}) {dims = array<i64>, engine = "tma", into = 0 : i64
// CHECK:           scf.for
// CHECK:             "kitsune.acquire"(%[[LEFT]])
// CHECK:             "kitsune.acquire"(%[[RIGHT]])
// CHECK:             "kitsune.acquire"(%[[LEFT]])
// CHECK:             "kitsune.acquire"(%[[RIGHT]])
// CHECK-NOT:         "kitsune.acquire"(%[[LEFT]])
// CHECK:             "kitsune.acquire"(%[[RIGHT]])
// CHECK-NOT:         "kitsune.acquire"(%[[LEFT]])
// CHECK:             "kitsune.acquire"(%[[RIGHT]])
// CHECK:             scf.for
// CHECK:         "kitsune.agent"
// CHECK:           %[[SLOT:.*]] = "kitsune.wait"(%[[BIAS]])
// CHECK:           %[[ALL:.*]]:4 = scf.for {{.*}} iter_args(%[[FIRST:.*]] = %{{.*}}, %[[SUMS:.*]] = %{{.*}}, %[[ROW:.*]] = %c4096{{.*}}, %[[COLUMN:.*]] = %{{.*}})
// CHECK:             %[[SECOND:.*]] = "kitsune.settle"(%[[SUMS]])
// CHECK:             "kitsune.read"(%[[SLOT]]
// CHECK:             %[[Z0:.*]] = "kitsune.sums"(%[[FIRST]])
// CHECK:             %[[Z1:.*]] = "kitsune.sums"(%[[SECOND]])
// CHECK:             %[[L0:.*]] = "kitsune.wait"(%[[LEFT]])
// CHECK:             %[[R0:.*]] = "kitsune.wait"(%[[RIGHT]])
// CHECK:             %[[P0:.*]]:2 = "kitsune.product"(%[[Z0]], %[[L0]], %[[R0]])
// CHECK-NEXT:        "kitsune.part"
// CHECK:             "kitsune.write"({{.*}}) {{.*}}engine = "tma"
// CHECK:             %[[L1:.*]] = "kitsune.wait"(%[[LEFT]])
// CHECK:             %[[R1:.*]] = "kitsune.wait"(%[[RIGHT]])
// CHECK:             %[[P1:.*]]:2 = "kitsune.product"(%[[P0]]#0, %[[L1]], %[[R1]])
// CHECK-NEXT:        "kitsune.release"(%[[R0]], %[[P0]]#1)
// CHECK:             "kitsune.write"
// CHECK:             %[[R2:.*]] = "kitsune.wait"(%[[RIGHT]])
// CHECK:             %[[P2:.*]]:2 = "kitsune.product"(%[[Z1]], %[[L0]], %[[R2]])
// CHECK-NEXT:        "kitsune.release"(%[[R1]], %[[P1]]#1)
// CHECK:             %[[R3:.*]] = "kitsune.wait"(%[[RIGHT]])
// CHECK:             %[[P3:.*]]:2 = "kitsune.product"(%[[P2]]#0, %[[L1]], %[[R3]])
// CHECK-NEXT:        "kitsune.release"(%[[R2]], %[[P2]]#1)
// CHECK-NEXT:        "kitsune.release"(%[[L0]], %[[P0]]#1, %[[P2]]#1)
// CHECK:             %[[IN:.*]]:6 = scf.for {{.*}} iter_args({{.*}} = %[[P1]]#0, {{.*}} = %[[P3]]#0, {{.*}} = %[[R3]], {{.*}} = %[[L1]], {{.*}} = %[[P1]]#1, {{.*}} = %[[P3]]#1)
// CHECK:             %[[SET:.*]] = "kitsune.settle"(%{{.*}}#0)
// CHECK:             "kitsune.part"
// CHECK:             "kitsune.write"
// CHECK:             scf.yield %[[SET]], %{{.*}}#0, %{{.*}}, %{{.*}} :
// CHECK:           "kitsune.settle"(%[[ALL]]#1)
// CHECK:           "kitsune.write"
// CHECK:           "kitsune.write"
// CHECK:           "kitsune.release"(%[[SLOT]])
func.func @pingpong(%x: tensor<4096x512xbf16>, %w: tensor<2048x512xbf16>, %b: tensor<2048xbf16>) -> tensor<4096x2048xbf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4096x2048xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4096x2048xf32>) -> tensor<4096x2048xf32>
  %c = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
    affine_map<(m, n, k) -> (m, n)>] ins(%x, %w : tensor<4096x512xbf16>, tensor<2048x512xbf16>)
    outs(%f : tensor<4096x2048xf32>) -> tensor<4096x2048xf32>
  %g = tensor.empty() : tensor<4096x2048xbf16>
  %d = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>,
    affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
    ins(%c, %b : tensor<4096x2048xf32>, tensor<2048xbf16>) outs(%g : tensor<4096x2048xbf16>) {
  ^bb0(%p: f32, %q: bf16, %o: bf16):
    %r = arith.extf %q : bf16 to f32
    %s = arith.addf %p, %r : f32
    %t = arith.truncf %s : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<4096x2048xbf16>
  return %d : tensor<4096x2048xbf16>
}
