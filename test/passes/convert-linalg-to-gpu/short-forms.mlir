// RUN: kitsune-opt %s --convert-linalg-to-gpu | filecheck %s

// Operations that are only rounded to bf16 may take their short forms, those rounded to f16 shorter ones; what leaves
// in f32, is compared or rounded to a whole number is exact.

#all = affine_map<(d0) -> (d0)>

// CHECK-LABEL: gpu.func @elementwise_0
// CHECK:         math.exp {{.*}} {kitsune.fast_math}
// CHECK:         math.log {{[^{]*}}: f32
// CHECK:         arith.cmpf
// CHECK:         math.erf {{.*}} {kitsune.short_math}
// CHECK:         math.tanh {{[^{]*}}: f32
// CHECK:         arith.divf {{[^{]*}}: f32
// CHECK:         math.floor {{.*}} {kitsune.fast_math}
func.func @main(%x: tensor<1024xf32>) -> (tensor<1024xbf16>, tensor<1024xf16>, tensor<1024xf32>) {
  %limit = arith.constant 1.0 : f32
  %b = tensor.empty() : tensor<1024xbf16>
  %h = tensor.empty() : tensor<1024xf16>
  %f = tensor.empty() : tensor<1024xf32>
  %0:3 = linalg.generic {indexing_maps = [#all, #all, #all, #all], iterator_types = ["parallel"]}
      ins(%x : tensor<1024xf32>) outs(%b, %h, %f : tensor<1024xbf16>, tensor<1024xf16>, tensor<1024xf32>) {
  ^bb0(%in: f32, %o0: bf16, %o1: f16, %o2: f32):
    %1 = math.exp %in : f32
    %2 = math.log %in : f32
    %3 = arith.cmpf ogt, %2, %limit : f32
    %4 = arith.select %3, %1, %in : f32
    %5 = arith.truncf %4 : f32 to bf16
    %6 = math.erf %in : f32
    %7 = arith.truncf %6 : f32 to f16
    %8 = math.tanh %in : f32
    %9 = arith.divf %in, %8 : f32
    %10 = math.floor %9 : f32
    %11 = arith.truncf %10 : f32 to bf16
    %12 = arith.maximumf %5, %11 : bf16
    linalg.yield %12, %7, %8 : bf16, f16, f32
  } -> (tensor<1024xbf16>, tensor<1024xf16>, tensor<1024xf32>)
  return %0#0, %0#1, %0#2 : tensor<1024xbf16>, tensor<1024xf16>, tensor<1024xf32>
}
