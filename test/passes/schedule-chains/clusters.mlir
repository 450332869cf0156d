// RUN: kitsune-opt %s --partition-dataflow --design-pipeline --place-stages="target=sm_90a shape=chained cluster=2" --schedule-chains --verify-dataflow | filecheck %s

// Of 160 columns each of two CTAs computes 80. Two chunks of them go to the other CTA, which takes them behind its own
// from a ring, and gives the slots back; weights are those of the CTA's columns, and meet those of either CTA.

// CHECK-LABEL: func.func @shared
// CHECK-NOT:     kitsune.pipeline
// CHECK:         %[[V:.*]] = "kitsune.alloc_ring"() {box = "dense"
// CHECK:         %[[R:.*]] = "kitsune.alloc_ring"() {box = "rows", share = "own", space = "dsmem", sym_name = "sent_1"} : () -> !kitsune.ring<tensor<128x64xbf16>, 2 : i64>
// CHECK:           %[[RANK:.*]] = "kitsune.rank"()
// CHECK:           %[[ROW:.*]] = arith.muli %[[RANK]], %c80
// CHECK:           %[[AT:.*]] = arith.addi %[[ROW]], %c0
// CHECK:           "kitsune.copy"(%{{.*}}, %arg1, %[[AT]], %{{.*}})
// CHECK:           %[[BEHIND:.*]] = arith.remui
// CHECK:           %[[COLUMN:.*]] = arith.muli %[[BEHIND]], %c80
// CHECK:         sym_name = "feed"
// CHECK:           %[[B:.*]] = "kitsune.wait"(%[[V]])
// CHECK:           %[[Y:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<64x80xbf16>)
// CHECK:           %[[C0:.*]] = "kitsune.part"(%[[Y]]) {first = 0 : i64} : (tensor<64x80xbf16>) -> tensor<64x64xbf16>
// CHECK:           %[[C1:.*]] = "kitsune.part"(%[[Y]]) {first = 64 : i64} : (tensor<64x80xbf16>) -> tensor<64x16xbf16>
// CHECK:           "kitsune.send"(%[[R]], %[[C0]])
// CHECK:           "kitsune.send"(%[[R]], %[[C1]])
// CHECK:           %[[P0:.*]]:2 = "kitsune.product"(%{{.*}}, %[[C0]],
// CHECK:           %[[S0:.*]] = "kitsune.wait"(%[[R]])
// CHECK:           %[[P1:.*]]:2 = "kitsune.product"(%[[P0]]#0, %[[S0]],
// CHECK:           %[[P2:.*]]:2 = "kitsune.product"(%[[P1]]#0, %[[C1]],
// CHECK:           "kitsune.release"(%[[S0]], %[[P1]]#1)
// CHECK:           %[[S1:.*]] = "kitsune.wait"(%[[R]]) {{.*}} -> !kitsune.slot<tensor<128x16xbf16>>
// CHECK:           %[[P3:.*]]:2 = "kitsune.product"(%[[P2]]#0, %[[S1]],
// CHECK:           "kitsune.release"(%[[S1]], %[[P3]]#1)
// CHECK:           %[[OWN:.*]] = "kitsune.rank"()
// CHECK:           %[[FIRST:.*]] = arith.muli %[[OWN]], %c16
// CHECK:           "kitsune.write"(%{{.*}}, %{{.*}}, %[[FIRST]])
// CHECK:         cluster = 2 : i64
func.func @shared(%h0: tensor<300x64xbf16>, %w0: tensor<160x64xbf16>, %b0: tensor<160xbf16>, %w1: tensor<32x160xbf16>, %b1: tensor<32xbf16>) -> tensor<300x32xbf16> {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<300x160xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<300x160xf32>) -> tensor<300x160xf32>
  %p0 = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
    affine_map<(m, n, k) -> (m, n)>] ins(%h0, %w0 : tensor<300x64xbf16>, tensor<160x64xbf16>)
    outs(%f0 : tensor<300x160xf32>) -> tensor<300x160xf32>
  %o0 = tensor.empty() : tensor<300x160xbf16>
  %h1 = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (c)>,
    affine_map<(r, c) -> (r, c)>], iterator_types = ["parallel", "parallel"]}
    ins(%p0, %b0 : tensor<300x160xf32>, tensor<160xbf16>) outs(%o0 : tensor<300x160xbf16>) {
  ^bb0(%a: f32, %c: bf16, %o: bf16):
    %0 = arith.extf %c : bf16 to f32
    %1 = arith.addf %a, %0 : f32
    %2 = arith.maximumf %1, %zero : f32
    %3 = arith.truncf %2 : f32 to bf16
    linalg.yield %3 : bf16
  } -> tensor<300x160xbf16>
  %e1 = tensor.empty() : tensor<300x32xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<300x32xf32>) -> tensor<300x32xf32>
  %p1 = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
    affine_map<(m, n, k) -> (m, n)>] ins(%h1, %w1 : tensor<300x160xbf16>, tensor<32x160xbf16>)
    outs(%f1 : tensor<300x32xf32>) -> tensor<300x32xf32>
  %o1 = tensor.empty() : tensor<300x32xbf16>
  %h2 = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (c)>,
    affine_map<(r, c) -> (r, c)>], iterator_types = ["parallel", "parallel"]}
    ins(%p1, %b1 : tensor<300x32xf32>, tensor<32xbf16>) outs(%o1 : tensor<300x32xbf16>) {
  ^bb0(%a: f32, %c: bf16, %o: bf16):
    %0 = arith.extf %c : bf16 to f32
    %1 = arith.addf %a, %0 : f32
    %2 = arith.maximumf %1, %zero : f32
    %3 = arith.truncf %2 : f32 to bf16
    linalg.yield %3 : bf16
  } -> tensor<300x32xbf16>
  return %h2 : tensor<300x32xbf16>
}
