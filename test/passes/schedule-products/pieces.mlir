// f32 in full precision: a chunk of each of three pieces is copied once, their six pairs are multiplied one behind
// another, and the sums of the chunk, which begin at zero, are added to the others outside of tensor cores.

// RUN: kitsune-opt %s --schedule-products --verify-dataflow | filecheck %s
// CHECK:       "kitsune.kernel"
// CHECK:         sym_name = "feed"
// CHECK:         %[[ALL:.*]] = scf.for {{.*}} iter_args(%[[TOTAL:.*]] = %{{.*}}) -> (tensor<64x{{[0-9]+}}xf32>)
// CHECK-COUNT-6:   "kitsune.wait"
// CHECK:           %[[SUMS:.*]] = "kitsune.sums"()
// CHECK:           "kitsune.product"(%[[SUMS]]
// CHECK-COUNT-5:   "kitsune.product"
// CHECK:           %[[OWN:.*]] = "kitsune.settle"
// CHECK:           linalg.generic {{.*}} ins(%[[TOTAL]], %[[OWN]]
// CHECK-COUNT-6:   "kitsune.release"
// CHECK-NOT:       "kitsune.product"
// CHECK:       pairs = 6 : i64

// RUN: kitsune-opt %s --schedule-products=target=sm_80 --convert-kitsune-to-gpu=target=sm_80 | filecheck %s --check-prefix=WARPS
// WARPS-COUNT-6: mma.sync.aligned.m16n8k16

#x = affine_map<(i, j, k) -> (i, k)>
#w = affine_map<(i, j, k) -> (j, k)>
#y = affine_map<(i, j, k) -> (i, j)>

func.func @main(%x: tensor<600x256xf32>, %w: tensor<512x256xf32>) -> tensor<600x512xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<600x512xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<600x512xf32>) -> tensor<600x512xf32>
  %y = linalg.matmul indexing_maps = [#x, #w, #y] ins(%x, %w : tensor<600x256xf32>, tensor<512x256xf32>) outs(%f : tensor<600x512xf32>) -> tensor<600x512xf32>
  return %y : tensor<600x512xf32>
}
