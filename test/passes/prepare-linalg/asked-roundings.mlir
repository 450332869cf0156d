// RUN: kitsune-opt %s --prepare-linalg | filecheck %s

// What a model makes 16 bits wide and then wide again is rounded; a product's sums are not, for torch rounds them there.

// CHECK-LABEL: func @asked
// CHECK: arith.truncf %{{.*}} {kitsune.rounds} : f32 to f16
func.func @asked(%x: tensor<6x4xf32>) -> tensor<6x4xf32> {
  %e = tensor.empty() : tensor<6x4xf16>
  %h = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<6x4xf32>) outs(%e : tensor<6x4xf16>) {
  ^bb0(%in: f32, %out: f16):
    %0 = arith.truncf %in : f32 to f16
    linalg.yield %0 : f16
  } -> tensor<6x4xf16>
  %f = tensor.empty() : tensor<6x4xf32>
  %d = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%x, %h : tensor<6x4xf32>, tensor<6x4xf16>) outs(%f : tensor<6x4xf32>) {
  ^bb0(%in: f32, %near: f16, %out: f32):
    %0 = arith.extf %near : f16 to f32
    %1 = arith.subf %in, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<6x4xf32>
  return %d : tensor<6x4xf32>
}

// CHECK-LABEL: func @product
// CHECK-NOT: kitsune.rounds
func.func @product(%x: tensor<6x4xf16>, %w: tensor<4x4xf16>, %f: tensor<6x4xf32>) -> tensor<6x4xf32> {
  %p = linalg.matmul ins(%x, %w : tensor<6x4xf16>, tensor<4x4xf16>) outs(%f : tensor<6x4xf32>) -> tensor<6x4xf32>
  %e = tensor.empty() : tensor<6x4xf16>
  %h = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%p : tensor<6x4xf32>) outs(%e : tensor<6x4xf16>) {
  ^bb0(%in: f32, %out: f16):
    %0 = arith.truncf %in : f32 to f16
    linalg.yield %0 : f16
  } -> tensor<6x4xf16>
  %d = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%h : tensor<6x4xf16>) outs(%f : tensor<6x4xf32>) {
  ^bb0(%in: f16, %out: f32):
    %0 = arith.extf %in : f16 to f32
    linalg.yield %0 : f32
  } -> tensor<6x4xf32>
  return %d : tensor<6x4xf32>
}
