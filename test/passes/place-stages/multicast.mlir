// CTAs of a cluster take neighbouring tiles and load boxes of weights for one another: 8 tiles are 4 clusters of 2.

// RUN: sed '/A tile too wide/,$d' %S/chained.mlir > %t.mlir
// RUN: kitsune-opt %t.mlir --place-stages='target=sm_90a multicast=2' --verify-dataflow | filecheck %s
// CHECK: transport = "reg"} : () -> !kitsune.ring<tensor<128x256xbf16>, 1 : i64>
// CHECK: {kind = "tensor", replicas = 8 : i64, role = 0 : i64, sym_name = "down"}
// CHECK: {limit = "{{[A-Za-z0-9 ]+}}", multicast = 2 : i64, predicted_us = {{[0-9.e+]+}} : f64, shape = "chained", sym_name = "mlp"

// A box of 128 rows of a weight comes in two pieces, one of 8 in two of 8: zeros beyond the weight.
// RUN: kitsune-opt %t.mlir --place-stages='target=sm_90a multicast=2' --convert-kitsune-to-gpu | filecheck %s --check-prefix=GPU
// GPU: kitsune.launch = "{\22kernel\22: \22mlp\22, \22ctas\22: 8, \22cluster\22: 2
// GPU-SAME: \22dims\22: [64, 256], \22strides\22: [128], \22box\22: [64, 64]
// GPU-SAME: \22dims\22: [256, 8], \22strides\22: [512], \22box\22: [64, 8]
// GPU: nvvm.cluster_dim = array<i32: 2, 1, 1>
// GPU: cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [$0], [$1, {$3, $4}], [$2], $5;

// What cannot be.
// RUN: not kitsune-opt %S/chained.mlir --place-stages='target=sm_90a multicast=2' 2>&1 | filecheck %s --check-prefix=WIDE
// WIDE: error: pipeline 'wide' cannot have multicast=2: 512 columns of a product are more than a warpgroup keeps in registers
// RUN: not kitsune-opt %S/chained.mlir --place-stages='target=sm_90a multicast=2 cluster=2' 2>&1 | filecheck %s --check-prefix=CLUSTER
// CLUSTER: error: pipeline 'mlp' cannot have multicast=2: CTAs that share the columns of a tile have no boxes of weights in common
// RUN: not kitsune-opt %s --place-stages='target=sm_90a multicast=2' 2>&1 | filecheck %s --check-prefix=NONE
// NONE: error: pipeline 'plain' cannot have multicast=2: there are no weights to share
// RUN: not kitsune-opt %S/accumulated.mlir --partition-dataflow --design-pipeline --place-stages='target=sm_90a multicast=2' 2>&1 | filecheck %s --check-prefix=SUMS
// SUMS: error: pipeline 'pipeline0' cannot have multicast=2: a sum over the rows has no boxes of weights that CTAs could share
// RUN: not kitsune-opt %t.mlir --place-stages='target=sm_90a multicast=3' 2>&1 | filecheck %s --check-prefix=THREE
// THREE: error: place-stages: multicast must be one of 1, 2, 4, found 3
// RUN: not kitsune-opt %t.mlir --place-stages='target=sm_90a multicast=2 shape=spatial' 2>&1 | filecheck %s --check-prefix=SHAPE
// SHAPE: error: place-stages: multicast=2 is for chained tiles, not for shape=spatial

// Said by hand of stages with CTAs of their own, it has no kernel.
// RUN: kitsune-opt %t.mlir --place-stages='target=sm_90a shape=spatial tile-rows=128' | sed 's/{limit/{multicast = 2 : i64, limit/' > %t.spatial.mlir
// RUN: kitsune-opt %t.spatial.mlir --convert-kitsune-to-gpu 2>&1 | filecheck %s --check-prefix=ROLES
// ROLES: remark: pipeline 'mlp' runs bulk-synchronously: boxes of weights are not shared where stages have CTAs of their own

func.func @main(%x: tensor<1000x64xbf16>) -> tensor<1000x64xbf16> {
  %p = "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %tile = "kitsune.load"(%x) : (tensor<1000x64xbf16>) -> tensor<?x64xbf16>
      %c0 = arith.constant 0 : index
      %rows = tensor.dim %tile, %c0 : tensor<?x64xbf16>
      %e = tensor.empty(%rows) : tensor<?x64xbf16>
      %y = linalg.exp ins(%tile : tensor<?x64xbf16>) outs(%e : tensor<?x64xbf16>) -> tensor<?x64xbf16>
      "kitsune.store"(%y) {index = 0 : i64} : (tensor<?x64xbf16>) -> ()
    }) {kind = "simt", sym_name = "exp"} : () -> ()
  }) {sym_name = "plain"} : () -> !kitsune.outputs
  %out = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<1000x64xbf16>
  return %out : tensor<1000x64xbf16>
}
