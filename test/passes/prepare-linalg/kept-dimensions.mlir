// RUN: kitsune-opt %s --prepare-linalg --split-input-file | filecheck %s

// A row's sum, and what is computed of it, have the dimension that they are given later; nothing is expanded.

// CHECK-LABEL: func.func @mean
// CHECK-NOT: tensor.expand_shape
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]} ins(%arg0 : tensor<64x32xf32>) outs(%{{.+}} : tensor<64x1xf32>)
// CHECK: } -> tensor<64x1xf32>
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]} ins(%{{.+}} : tensor<64x1xf32>) outs(%{{.+}} : tensor<64x1xf32>)
// CHECK-NOT: tensor.expand_shape
// CHECK: return
func.func @mean(%x: tensor<64x32xf32>) -> tensor<64x1xf32> {
  %zero = arith.constant 0.0 : f32
  %n = arith.constant 31.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<64x32xf32>) outs(%f : tensor<64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %y = arith.addf %in, %out : f32
    linalg.yield %y : f32
  } -> tensor<64xf32>
  %m = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%s : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %y = arith.divf %in, %n : f32
    linalg.yield %y : f32
  } -> tensor<64xf32>
  %r = tensor.expand_shape %m [[0, 1]] output_shape [64, 1] : tensor<64xf32> into tensor<64x1xf32>
  return %r : tensor<64x1xf32>
}

// -----

// What something else reads as it is keeps its dimensions.

// CHECK-LABEL: func.func @read_twice
// CHECK: outs(%{{.+}} : tensor<64xf32>)
// CHECK: tensor.expand_shape
func.func @read_twice(%x: tensor<64x32xf32>) -> (tensor<64x1xf32>, tensor<64xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<64x32xf32>) outs(%f : tensor<64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %y = arith.addf %in, %out : f32
    linalg.yield %y : f32
  } -> tensor<64xf32>
  %r = tensor.expand_shape %s [[0, 1]] output_shape [64, 1] : tensor<64xf32> into tensor<64x1xf32>
  return %r, %s : tensor<64x1xf32>, tensor<64xf32>
}

// -----

// So does a sum that several of the operators in between read, each of which leads to it.

// CHECK-LABEL: func.func @several_ways
// CHECK-NOT: tensor.expand_shape
// CHECK: return
func.func @several_ways(%x: tensor<64x32xf32>) -> tensor<64x1xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<64x32xf32>) outs(%f : tensor<64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %y = arith.addf %in, %out : f32
    linalg.yield %y : f32
  } -> tensor<64xf32>
  %p = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%s, %s : tensor<64xf32>, tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %y = arith.mulf %a, %b : f32
    linalg.yield %y : f32
  } -> tensor<64xf32>
  %m = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%p, %s : tensor<64xf32>, tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %y = arith.subf %a, %b : f32
    linalg.yield %y : f32
  } -> tensor<64xf32>
  %r = tensor.expand_shape %m [[0, 1]] output_shape [64, 1] : tensor<64xf32> into tensor<64x1xf32>
  return %r : tensor<64x1xf32>
}
