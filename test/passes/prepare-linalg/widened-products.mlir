// RUN: kitsune-opt %s --prepare-linalg | filecheck %s

// A layer of f32 whose operands are 16-bit numbers, of rows of two dimensions, and of a weight that is turned.

#id = affine_map<(i, j) -> (i, j)>
#id3 = affine_map<(i, j, k) -> (i, j, k)>

// CHECK-LABEL: func.func @layer
// CHECK:         %[[X:.*]] = tensor.collapse_shape %arg0
// CHECK:         linalg.matmul {{.*}} ins(%[[X]], %arg1 : tensor<6x8xbf16>, tensor<4x8xbf16>)
func.func @layer(%x: tensor<2x3x8xbf16>, %w: tensor<4x8xbf16>) -> tensor<6x4xf32> attributes {kitsune.weights = array<i64: 1>} {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<2x3x8xf32>
  %a = linalg.generic {indexing_maps = [#id3, #id3], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x : tensor<2x3x8xbf16>) outs(%e0 : tensor<2x3x8xf32>) {
  ^bb0(%in: bf16, %out: f32):
    %t = arith.extf %in : bf16 to f32
    linalg.yield %t : f32
  } -> tensor<2x3x8xf32>
  %r = tensor.collapse_shape %a [[0, 1], [2]] : tensor<2x3x8xf32> into tensor<6x8xf32>
  %e1 = tensor.empty() : tensor<4x8xf32>
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%w : tensor<4x8xbf16>) outs(%e1 : tensor<4x8xf32>) {
  ^bb0(%in: bf16, %out: f32):
    %t = arith.extf %in : bf16 to f32
    linalg.yield %t : f32
  } -> tensor<4x8xf32>
  %e2 = tensor.empty() : tensor<8x4xf32>
  %t = linalg.transpose ins(%b : tensor<4x8xf32>) outs(%e2 : tensor<8x4xf32>) permutation = [1, 0]
  %e3 = tensor.empty() : tensor<6x4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e3 : tensor<6x4xf32>) -> tensor<6x4xf32>
  %y = linalg.matmul ins(%r, %t : tensor<6x8xf32>, tensor<8x4xf32>) outs(%f : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %y : tensor<6x4xf32>
}

// One operand is no 16-bit number.

// CHECK-LABEL: func.func @of_both_types
// CHECK:         linalg.matmul {{.*}} tensor<6x8xf32>, tensor<8x4xf32>
func.func @of_both_types(%x: tensor<6x8xbf16>, %w: tensor<8x4xf32>) -> tensor<6x4xf32> attributes {kitsune.weights = array<i64: 1>} {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<6x8xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<6x8xbf16>) outs(%e0 : tensor<6x8xf32>) {
  ^bb0(%in: bf16, %out: f32):
    %t = arith.extf %in : bf16 to f32
    linalg.yield %t : f32
  } -> tensor<6x8xf32>
  %e3 = tensor.empty() : tensor<6x4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e3 : tensor<6x4xf32>) -> tensor<6x4xf32>
  %y = linalg.matmul ins(%a, %w : tensor<6x8xf32>, tensor<8x4xf32>) outs(%f : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %y : tensor<6x4xf32>
}
