// RUN: kitsune-opt --prepare-linalg %s | filecheck %s

// An operator on tensors without elements leaves its outputs as they are.

#in = affine_map<(d0, d1) -> (d0, d1)>
#out = affine_map<(d0, d1) -> (d0)>

// CHECK-LABEL: func.func @inner_dimension
// CHECK: %[[F:.+]] = linalg.fill
// CHECK-NOT: linalg.matmul
// CHECK: return %[[F]]
func.func @inner_dimension(%a: tensor<2x0xf32>, %b: tensor<0x8xf32>) -> tensor<2x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x8xf32>) -> tensor<2x8xf32>
  %y = linalg.matmul ins(%a, %b : tensor<2x0xf32>, tensor<0x8xf32>) outs(%f : tensor<2x8xf32>) -> tensor<2x8xf32>
  return %y : tensor<2x8xf32>
}

// CHECK-LABEL: func.func @two_results
// CHECK-SAME: %[[G:[a-z0-9]+]]: tensor<3xf32>, %[[I:[a-z0-9]+]]: tensor<3xi64>
// CHECK-NOT: linalg.generic
// CHECK: return %[[G]], %[[I]]
func.func @two_results(%x: tensor<3x0xf32>, %g: tensor<3xf32>, %i: tensor<3xi64>) -> (tensor<3xf32>, tensor<3xi64>) {
  %m:2 = linalg.generic {indexing_maps = [#in, #out, #out], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<3x0xf32>) outs(%g, %i : tensor<3xf32>, tensor<3xi64>) {
  ^bb0(%in: f32, %value: f32, %index: i64):
    %0 = arith.maximumf %in, %value : f32
    linalg.yield %0, %index : f32, i64
  } -> (tensor<3xf32>, tensor<3xi64>)
  return %m#0, %m#1 : tensor<3xf32>, tensor<3xi64>
}

// Sizes that the call gives may turn out to be none: the operator stays.
// CHECK-LABEL: func.func @rows
// CHECK: linalg.matmul
func.func @rows(%a: tensor<?x4xf32>, %b: tensor<4x8xf32>, %f: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %y = linalg.matmul ins(%a, %b : tensor<?x4xf32>, tensor<4x8xf32>) outs(%f : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}
