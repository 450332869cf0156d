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

// -----

// A norm over groups of channels, and what scales each channel, are one kernel, though they have other dimensions.

#groups = affine_map<(n, g, c, p) -> (n, g, c, p)>
#group = affine_map<(n, g, c, p) -> (n, g, 0, 0)>
#image = affine_map<(n, c, y, x) -> (n, c, y, x)>
#channel = affine_map<(n, c, y, x) -> (n, c, 0, 0)>

// CHECK-LABEL: func.func @main
// CHECK: gpu.launch_func
// CHECK-NOT: gpu.launch_func
// CHECK: return
func.func @main(%x: tensor<4x32x20x4096xbf16>, %m: tensor<4x32x1x1xf32>, %s: tensor<4x640x1x1xbf16>) -> tensor<4x640x64x64xbf16> {
  %e = tensor.empty() : tensor<4x32x20x4096xbf16>
  %normed = linalg.generic {indexing_maps = [#groups, #group, #groups], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%x, %m : tensor<4x32x20x4096xbf16>, tensor<4x32x1x1xf32>) outs(%e : tensor<4x32x20x4096xbf16>) {
  ^bb0(%a: bf16, %b: f32, %o: bf16):
    %w = arith.extf %a : bf16 to f32
    %d = arith.subf %w, %b : f32
    %t = arith.truncf %d : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<4x32x20x4096xbf16>
  %c = tensor.collapse_shape %normed [[0], [1, 2], [3]] : tensor<4x32x20x4096xbf16> into tensor<4x640x4096xbf16>
  %i = tensor.expand_shape %c [[0], [1], [2, 3]] output_shape [4, 640, 64, 64] : tensor<4x640x4096xbf16> into tensor<4x640x64x64xbf16>
  %f = tensor.empty() : tensor<4x640x64x64xbf16>
  %y = linalg.generic {indexing_maps = [#image, #channel, #image], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%i, %s : tensor<4x640x64x64xbf16>, tensor<4x640x1x1xbf16>) outs(%f : tensor<4x640x64x64xbf16>) {
  ^bb0(%a: bf16, %b: bf16, %o: bf16):
    %w = arith.mulf %a, %b : bf16
    linalg.yield %w : bf16
  } -> tensor<4x640x64x64xbf16>
  return %y : tensor<4x640x64x64xbf16>
}

// -----

// The first of two parts is no dimension of one element.

#first = affine_map<(i, j) -> (0, i, j)>
#second = affine_map<(i, j) -> (1, i, j)>
#id = affine_map<(i, j) -> (i, j)>

// CHECK-LABEL: func.func @main
// CHECK: gpu.launch_func {{.*}} args(%arg0 : memref<2x64x40xf32>,
// CHECK: gpu.func @elementwise_0(%{{.*}}: memref<2x64x40xf32>,
func.func @main(%x: tensor<2x64x40xf32>, %s: tensor<64x1xf32>) -> tensor<64x5x8xf32> {
  %e = tensor.empty() : tensor<64x40xf32>
  %sum = linalg.generic {indexing_maps = [#first, #second, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %x : tensor<2x64x40xf32>, tensor<2x64x40xf32>) outs(%e : tensor<64x40xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %w = arith.addf %a, %b : f32
    linalg.yield %w : f32
  } -> tensor<64x40xf32>
  %v = tensor.expand_shape %sum [[0], [1, 2]] output_shape [64, 5, 8] : tensor<64x40xf32> into tensor<64x5x8xf32>
  %f = tensor.empty() : tensor<64x5x8xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, j, k)>, affine_map<(i, j, k) -> (i, 0)>, affine_map<(i, j, k) -> (i, j, k)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%v, %s : tensor<64x5x8xf32>, tensor<64x1xf32>) outs(%f : tensor<64x5x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %w = arith.mulf %a, %b : f32
    linalg.yield %w : f32
  } -> tensor<64x5x8xf32>
  return %y : tensor<64x5x8xf32>
}
