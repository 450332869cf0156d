// The CTAs of a cluster share the sum over k of a product that has few tiles, whose boxes are as high as its 40 rows.

// RUN: kitsune-opt %s --schedule-products=split-k=8 --verify-dataflow > %t.mlir
// RUN: filecheck %s < %t.mlir
// CHECK:       "kitsune.kernel"
// CHECK:         sym_name = "left"} : () -> !kitsune.ring<tensor<64x64xbf16>
// CHECK:         "kitsune.agent"
// CHECK:           %[[RANK:.*]] = "kitsune.rank"
// CHECK:           %[[PART:.*]] = arith.muli %[[RANK]], %c512
// CHECK:           "kitsune.copy"({{.*}} last = 40 : i64
// CHECK:         "kitsune.agent"
// CHECK:           %[[TILE:.*]] = "kitsune.settle"
// CHECK:           %[[SHARE:.*]] = "kitsune.meet"(%[[TILE]]) : (tensor<64x64xf32>) -> tensor<64x8xf32>
// CHECK:           "kitsune.rank"
// CHECK:           "kitsune.write"(%[[SHARE]]
// CHECK:       {cluster = 8 : i64,

// RUN: kitsune-opt %t.mlir --convert-kitsune-to-gpu | filecheck %s --check-prefix=GPU
// GPU: kitsune.launch = "{{.*}}\22ctas\22: 8, \22cluster\22: 8
// GPU: nvvm.cluster_dim = array<i32: 8, 1, 1>
// GPU: st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32

// RUN: kitsune-opt %s --schedule-products=split-k=1 | filecheck %s --check-prefix=ONE
// ONE-NOT: cluster
// RUN: not kitsune-opt %s --schedule-products=split-k=3 2>&1 | filecheck %s --check-prefix=THREE
// THREE: error: schedule-products: split-k must be one of 0, 1, 2, 4, 8, found 3

#x = affine_map<(i, j, k) -> (i, k)>
#w = affine_map<(i, j, k) -> (j, k)>
#y = affine_map<(i, j, k) -> (i, j)>

func.func @main(%x: tensor<40x4096xbf16>, %w: tensor<64x4096xbf16>) -> tensor<40x64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<40x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<40x64xf32>) -> tensor<40x64xf32>
  %y = linalg.matmul indexing_maps = [#x, #w, #y] ins(%x, %w : tensor<40x4096xbf16>, tensor<64x4096xbf16>) outs(%f : tensor<40x64xf32>) -> tensor<40x64xf32>
  return %y : tensor<40x64xf32>
}
