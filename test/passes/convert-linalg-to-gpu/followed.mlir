// RUN: kitsune-opt --split-input-file --convert-linalg-to-gpu %s | filecheck %s

// What is made of a sum, element by element, is computed in the sum's kernel.

#id = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
#own = affine_map<(d0) -> (d0)>

// CHECK-LABEL: func.func @main
// CHECK: gpu.launch_func
// CHECK-NOT: gpu.launch_func
// CHECK: return
// CHECK: gpu.func @reduce_0
// CHECK: %[[ROUNDED:.+]] = arith.truncf
// CHECK: memref.store %[[ROUNDED]]
func.func @main(%x: tensor<64x128xbf16>) -> tensor<128xbf16> {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<128xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<128xf32>) -> tensor<128xf32>
  %sum = linalg.generic {indexing_maps = [#id, #column], iterator_types = ["reduction", "parallel"]}
      ins(%x : tensor<64x128xbf16>) outs(%f0 : tensor<128xf32>) {
    ^bb0(%in: bf16, %out: f32):
      %w = arith.extf %in : bf16 to f32
      %s = arith.addf %w, %out : f32
      linalg.yield %s : f32
  } -> tensor<128xf32>
  %e1 = tensor.empty() : tensor<128xbf16>
  %y = linalg.generic {indexing_maps = [#own, #own], iterator_types = ["parallel"]}
      ins(%sum : tensor<128xf32>) outs(%e1 : tensor<128xbf16>) {
    ^bb0(%in: f32, %out: bf16):
      %t = arith.truncf %in : f32 to bf16
      linalg.yield %t : bf16
  } -> tensor<128xbf16>
  return %y : tensor<128xbf16>
}

// -----

// A sum that is a result too is written, and read again.

#id = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
#own = affine_map<(d0) -> (d0)>

// CHECK-LABEL: func.func @main
// CHECK: gpu.launch_func @kernels::@reduce_0
// CHECK: gpu.launch_func @kernels::@elementwise_0
// CHECK: return
func.func @main(%x: tensor<64x128xf32>) -> (tensor<128xf32>, tensor<128xf32>) {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<128xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<128xf32>) -> tensor<128xf32>
  %sum = linalg.generic {indexing_maps = [#id, #column], iterator_types = ["reduction", "parallel"]}
      ins(%x : tensor<64x128xf32>) outs(%f0 : tensor<128xf32>) {
    ^bb0(%in: f32, %out: f32):
      %s = arith.addf %in, %out : f32
      linalg.yield %s : f32
  } -> tensor<128xf32>
  %e1 = tensor.empty() : tensor<128xf32>
  %y = linalg.generic {indexing_maps = [#own, #own], iterator_types = ["parallel"]}
      ins(%sum : tensor<128xf32>) outs(%e1 : tensor<128xf32>) {
    ^bb0(%in: f32, %out: f32):
      %t = arith.mulf %in, %in : f32
      linalg.yield %t : f32
  } -> tensor<128xf32>
  return %sum, %y : tensor<128xf32>, tensor<128xf32>
}
