// RUN: kitsune-opt %s --partition-dataflow --design-pipeline --place-stages=target=sm_90a --verify-dataflow | filecheck %s
// RUN: kitsune-opt %S/../cut-pipelines/stages.mlir --partition-dataflow=min-summed=0 --design-pipeline --place-stages='target=sm_90a shape=chained' --verify-dataflow | filecheck %s --check-prefix=TWO
// RUN: not kitsune-opt %s --partition-dataflow --design-pipeline --place-stages='target=sm_90a shape=chained cluster=2' 2>&1 | filecheck %s --check-prefix=CLUSTER

// A sum over the rows of 256 by 256: two CTAs have a partial sum, which another kernel adds up.
// CHECK-LABEL: func.func @gradient
// CHECK: "kitsune.queue"() {sym_name = "q0", transport = "hbm"} : () -> !kitsune.ring<tensor<256x256xf32>, 66 : i64>
// CHECK: "kitsune.load"(%arg0) : (tensor<100000x256xbf16>) -> tensor<64x256xbf16>
// CHECK: "kitsune.accumulate"
// CHECK: {kind = "tensor", replicas = 132 : i64, role = 0 : i64, sym_name = "s0"}
// CHECK: "kitsune.reduce"
// CHECK: {kind = "simt", replicas = 132 : i64, role = 0 : i64, sym_name = "sum0"}
// CHECK: shape = "chained"

// One tile to two products lies in shared memory.
// TWO: transport = "smem"} : () -> !kitsune.ring<tensor<64x256xbf16>, 1 : i64>
// TWO: transport = "hbm"} : () -> !kitsune.ring<tensor<256x256xf32>, 16 : i64>
// TWO: shape = "chained"

// CLUSTER: error: pipeline 'pipeline0' cannot be chained: no clusters of CTAs sum over the rows; use shape=auto
// CLUSTER-NOT: Traceback
func.func @gradient(%x: tensor<100000x256xbf16>, %dy: tensor<100000x256xbf16>) -> tensor<256x256xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<256x256xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<256x256xf32>) -> tensor<256x256xf32>
  %sum = linalg.matmul
    indexing_maps = [affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]
    ins(%x, %dy : tensor<100000x256xbf16>, tensor<100000x256xbf16>) outs(%init : tensor<256x256xf32>)
    -> tensor<256x256xf32>
  return %sum : tensor<256x256xf32>
}
