// So they are where the concatenation has the rows of kernels as two dimensions.

// RUN: kitsune-opt %s --schedule-products --place-columns --verify-dataflow | filecheck %s
// CHECK:       "kitsune.result"({{.*}} -> tensor<200x512xbf16, #kitsune.columns<0 : i64, 872 : i64, true>>
// CHECK:       "kitsune.result"({{.*}} -> tensor<200x360xbf16, #kitsune.columns<512 : i64, 872 : i64, true>>
// CHECK:       tensor.concat dim(1) {{.*}} -> tensor<200x872xbf16>
// CHECK:       %[[R:.*]] = tensor.expand_shape {{.*}} into tensor<5x40x872xbf16>
// CHECK-NEXT:  return %[[R]]

#x = affine_map<(i, j, k) -> (i, k)>
#w = affine_map<(i, j, k) -> (j, k)>
#y = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>

func.func @main(%x: tensor<200x256xbf16>, %w: tensor<512x256xbf16>, %v: tensor<360x512xbf16>) -> tensor<5x40x872xbf16> {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<200x512xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<200x512xf32>) -> tensor<200x512xf32>
  %p0 = linalg.matmul indexing_maps = [#x, #w, #y] ins(%x, %w : tensor<200x256xbf16>, tensor<512x256xbf16>) outs(%f0 : tensor<200x512xf32>) -> tensor<200x512xf32>
  %g0 = tensor.empty() : tensor<200x512xbf16>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%p0 : tensor<200x512xf32>) outs(%g0 : tensor<200x512xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %t = arith.truncf %in : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<200x512xbf16>
  %e1 = tensor.empty() : tensor<200x360xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<200x360xf32>) -> tensor<200x360xf32>
  %p1 = linalg.matmul indexing_maps = [#x, #w, #y] ins(%a, %v : tensor<200x512xbf16>, tensor<360x512xbf16>) outs(%f1 : tensor<200x360xf32>) -> tensor<200x360xf32>
  %g1 = tensor.empty() : tensor<200x360xbf16>
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%p1 : tensor<200x360xf32>) outs(%g1 : tensor<200x360xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %t = arith.truncf %in : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<200x360xbf16>
  %a3 = tensor.expand_shape %a [[0, 1], [2]] output_shape [5, 40, 512] : tensor<200x512xbf16> into tensor<5x40x512xbf16>
  %b3 = tensor.expand_shape %b [[0, 1], [2]] output_shape [5, 40, 360] : tensor<200x360xbf16> into tensor<5x40x360xbf16>
  %c = tensor.concat dim(2) %a3, %b3 : (tensor<5x40x512xbf16>, tensor<5x40x360xbf16>) -> tensor<5x40x872xbf16>
  return %c : tensor<5x40x872xbf16>
}
