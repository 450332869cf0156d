// RUN: kitsune-opt %s --prepare-linalg | filecheck %s

// A mean that is taken off is taken off twice: what its rounding left has a mean of its own. So in f32, and once.

#rows = affine_map<(d0, d1) -> (d0, d1)>
#sums = affine_map<(d0, d1) -> (d0, 0)>

// CHECK-LABEL: func.func @f32
// CHECK:         %[[S:.*]] = linalg.generic {{.*}} ins(%arg0 : tensor<70x562xf32>) outs({{.*}} : tensor<70x1xf32>)
// CHECK:         %[[M:.*]] = linalg.generic {{.*}} ins(%[[S]] : tensor<70x1xf32>)
// CHECK:         %[[C:.*]] = linalg.generic {{.*}} ins(%arg0, %[[M]] : tensor<70x562xf32>, tensor<70x1xf32>)
// CHECK:         %[[S2:.*]] = linalg.generic {{.*}} ins(%[[C]] : tensor<70x562xf32>) outs({{.*}} : tensor<70x1xf32>)
// CHECK:         %[[M2:.*]] = linalg.generic {{.*}} ins(%[[S2]] : tensor<70x1xf32>)
// CHECK:         %[[D:.*]] = linalg.generic {{.*}} ins(%[[C]], %[[M2]] : tensor<70x562xf32>, tensor<70x1xf32>)
// CHECK:         return %[[D]]
func.func @f32(%x: tensor<70x562xf32>) -> tensor<70x562xf32> {
  %zero = arith.constant 0.0 : f32
  %part = arith.constant 0.0017793594 : f32
  %e = tensor.empty() : tensor<70x1xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<70x1xf32>) -> tensor<70x1xf32>
  %s = linalg.generic {indexing_maps = [#rows, #sums], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<70x562xf32>) outs(%z : tensor<70x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %in, %out : f32
    linalg.yield %0 : f32
  } -> tensor<70x1xf32>
  %m = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<70x1xf32>) outs(%e : tensor<70x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.mulf %in, %part : f32
    linalg.yield %0 : f32
  } -> tensor<70x1xf32>
  %w = tensor.empty() : tensor<70x562xf32>
  %c = linalg.generic {indexing_maps = [#rows, #sums, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%x, %m : tensor<70x562xf32>, tensor<70x1xf32>) outs(%w : tensor<70x562xf32>) {
  ^bb0(%in: f32, %mean: f32, %out: f32):
    %0 = arith.subf %in, %mean : f32
    linalg.yield %0 : f32
  } -> tensor<70x562xf32>
  return %c : tensor<70x562xf32>
}

// What is scaled by anything but 1 / n is no mean.
// CHECK-LABEL: func.func @no_mean
// CHECK-COUNT-3: linalg.generic
// CHECK-NOT:     linalg.generic
func.func @no_mean(%x: tensor<70x562xf32>) -> tensor<70x562xf32> {
  %zero = arith.constant 0.0 : f32
  %part = arith.constant 0.0018 : f32
  %e = tensor.empty() : tensor<70x1xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<70x1xf32>) -> tensor<70x1xf32>
  %s = linalg.generic {indexing_maps = [#rows, #sums], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<70x562xf32>) outs(%z : tensor<70x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %in, %out : f32
    linalg.yield %0 : f32
  } -> tensor<70x1xf32>
  %m = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<70x1xf32>) outs(%e : tensor<70x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.mulf %in, %part : f32
    linalg.yield %0 : f32
  } -> tensor<70x1xf32>
  %w = tensor.empty() : tensor<70x562xf32>
  %c = linalg.generic {indexing_maps = [#rows, #sums, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%x, %m : tensor<70x562xf32>, tensor<70x1xf32>) outs(%w : tensor<70x562xf32>) {
  ^bb0(%in: f32, %mean: f32, %out: f32):
    %0 = arith.subf %in, %mean : f32
    linalg.yield %0 : f32
  } -> tensor<70x562xf32>
  return %c : tensor<70x562xf32>
}
