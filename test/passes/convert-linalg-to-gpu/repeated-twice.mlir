// RUN: kitsune-opt --convert-linalg-to-gpu %s | filecheck %s

// What is read by what each reader computes itself is computed by each, too: a maximum's gradient behind a ramp, with as
// many results as equal it.

// CHECK-LABEL: func.func @main
// CHECK-COUNT-1: gpu.launch_func @kernels::@reduce
// CHECK-COUNT-1: gpu.launch_func @kernels::@elementwise
// CHECK-NOT: @elementwise
// CHECK: return
#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#largest = affine_map<(d0, d1, d2) -> (d0, d2)>
func.func @main(%x: tensor<8x4096x64xf32>, %max: tensor<8x64xf32>) -> tensor<8x4096x64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x4096x64xf32>
  %ramp = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x : tensor<8x4096x64xf32>) outs(%e : tensor<8x4096x64xf32>) {
  ^bb0(%a: f32, %out: f32):
    %0 = arith.maximumf %a, %zero : f32
    linalg.yield %0 : f32
  } -> tensor<8x4096x64xf32>
  %same = linalg.generic {indexing_maps = [#id, #largest, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%ramp, %max : tensor<8x4096x64xf32>, tensor<8x64xf32>) outs(%e : tensor<8x4096x64xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.cmpf oeq, %a, %b : f32
    %1 = arith.uitofp %0 : i1 to f32
    linalg.yield %1 : f32
  } -> tensor<8x4096x64xf32>
  %n = tensor.empty() : tensor<8x64xf32>
  %none = linalg.fill ins(%zero : f32) outs(%n : tensor<8x64xf32>) -> tensor<8x64xf32>
  %count = linalg.generic {indexing_maps = [#id, #largest], iterator_types = ["parallel", "reduction", "parallel"]} ins(%same : tensor<8x4096x64xf32>) outs(%none : tensor<8x64xf32>) {
  ^bb0(%a: f32, %out: f32):
    %0 = arith.addf %a, %out : f32
    linalg.yield %0 : f32
  } -> tensor<8x64xf32>
  %y = linalg.generic {indexing_maps = [#id, #id, #largest, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%same, %ramp, %count : tensor<8x4096x64xf32>, tensor<8x4096x64xf32>, tensor<8x64xf32>) outs(%e : tensor<8x4096x64xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %out: f32):
    %0 = arith.divf %a, %c : f32
    %1 = arith.cmpf ole, %b, %zero : f32
    %2 = arith.select %1, %zero, %0 : f32
    linalg.yield %2 : f32
  } -> tensor<8x4096x64xf32>
  return %y : tensor<8x4096x64xf32>
}
