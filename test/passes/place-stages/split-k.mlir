// The CTAs of a cluster share the sum over k of a product that has few tiles: 16 rows and 64 columns are one.

// RUN: kitsune-opt %s --partition-dataflow --design-pipeline --place-stages=target=sm_90a --verify-dataflow > %t.mlir
// RUN: filecheck %s < %t.mlir
// CHECK: {kind = "tensor", replicas = 8 : i64, role = 0 : i64, sym_name = "s0"}
// CHECK: {limit = "{{[A-Za-z0-9 ]+}}", predicted_us = {{[0-9.e+]+}} : f64, shape = "chained", split_k = 8 : i64, sym_name = "pipeline0"

// RUN: kitsune-opt %t.mlir --convert-kitsune-to-gpu | filecheck %s --check-prefix=GPU
// GPU: kitsune.launch = "{\22kernel\22: \22pipeline0\22, \22ctas\22: 8, \22cluster\22: 8
// GPU: nvvm.cluster_dim = array<i32: 8, 1, 1>
// GPU: st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32

// RUN: kitsune-opt %s --partition-dataflow --design-pipeline --place-stages='target=sm_90a split-k=2' | filecheck %s --check-prefix=TWO
// TWO: {kind = "tensor", replicas = 2 : i64
// TWO: split_k = 2 : i64
// RUN: kitsune-opt %s --partition-dataflow --design-pipeline --place-stages='target=sm_90a split-k=1' | filecheck %s --check-prefix=ONE
// ONE-NOT: split_k

// What cannot be.
// RUN: not kitsune-opt %s --partition-dataflow --design-pipeline --place-stages='target=sm_90a split-k=3' 2>&1 | filecheck %s --check-prefix=THREE
// THREE: error: place-stages: split-k must be one of 0, 1, 2, 4, 8, found 3
// RUN: not kitsune-opt %s --partition-dataflow --design-pipeline --place-stages='target=sm_90a split-k=2 shape=spatial' 2>&1 | filecheck %s --check-prefix=SHAPE
// SHAPE: error: place-stages: split-k=2 is for chained tiles, not for shape=spatial
// RUN: not kitsune-opt %S/chained.mlir --place-stages='target=sm_90a split-k=2' 2>&1 | filecheck %s --check-prefix=CHAIN
// CHAIN: error: pipeline 'mlp' cannot have split-k=2: k is split for one streamed operand of 16-bit elements, alone in its kernel
// RUN: not kitsune-opt %s --partition-dataflow --design-pipeline --place-stages='target=sm_90a split-k=2 multicast=2' 2>&1 | filecheck %s --check-prefix=MULTICAST
// MULTICAST: error: pipeline 'pipeline0' cannot have multicast=2 split-k=2: k is split for one streamed operand
// RUN: not kitsune-opt %S/accumulated.mlir --partition-dataflow --design-pipeline --place-stages='target=sm_90a split-k=2' 2>&1 | filecheck %s --check-prefix=SUMS
// SUMS: error: pipeline 'pipeline0' cannot have split-k=2: a sum over the rows has no other k to split

#x = affine_map<(i, j, k) -> (i, k)>
#w = affine_map<(i, j, k) -> (j, k)>
#y = affine_map<(i, j, k) -> (i, j)>

func.func @main(%x: tensor<16x4096xbf16>, %w: tensor<64x4096xbf16>) -> tensor<16x64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<16x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<16x64xf32>) -> tensor<16x64xf32>
  %y = linalg.matmul indexing_maps = [#x, #w, #y] ins(%x, %w : tensor<16x4096xbf16>, tensor<64x4096xbf16>) outs(%f : tensor<16x64xf32>) -> tensor<16x64xf32>
  %t = linalg.exp ins(%y : tensor<16x64xf32>) outs(%e : tensor<16x64xf32>) -> tensor<16x64xf32>
  return %t : tensor<16x64xf32>
}
