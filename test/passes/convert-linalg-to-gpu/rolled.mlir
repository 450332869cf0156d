// RUN: kitsune-opt --split-input-file --convert-linalg-to-gpu %s | filecheck %s

// Neighbours on a periodic grid are read where they lie, by one kernel.

#id = affine_map<(i, j) -> (i, j)>

// CHECK-LABEL: func.func @main
// CHECK: gpu.launch_func
// CHECK-NOT: gpu.launch_func
// CHECK: return
func.func @main(%x: tensor<64x255xf32>) -> tensor<64x255xf32> {
  %a = tensor.extract_slice %x[0, 1] [64, 254] [1, 1] : tensor<64x255xf32> to tensor<64x254xf32>
  %b = tensor.extract_slice %x[0, 0] [64, 1] [1, 1] : tensor<64x255xf32> to tensor<64x1xf32>
  %right = tensor.concat dim(1) %a, %b : (tensor<64x254xf32>, tensor<64x1xf32>) -> tensor<64x255xf32>
  %c = tensor.extract_slice %x[63, 0] [1, 255] [1, 1] : tensor<64x255xf32> to tensor<1x255xf32>
  %d = tensor.extract_slice %x[0, 0] [63, 255] [1, 1] : tensor<64x255xf32> to tensor<63x255xf32>
  %above = tensor.concat dim(0) %c, %d : (tensor<1x255xf32>, tensor<63x255xf32>) -> tensor<64x255xf32>
  %e = tensor.empty() : tensor<64x255xf32>
  %y = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %right, %above : tensor<64x255xf32>, tensor<64x255xf32>, tensor<64x255xf32>) outs(%e : tensor<64x255xf32>) {
  ^bb0(%p: f32, %q: f32, %r: f32, %o: f32):
    %s = arith.addf %q, %r : f32
    %t = arith.subf %s, %p : f32
    linalg.yield %t : f32
  } -> tensor<64x255xf32>
  return %y : tensor<64x255xf32>
}

// -----

// Halves of lines that change places are vectors, which the operator computes part by part.

#id = affine_map<(i, j) -> (i, j)>

// CHECK-LABEL: func.func @main
// CHECK-NOT: arith.select
func.func @main(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %a = tensor.extract_slice %x[0, 32] [64, 32] [1, 1] : tensor<64x64xf32> to tensor<64x32xf32>
  %b = tensor.extract_slice %x[0, 0] [64, 32] [1, 1] : tensor<64x64xf32> to tensor<64x32xf32>
  %c = tensor.concat dim(1) %a, %b : (tensor<64x32xf32>, tensor<64x32xf32>) -> tensor<64x64xf32>
  %e = tensor.empty() : tensor<64x64xf32>
  %y = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %c : tensor<64x64xf32>, tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %t = arith.subf %q, %p : f32
    linalg.yield %t : f32
  } -> tensor<64x64xf32>
  return %y : tensor<64x64xf32>
}
