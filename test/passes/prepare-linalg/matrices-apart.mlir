// RUN: kitsune-opt %s --prepare-linalg | filecheck %s

// einsum("beck,bk->bec", w[experts], x): the rows of a token's two experts become a batch of both.

// CHECK-LABEL: func.func @experts
// CHECK:         %[[W:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<16x2x96x128xbf16>)
// CHECK:         %[[L:.*]] = tensor.collapse_shape %[[W]] {{\[}}[0, 1], [2], [3]] {{.*}} into tensor<32x96x128xbf16>
// CHECK:         %[[X:.*]] = linalg.generic {{.*}} ins(%arg2 : tensor<16x128x1xbf16>) outs(%{{.*}} : tensor<16x2x128x1xbf16>)
// CHECK:         %[[R:.*]] = tensor.collapse_shape %[[X]] {{\[}}[0, 1], [2], [3]] {{.*}} into tensor<32x128x1xbf16>
// CHECK:         %[[P:.*]] = linalg.batch_matmul ins(%[[L]], %[[R]] : {{.*}} -> tensor<32x96x1xf32>
// CHECK:         return %{{.*}} : tensor<16x192x1xf32>
func.func @experts(%w: tensor<8x96x128xbf16>, %n: tensor<16x2xi64>, %x: tensor<16x128x1xbf16>) -> tensor<16x192x1xf32> {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<16x2x96x128xbf16>
  %t = linalg.generic {indexing_maps = [affine_map<(b, e, c, k) -> (b, e)>, affine_map<(b, e, c, k) -> (b, e, c, k)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%n : tensor<16x2xi64>) outs(%e0 : tensor<16x2x96x128xbf16>) {
  ^bb0(%in: i64, %out: bf16):
    %number = arith.index_cast %in : i64 to index
    %row = linalg.index 2 : index
    %column = linalg.index 3 : index
    %element = tensor.extract %w[%number, %row, %column] : tensor<8x96x128xbf16>
    linalg.yield %element : bf16
  } -> tensor<16x2x96x128xbf16>
  %l = tensor.collapse_shape %t [[0], [1, 2], [3]] : tensor<16x2x96x128xbf16> into tensor<16x192x128xbf16>
  %e1 = tensor.empty() : tensor<16x192x1xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e1 : tensor<16x192x1xf32>) -> tensor<16x192x1xf32>
  %p = linalg.batch_matmul ins(%l, %x : tensor<16x192x128xbf16>, tensor<16x128x1xbf16>) outs(%f : tensor<16x192x1xf32>) -> tensor<16x192x1xf32>
  return %p : tensor<16x192x1xf32>
}

// Matrices that are not gathered stay together.

// CHECK-LABEL: func.func @plain
// CHECK:         linalg.batch_matmul {{.*}} -> tensor<16x192x1xf32>
func.func @plain(%w: tensor<16x2x96x128xbf16>, %x: tensor<16x128x1xbf16>) -> tensor<16x192x1xf32> {
  %zero = arith.constant 0.0 : f32
  %l = tensor.collapse_shape %w [[0], [1, 2], [3]] : tensor<16x2x96x128xbf16> into tensor<16x192x128xbf16>
  %e1 = tensor.empty() : tensor<16x192x1xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e1 : tensor<16x192x1xf32>) -> tensor<16x192x1xf32>
  %p = linalg.batch_matmul ins(%l, %x : tensor<16x192x128xbf16>, tensor<16x128x1xbf16>) outs(%f : tensor<16x192x1xf32>) -> tensor<16x192x1xf32>
  return %p : tensor<16x192x1xf32>
}
