// RUN: kitsune-opt --convert-linalg-to-gpu %s | filecheck %s

// What is part of two concatenations is written to both by the operator that computes it, not copied.

#id = affine_map<(d0, d1) -> (d0, d1)>

// CHECK-LABEL: func.func @main
// CHECK: gpu.launch_func @[[A:.+]]::
// CHECK-NOT: gpu.launch_func
// CHECK: return
func.func @main(%x: tensor<64x32xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>) {
  %o = tensor.empty() : tensor<64x32xf32>
  %a, %b, %c = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<64x32xf32>) outs(%o, %o, %o : tensor<64x32xf32>, tensor<64x32xf32>, tensor<64x32xf32>) {
  ^bb0(%in: f32, %0: f32, %1: f32, %2: f32):
    %3 = math.exp %in : f32
    %4 = math.tanh %in : f32
    %5 = arith.mulf %3, %4 : f32
    linalg.yield %3, %4, %5 : f32, f32, f32
  } -> (tensor<64x32xf32>, tensor<64x32xf32>, tensor<64x32xf32>)
  %first = tensor.concat dim(1) %a, %b : (tensor<64x32xf32>, tensor<64x32xf32>) -> tensor<64x64xf32>
  %second = tensor.concat dim(1) %a, %c : (tensor<64x32xf32>, tensor<64x32xf32>) -> tensor<64x64xf32>
  return %first, %second : tensor<64x64xf32>, tensor<64x64xf32>
}
