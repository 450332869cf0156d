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

// -----

// Elements of a small table are taken in the order in which a transpose would have them, and added there.

#rows = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>

// CHECK-LABEL: func.func @main
// CHECK: gpu.launch_func @kernels::@gather_0
// CHECK-NOT: gpu.launch_func
func.func @main(%n: tensor<64x64xi64>, %t: tensor<17x4xf32>, %y: tensor<4x64x64xf32>) -> tensor<4x64x64xf32> {
  %e = tensor.empty() : tensor<64x64x4xf32>
  %g = linalg.generic {indexing_maps = [#rows, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%n : tensor<64x64xi64>) outs(%e : tensor<64x64x4xf32>) {
    ^bb0(%a: i64, %out: f32):
      %i = arith.index_cast %a : i64 to index
      %j = linalg.index 2 : index
      %b = tensor.extract %t[%i, %j] : tensor<17x4xf32>
      linalg.yield %b : f32
  } -> tensor<64x64x4xf32>
  %f = tensor.empty() : tensor<4x64x64xf32>
  %p = linalg.transpose ins(%g : tensor<64x64x4xf32>) outs(%f : tensor<4x64x64xf32>) permutation = [2, 0, 1]
  %z = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%p, %y : tensor<4x64x64xf32>, tensor<4x64x64xf32>) outs(%f : tensor<4x64x64xf32>) {
    ^bb0(%a: f32, %b: f32, %out: f32):
      %s = arith.addf %a, %b : f32
      linalg.yield %s : f32
  } -> tensor<4x64x64xf32>
  return %z : tensor<4x64x64xf32>
}

// -----

// Loops of one turn do not stand between the loops that say how threads lie.

#in = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3, d4)>
#id = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3, d4, d5)>

// CHECK-LABEL: func.func @main
// CHECK: gpu.launch_func @kernels::@elementwise_0
// CHECK: gpu.func @elementwise_0(%{{.*}}: memref<?x32x?x?xbf16>, %{{.*}}: memref<?x?x?x32xbf16>)
// CHECK: vector.store %{{.*}} : memref<?x?x?x32xbf16>, vector<8xbf16>
func.func @main(%x: tensor<?x32x?x1x?x1xbf16>, %e: tensor<?x?x1x?x1x32xbf16>) -> tensor<?x?x1x?x1x32xbf16> {
  %t = linalg.transpose ins(%x : tensor<?x32x?x1x?x1xbf16>) outs(%e : tensor<?x?x1x?x1x32xbf16>) permutation = [0, 2, 3, 4, 5, 1]
  return %t : tensor<?x?x1x?x1x32xbf16>
}
