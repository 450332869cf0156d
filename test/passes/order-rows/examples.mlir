// RUN: kitsune-opt %s --order-rows --split-input-file | filecheck %s

// Sizes that are open until the call are those of the example, where that says them.

#left = affine_map<(m, n, k) -> (m, k)>
#right = affine_map<(m, n, k) -> (n, k)>
#sums = affine_map<(m, n, k) -> (m, n)>

// CHECK-LABEL: func.func @edges
// CHECK: "kitsune.order"
func.func @edges(%x: tensor<?x64xf32>, %e: tensor<?x16xbf16>, %to: tensor<?xi64>, %w: tensor<64x16xbf16>) -> tensor<?x64xf32> attributes {kitsune.example = [array<i64: 300000, 64>, array<i64: 4000000, 16>, array<i64: 4000000>, array<i64: 64, 16>]} {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x64xf32>
  %k = tensor.dim %e, %c0 : tensor<?x16xbf16>
  %start = tensor.empty(%k) : tensor<?x64xf32>
  %filled = linalg.fill ins(%zero : f32) outs(%start : tensor<?x64xf32>) -> tensor<?x64xf32>
  %y = linalg.matmul indexing_maps = [#left, #right, #sums] ins(%e, %w : tensor<?x16xbf16>, tensor<64x16xbf16>) outs(%filled : tensor<?x64xf32>) -> tensor<?x64xf32>
  %empty = tensor.empty(%n) : tensor<?x64xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x64xf32>) -> tensor<?x64xf32>
  %u = tensor.expand_shape %y [[0], [1, 2]] output_shape [%k, 1, 64] : tensor<?x64xf32> into tensor<?x1x64xf32>
  %i = tensor.expand_shape %to [[0, 1]] output_shape [%k, 1] : tensor<?xi64> into tensor<?x1xi64>
  %t = tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false) ins(%u, %i : tensor<?x1x64xf32>, tensor<?x1xi64>) outs(%zeros : tensor<?x64xf32>) {
  ^bb0(%a: f32, %b: f32):
    %sum = arith.addf %b, %a : f32
    tm_tensor.yield %sum : f32
  } -> tensor<?x64xf32>
  return %t : tensor<?x64xf32>
}

// -----

#left = affine_map<(m, n, k) -> (m, k)>
#right = affine_map<(m, n, k) -> (n, k)>
#sums = affine_map<(m, n, k) -> (m, n)>

// CHECK-LABEL: func.func @edges
// CHECK-NOT: "kitsune.order"
// CHECK: return
func.func @edges(%x: tensor<?x64xf32>, %e: tensor<?x16xbf16>, %to: tensor<?xi64>, %w: tensor<64x16xbf16>) -> tensor<?x64xf32> attributes {kitsune.example = [array<i64: 3000, 64>, array<i64: 40000, 16>, array<i64: 40000>, array<i64: 64, 16>]} {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x64xf32>
  %k = tensor.dim %e, %c0 : tensor<?x16xbf16>
  %start = tensor.empty(%k) : tensor<?x64xf32>
  %filled = linalg.fill ins(%zero : f32) outs(%start : tensor<?x64xf32>) -> tensor<?x64xf32>
  %y = linalg.matmul indexing_maps = [#left, #right, #sums] ins(%e, %w : tensor<?x16xbf16>, tensor<64x16xbf16>) outs(%filled : tensor<?x64xf32>) -> tensor<?x64xf32>
  %empty = tensor.empty(%n) : tensor<?x64xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x64xf32>) -> tensor<?x64xf32>
  %u = tensor.expand_shape %y [[0], [1, 2]] output_shape [%k, 1, 64] : tensor<?x64xf32> into tensor<?x1x64xf32>
  %i = tensor.expand_shape %to [[0, 1]] output_shape [%k, 1] : tensor<?xi64> into tensor<?x1xi64>
  %t = tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false) ins(%u, %i : tensor<?x1x64xf32>, tensor<?x1xi64>) outs(%zeros : tensor<?x64xf32>) {
  ^bb0(%a: f32, %b: f32):
    %sum = arith.addf %b, %a : f32
    tm_tensor.yield %sum : f32
  } -> tensor<?x64xf32>
  return %t : tensor<?x64xf32>
}

// -----

#left = affine_map<(m, n, k) -> (m, k)>
#right = affine_map<(m, n, k) -> (n, k)>
#sums = affine_map<(m, n, k) -> (m, n)>

// CHECK-LABEL: func.func @edges
// CHECK-NOT: "kitsune.order"
// CHECK: return
func.func @edges(%x: tensor<?x64xf32>, %e: tensor<?x16xbf16>, %to: tensor<?xi64>, %w: tensor<64x16xbf16>) -> tensor<?x64xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x64xf32>
  %k = tensor.dim %e, %c0 : tensor<?x16xbf16>
  %start = tensor.empty(%k) : tensor<?x64xf32>
  %filled = linalg.fill ins(%zero : f32) outs(%start : tensor<?x64xf32>) -> tensor<?x64xf32>
  %y = linalg.matmul indexing_maps = [#left, #right, #sums] ins(%e, %w : tensor<?x16xbf16>, tensor<64x16xbf16>) outs(%filled : tensor<?x64xf32>) -> tensor<?x64xf32>
  %empty = tensor.empty(%n) : tensor<?x64xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x64xf32>) -> tensor<?x64xf32>
  %u = tensor.expand_shape %y [[0], [1, 2]] output_shape [%k, 1, 64] : tensor<?x64xf32> into tensor<?x1x64xf32>
  %i = tensor.expand_shape %to [[0, 1]] output_shape [%k, 1] : tensor<?xi64> into tensor<?x1xi64>
  %t = tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false) ins(%u, %i : tensor<?x1x64xf32>, tensor<?x1xi64>) outs(%zeros : tensor<?x64xf32>) {
  ^bb0(%a: f32, %b: f32):
    %sum = arith.addf %b, %a : f32
    tm_tensor.yield %sum : f32
  } -> tensor<?x64xf32>
  return %t : tensor<?x64xf32>
}
