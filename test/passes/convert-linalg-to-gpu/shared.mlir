// RUN: kitsune-opt %s --convert-linalg-to-gpu | filecheck %s

// What others read, too, and an operator that reads it at the same points: one kernel, which loads each word once and
// stores two.

#whole = affine_map<(r, c) -> (r, c)>

// CHECK-LABEL: func.func @main
// CHECK-COUNT-1: gpu.launch_func {{ *}}@kernels::@elementwise_0
// CHECK-NOT:     gpu.launch_func
// CHECK:         return
// CHECK:       gpu.func @elementwise_0
// CHECK-COUNT-2: vector.load
// CHECK-NOT:     vector.load
// CHECK-COUNT-2: vector.store
// CHECK-NOT:     vector.store
func.func @main(%x: tensor<4096x1024xf32>, %y: tensor<4096x1024xf32>) -> (tensor<4096x1024xf32>, tensor<4096x1024xf32>) {
  %e = tensor.empty() : tensor<4096x1024xf32>
  %sum = linalg.generic {indexing_maps = [#whole, #whole, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%x, %y : tensor<4096x1024xf32>, tensor<4096x1024xf32>) outs(%e : tensor<4096x1024xf32>) {
  ^bb0(%a: f32, %b: f32, %u: f32):
    %c = arith.addf %a, %b : f32
    linalg.yield %c : f32
  } -> tensor<4096x1024xf32>
  %product = linalg.generic {indexing_maps = [#whole, #whole, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%sum, %y : tensor<4096x1024xf32>, tensor<4096x1024xf32>) outs(%e : tensor<4096x1024xf32>) {
  ^bb0(%a: f32, %b: f32, %u: f32):
    %c = arith.mulf %a, %b : f32
    linalg.yield %c : f32
  } -> tensor<4096x1024xf32>
  return %sum, %product : tensor<4096x1024xf32>, tensor<4096x1024xf32>
}
