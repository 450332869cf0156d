// RUN: kitsune-opt %s --schedule-products --canonicalize | filecheck %s
// RUN: kitsune-opt %s --schedule-products --verify-dataflow

// Heads lie side by side in the operands and in the result: copies and stores take an offset for each dimension, and
// nothing is transposed. The batch's number b is b / 4 of the first dimension and b % 4 of the third.

// CHECK-LABEL: func.func @heads
// CHECK-NOT:     linalg.transpose
// CHECK:         "kitsune.agent"
// CHECK:           scf.for
// CHECK:             %[[B:.*]] = arith.divui
// CHECK:             %[[OUTER:.*]] = arith.divui %[[N:.*]], %c4
// CHECK:             %[[INNER:.*]] = arith.remui %[[N]], %c4
// CHECK:             "kitsune.copy"(%{{.*}}, %arg0, %[[OUTER]], %{{.*}}, %[[INNER]], %{{.*}}) {dims = array<i64: 1, 3>
// CHECK:             "kitsune.copy"(%{{.*}}, %arg1, %{{.*}}) {dims = array<i64: 3, 1>
// CHECK:         "kitsune.write"(%{{.*}}) {dims = array<i64: 1, 3>, {{.*}} : (tensor<64x{{.*}}xf32>, index, index, index, index)
// CHECK:         %[[R:.*]] = "kitsune.result"(%{{.*}}) {{.*}} -> tensor<8x128x4x64xf32>
// CHECK-NOT:     linalg.transpose
// CHECK:         return %[[R]]
func.func @heads(%a: tensor<8x128x4x64xbf16>, %b: tensor<8x64x4x64xbf16>) -> tensor<8x128x4x64xf32> {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<8x4x128x64xbf16>
  %ta = linalg.transpose ins(%a : tensor<8x128x4x64xbf16>) outs(%e0 : tensor<8x4x128x64xbf16>) permutation = [0, 2, 1, 3]
  %ca = tensor.collapse_shape %ta [[0, 1], [2], [3]] : tensor<8x4x128x64xbf16> into tensor<32x128x64xbf16>
  %e1 = tensor.empty() : tensor<8x4x64x64xbf16>
  %tb = linalg.transpose ins(%b : tensor<8x64x4x64xbf16>) outs(%e1 : tensor<8x4x64x64xbf16>) permutation = [0, 2, 1, 3]
  %cb = tensor.collapse_shape %tb [[0, 1], [2], [3]] : tensor<8x4x64x64xbf16> into tensor<32x64x64xbf16>
  %e2 = tensor.empty() : tensor<32x128x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e2 : tensor<32x128x64xf32>) -> tensor<32x128x64xf32>
  %c = linalg.batch_matmul ins(%ca, %cb : tensor<32x128x64xbf16>, tensor<32x64x64xbf16>)
      outs(%f : tensor<32x128x64xf32>) -> tensor<32x128x64xf32>
  %x = tensor.expand_shape %c [[0, 1], [2], [3]] output_shape [8, 4, 128, 64]
      : tensor<32x128x64xf32> into tensor<8x4x128x64xf32>
  %e3 = tensor.empty() : tensor<8x128x4x64xf32>
  %t = linalg.transpose ins(%x : tensor<8x4x128x64xf32>) outs(%e3 : tensor<8x128x4x64xf32>) permutation = [0, 2, 1, 3]
  return %t : tensor<8x128x4x64xf32>
}
