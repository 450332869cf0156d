// RUN: kitsune-opt %s --prepare-linalg | filecheck %s

// A column of the operand that holds one number everywhere: its part of the sums is added to those of the others.

#x = affine_map<(i, j, k) -> (i, k)>
#w = affine_map<(i, j, k) -> (j, k)>
#y = affine_map<(i, j, k) -> (i, j)>

// CHECK-LABEL: func.func @time
// CHECK-NOT:     tensor.concat
// CHECK:         %[[U:.*]] = tensor.extract_slice %arg1[0, 0] [4, 8] [1, 1]
// CHECK:         %[[P:.*]] = linalg.matmul {{.*}} ins(%arg0, %[[U]] : tensor<?x8xbf16>, tensor<4x8xbf16>)
// CHECK:         %[[V:.*]] = tensor.extract_slice %arg1[0, 8] [4, 1] [1, 1]
// CHECK:         %[[C:.*]] = tensor.collapse_shape %[[V]]
// CHECK:         %[[Y:.*]] = linalg.generic {{.*}} ins(%[[P]], %[[C]]
// CHECK:           arith.mulf
// CHECK:           arith.addf
// CHECK:         return %[[Y]]
func.func @time(%x: tensor<?x8xbf16>, %w: tensor<4x9xbf16>, %n: index) -> tensor<?x4xf32> attributes {kitsune.weights = array<i64: 1>} {
  %zero = arith.constant 0.0 : f32
  %t = arith.constant 0.25 : bf16
  %e = tensor.empty(%n) : tensor<?x1xbf16>
  %f = linalg.fill ins(%t : bf16) outs(%e : tensor<?x1xbf16>) -> tensor<?x1xbf16>
  %c = tensor.concat dim(1) %x, %f : (tensor<?x8xbf16>, tensor<?x1xbf16>) -> tensor<?x9xbf16>
  %e1 = tensor.empty(%n) : tensor<?x4xf32>
  %b = linalg.fill ins(%zero : f32) outs(%e1 : tensor<?x4xf32>) -> tensor<?x4xf32>
  %y = linalg.matmul indexing_maps = [#x, #w, #y] ins(%c, %w : tensor<?x9xbf16>, tensor<4x9xbf16>) outs(%b : tensor<?x4xf32>) -> tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}

// Where the other operand is no weight, slices of it would be computed in each call.

// CHECK-LABEL: func.func @no_weight
// CHECK:         linalg.matmul {{.*}} tensor<4x9xbf16>
func.func @no_weight(%x: tensor<2x8xbf16>, %w: tensor<4x9xbf16>) -> tensor<2x4xf32> {
  %zero = arith.constant 0.0 : f32
  %t = arith.constant 0.25 : bf16
  %e = tensor.empty() : tensor<2x1xbf16>
  %f = linalg.fill ins(%t : bf16) outs(%e : tensor<2x1xbf16>) -> tensor<2x1xbf16>
  %c = tensor.concat dim(1) %x, %f : (tensor<2x8xbf16>, tensor<2x1xbf16>) -> tensor<2x9xbf16>
  %e1 = tensor.empty() : tensor<2x4xf32>
  %b = linalg.fill ins(%zero : f32) outs(%e1 : tensor<2x4xf32>) -> tensor<2x4xf32>
  %y = linalg.matmul indexing_maps = [#x, #w, #y] ins(%c, %w : tensor<2x9xbf16>, tensor<4x9xbf16>) outs(%b : tensor<2x4xf32>) -> tensor<2x4xf32>
  return %y : tensor<2x4xf32>
}
