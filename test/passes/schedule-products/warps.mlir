// RUN: kitsune-opt %s --schedule-products=target=sm_80 | filecheck %s
// RUN: kitsune-opt %s --schedule-products=target=sm_80 --verify-dataflow
// RUN: kitsune-opt %s --schedule-products=target=sm_89 | filecheck %s --check-prefix=SMALL
// RUN: kitsune-opt %s --schedule-products=target=sm_89 --verify-dataflow

// Without warpgroups all threads of the feeding agent copy, warps multiply by themselves, a chunk's slots are released
// behind its own product, and all threads have equally many registers. Slots fit the chip's shared memory.

// CHECK-LABEL: func.func @product
// CHECK:         "kitsune.tiles"({{.*}}tile = array<i64: 128, 128>}
// CHECK:         %[[LEFT:[a-z0-9_]+]] = "kitsune.alloc_ring"() {box = "rows", share = "split", {{.*}} -> !kitsune.ring<tensor<128x64xbf16>, 5 : i64>
// CHECK:         %[[RIGHT:[a-z0-9_]+]] = "kitsune.alloc_ring"() {box = "columns", share = "all", {{.*}} -> !kitsune.ring<tensor<128x64xbf16>, 5 : i64>
// CHECK:         "kitsune.agent"
// CHECK:           scf.for
// CHECK:             scf.for %[[K:[a-z0-9_]+]] = %{{.*}} to %{{.*}} step %{{.*}} {
// CHECK-NEXT:          %[[S:[a-z0-9_]+]] = "kitsune.acquire"(%[[LEFT]])
// CHECK-NEXT:          %[[D:[a-z0-9_]+]] = "kitsune.copy"(%[[S]], %{{.*}}, %{{.*}}, %[[K]]) {dims = array<i64: 0, 1>, engine = "cp_async"
// CHECK-NEXT:          "kitsune.commit"(%[[S]], %[[D]])
// CHECK:               "kitsune.copy"(%{{.*}}, %{{.*}}, %[[K]], %{{.*}}) {dims = array<i64: 1, 0>, engine = "cp_async"
// CHECK:         }) {copies = 1 : i64, registers = 248 : i64, sym_name = "feed", warps = 4 : i64}
// CHECK:         "kitsune.agent"
// CHECK:           %[[Z:[a-z0-9_]+]] = "kitsune.sums"() {{.*}}: () -> !kitsune.acc<tensor<128x128xf32>>
// CHECK:           scf.for {{.*}} iter_args(%[[U:[a-z0-9_]+]] = %[[Z]])
// CHECK:             %[[A:[a-z0-9_]+]] = "kitsune.wait"(%[[LEFT]])
// CHECK:             %[[B:[a-z0-9_]+]] = "kitsune.wait"(%[[RIGHT]])
// CHECK:             %[[P:[a-z0-9_]+]]:2 = "kitsune.product"(%[[U]], %[[A]], %[[B]]) {engine = "mma_sync"}
// CHECK-NEXT:        "kitsune.release"(%[[A]], %[[P]]#1)
// CHECK-NEXT:        "kitsune.release"(%[[B]], %[[P]]#1)
// CHECK-NEXT:        scf.yield %[[P]]#0
// CHECK:           "kitsune.settle"
// CHECK:           arith.truncf
// CHECK:         }) {copies = 1 : i64, registers = 248 : i64, sym_name = "math", warps = 4 : i64}
// CHECK:       target = "sm_80"

// SMALL-LABEL: func.func @product
// SMALL:         "kitsune.alloc_ring"() {{.*}} : () -> !kitsune.ring<tensor<128x64xbf16>, 3 : i64>
// SMALL:         "kitsune.alloc_ring"() {{.*}} : () -> !kitsune.ring<tensor<128x64xbf16>, 3 : i64>
// SMALL:         }) {copies = 1 : i64, registers = 168 : i64, sym_name = "feed", warps = 4 : i64}
// SMALL:         }) {copies = 2 : i64, registers = 168 : i64, sym_name = "math", warps = 4 : i64}
func.func @product(%a: tensor<8192x4096xbf16>, %b: tensor<4096x4096xbf16>) -> tensor<8192x4096xbf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8192x4096xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8192x4096xf32>) -> tensor<8192x4096xf32>
  %c = linalg.matmul ins(%a, %b : tensor<8192x4096xbf16>, tensor<4096x4096xbf16>) outs(%f : tensor<8192x4096xf32>)
      -> tensor<8192x4096xf32>
  %n = tensor.empty() : tensor<8192x4096xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>],
    iterator_types = ["parallel", "parallel"]} ins(%c : tensor<8192x4096xf32>) outs(%n : tensor<8192x4096xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %y = arith.truncf %x : f32 to bf16
    linalg.yield %y : bf16
  } -> tensor<8192x4096xbf16>
  return %r : tensor<8192x4096xbf16>
}
