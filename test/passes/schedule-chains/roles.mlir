// RUN: kitsune-opt %s --partition-dataflow --design-pipeline --place-stages="target=sm_90a shape=spatial" --schedule-chains --verify-dataflow | filecheck %s
// RUN: kitsune-opt %s --partition-dataflow --design-pipeline --place-stages="target=sm_90a shape=spatial" --schedule-chains --convert-kitsune-to-gpu | filecheck %s --check-prefix=LOWERED

// Stages with CTAs of their own: a role for each, and a ring in L2 between them. Warpgroups of the one fill the slot of
// the turn's tile; the thread that feeds the other copies it into shared memory, chunk by chunk, and gives it back.

// CHECK-LABEL: func.func @roles
// CHECK-NOT:     kitsune.pipeline
// CHECK:         %[[Q:.*]] = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q0"} : () -> !kitsune.ring<tensor<128x160xbf16>, 7 : i64>
// CHECK:         "kitsune.role"() ({
// CHECK:           %[[T:.*]]:3 = "kitsune.tiles"(%{{.*}}) {{.*}}tile = array<i64: 128>
// CHECK:           sym_name = "feed"
// CHECK:             scf.for %{{.*}} = %[[T]]#0 to %[[T]]#1 step %[[T]]#2 {
// CHECK:               %[[H:.*]] = "kitsune.part"(%{{.*}}) {first = 0 : i64} : (tensor<64x160xbf16>)
// CHECK:               %[[S:.*]] = "kitsune.acquire"(%[[Q]])
// CHECK:               "kitsune.fill"(%[[S]], %[[H]], %{{.*}}) : (!kitsune.slot<tensor<128x160xbf16>>, tensor<64x160xbf16>, index) -> ()
// CHECK:               "kitsune.commit"(%[[S]])
// CHECK:         }) {replicas = 3 : i64, sym_name = "s0"} : () -> ()
// CHECK:         "kitsune.role"() ({
// CHECK:             %[[W:.*]] = "kitsune.wait"(%[[Q]])
// CHECK:             scf.for
// CHECK:               "kitsune.copy"(%{{.*}}, %[[W]], %{{.*}}, %{{.*}}) {dims = array<i64: 0, 1>, engine = "tma"
// CHECK:             }
// CHECK:             "kitsune.release"(%[[W]])
// CHECK:         }) {replicas = 3 : i64, sym_name = "s1"} : () -> ()
// CHECK:       }) {limit = {{.*}}, predicted_us = {{.*}}, sym_name = "pipeline0", target = "sm_90a"}

// All CTAs must be resident, and counters are zero again behind the launch.
// LOWERED: kitsune.launch = "{{.*}}\22ctas\22: 6, {{.*}}\22cooperative\22: true, \22strided\22: false
func.func @roles(%h0: tensor<300x64xbf16>, %w0: tensor<160x64xbf16>, %b0: tensor<160xbf16>, %w1: tensor<32x160xbf16>, %b1: tensor<32xbf16>) -> tensor<300x32xbf16> {
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
