// RUN: kitsune-opt --split-input-file --convert-linalg-to-gpu %s | filecheck %s

// An elementwise operator reads what is transposed for it: words along the memory of both.

#id = affine_map<(d0, d1) -> (d0, d1)>

// CHECK-LABEL: func.func @main
// CHECK: gpu.launch_func @kernels::@elementwise_0
// CHECK-NOT: gpu.launch_func
// CHECK: gpu.func @elementwise_0
// CHECK-COUNT-4: vector.load %{{.+}} : memref<2048x1024xf32>, vector<4xf32>
// CHECK-COUNT-4: vector.load %{{.+}} : memref<1024x2048xf32>, vector<4xf32>
// CHECK-COUNT-4: vector.store %{{.+}} : memref<1024x2048xf32>, vector<4xf32>
func.func @main(%x: tensor<2048x1024xf32>, %y: tensor<1024x2048xf32>) -> tensor<1024x2048xf32> {
  %e = tensor.empty() : tensor<1024x2048xf32>
  %t = linalg.transpose ins(%x : tensor<2048x1024xf32>) outs(%e : tensor<1024x2048xf32>) permutation = [1, 0]
  %z = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%t, %y : tensor<1024x2048xf32>, tensor<1024x2048xf32>) outs(%e : tensor<1024x2048xf32>) {
    ^bb0(%a: f32, %b: f32, %out: f32):
      %s = arith.addf %a, %b : f32
      linalg.yield %s : f32
  } -> tensor<1024x2048xf32>
  return %z : tensor<1024x2048xf32>
}

// -----

// A weight is transposed apart: once, when the program is loaded.

#id = affine_map<(d0, d1) -> (d0, d1)>

// CHECK-LABEL: func.func @main
// CHECK: gpu.launch_func @kernels::@elementwise_0
// CHECK: gpu.launch_func @kernels::@elementwise_1
func.func @main(%x: tensor<512x256xf32>, %y: tensor<256x512xf32>) -> tensor<256x512xf32> attributes {kitsune.weights = array<i64: 0>} {
  %e = tensor.empty() : tensor<256x512xf32>
  %t = linalg.transpose ins(%x : tensor<512x256xf32>) outs(%e : tensor<256x512xf32>) permutation = [1, 0]
  %z = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%t, %y : tensor<256x512xf32>, tensor<256x512xf32>) outs(%e : tensor<256x512xf32>) {
    ^bb0(%a: f32, %b: f32, %out: f32):
      %s = arith.addf %a, %b : f32
      linalg.yield %s : f32
  } -> tensor<256x512xf32>
  return %z : tensor<256x512xf32>
}
