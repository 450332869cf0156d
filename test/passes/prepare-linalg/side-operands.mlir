// RUN: kitsune-opt --prepare-linalg %s | filecheck %s

// What an operator behind a product reads besides it is computed in the operator, not by a pass over memory before.

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d1)>
#column = affine_map<(d0, d1) -> (d0)>

// CHECK-LABEL: func.func @gate
// CHECK: %[[P:.+]] = linalg.matmul
// CHECK: %[[Z:.+]] = linalg.generic {{.*}} ins(%[[P]], %arg2, %arg3 : tensor<2x8xf32>, tensor<2x8xf32>, tensor<8xf32>)
// CHECK: arith.mulf
// CHECK: math.tanh
// CHECK: arith.mulf
// CHECK: return %[[Z]]
func.func @gate(%x: tensor<2x4xf32>, %w: tensor<4x8xf32>, %y: tensor<2x8xf32>, %s: tensor<8xf32>) -> tensor<2x8xf32> {
  %zero = arith.constant 0.0 : f32
  %o = tensor.empty() : tensor<2x8xf32>
  %a = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%y, %s : tensor<2x8xf32>, tensor<8xf32>) outs(%o : tensor<2x8xf32>) {
  ^bb0(%in: f32, %in2: f32, %out: f32):
    %0 = arith.mulf %in, %in2 : f32
    linalg.yield %0 : f32
  } -> tensor<2x8xf32>
  %g = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<2x8xf32>) outs(%o : tensor<2x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.tanh %in : f32
    linalg.yield %0 : f32
  } -> tensor<2x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%o : tensor<2x8xf32>) -> tensor<2x8xf32>
  %p = linalg.matmul ins(%x, %w : tensor<2x4xf32>, tensor<4x8xf32>) outs(%f : tensor<2x8xf32>) -> tensor<2x8xf32>
  %z = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%p, %g : tensor<2x8xf32>, tensor<2x8xf32>) outs(%o : tensor<2x8xf32>) {
  ^bb0(%in: f32, %in2: f32, %out: f32):
    %0 = arith.mulf %in, %in2 : f32
    linalg.yield %0 : f32
  } -> tensor<2x8xf32>
  return %z : tensor<2x8xf32>
}

// What is behind another product is computed with that one.
// CHECK-LABEL: func.func @two_products
// CHECK: %[[G:.+]] = linalg.generic
// CHECK: math.tanh
// CHECK: linalg.generic {{.*}} ins(%{{.+}}, %[[G]] : tensor<2x8xf32>, tensor<2x8xf32>)
func.func @two_products(%x: tensor<2x4xf32>, %w: tensor<4x8xf32>, %v: tensor<4x8xf32>) -> tensor<2x8xf32> {
  %zero = arith.constant 0.0 : f32
  %o = tensor.empty() : tensor<2x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%o : tensor<2x8xf32>) -> tensor<2x8xf32>
  %q = linalg.matmul ins(%x, %v : tensor<2x4xf32>, tensor<4x8xf32>) outs(%f : tensor<2x8xf32>) -> tensor<2x8xf32>
  %g = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%q : tensor<2x8xf32>) outs(%o : tensor<2x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.tanh %in : f32
    linalg.yield %0 : f32
  } -> tensor<2x8xf32>
  %p = linalg.matmul ins(%x, %w : tensor<2x4xf32>, tensor<4x8xf32>) outs(%f : tensor<2x8xf32>) -> tensor<2x8xf32>
  %z = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%p, %g : tensor<2x8xf32>, tensor<2x8xf32>) outs(%o : tensor<2x8xf32>) {
  ^bb0(%in: f32, %in2: f32, %out: f32):
    %0 = arith.mulf %in, %in2 : f32
    linalg.yield %0 : f32
  } -> tensor<2x8xf32>
  return %z : tensor<2x8xf32>
}

// What is made of sums along rows stays with them.
// CHECK-LABEL: func.func @norm
// CHECK: %[[S:.+]] = linalg.generic
// CHECK: arith.addf
// CHECK: %[[G:.+]] = linalg.generic {{.*}} ins(%{{.+}}, %[[S]] : tensor<2x8xf32>, tensor<2xf32>)
// CHECK: linalg.generic {{.*}} ins(%{{.+}}, %[[G]] : tensor<2x8xf32>, tensor<2x8xf32>)
func.func @norm(%x: tensor<2x4xf32>, %w: tensor<4x8xf32>, %y: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %zero = arith.constant 0.0 : f32
  %o = tensor.empty() : tensor<2x8xf32>
  %r = tensor.empty() : tensor<2xf32>
  %n = linalg.fill ins(%zero : f32) outs(%r : tensor<2xf32>) -> tensor<2xf32>
  %s = linalg.generic {indexing_maps = [#id, #column], iterator_types = ["parallel", "reduction"]} ins(%y : tensor<2x8xf32>) outs(%n : tensor<2xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %in, %out : f32
    linalg.yield %0 : f32
  } -> tensor<2xf32>
  %g = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]} ins(%y, %s : tensor<2x8xf32>, tensor<2xf32>) outs(%o : tensor<2x8xf32>) {
  ^bb0(%in: f32, %in2: f32, %out: f32):
    %0 = arith.divf %in, %in2 : f32
    linalg.yield %0 : f32
  } -> tensor<2x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%o : tensor<2x8xf32>) -> tensor<2x8xf32>
  %p = linalg.matmul ins(%x, %w : tensor<2x4xf32>, tensor<4x8xf32>) outs(%f : tensor<2x8xf32>) -> tensor<2x8xf32>
  %z = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%p, %g : tensor<2x8xf32>, tensor<2x8xf32>) outs(%o : tensor<2x8xf32>) {
  ^bb0(%in: f32, %in2: f32, %out: f32):
    %0 = arith.addf %in, %in2 : f32
    linalg.yield %0 : f32
  } -> tensor<2x8xf32>
  return %z : tensor<2x8xf32>
}

// What several read is computed by each of them, of a part of a tensor with no more bytes.
// CHECK-LABEL: func.func @two_readers
// CHECK: %[[S:.+]] = tensor.extract_slice
// CHECK: %[[P:.+]] = linalg.matmul
// CHECK: linalg.generic {{.*}} ins(%[[P]], %[[S]] : tensor<2x8xf32>, tensor<2x8xf16>)
// CHECK: math.exp
// CHECK-NOT: math.exp
// CHECK: linalg.generic {{.*}} ins(%[[P]], %[[S]] : tensor<2x8xf32>, tensor<2x8xf16>)
// CHECK: math.exp
func.func @two_readers(%x: tensor<2x4xf32>, %w: tensor<4x8xf32>, %y: tensor<2x16xf16>) -> (tensor<2x8xf32>, tensor<2x8xf32>) {
  %zero = arith.constant 0.0 : f32
  %o = tensor.empty() : tensor<2x8xf32>
  %s = tensor.extract_slice %y[0, 8] [2, 8] [1, 1] : tensor<2x16xf16> to tensor<2x8xf16>
  %g = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<2x8xf16>) outs(%o : tensor<2x8xf32>) {
  ^bb0(%in: f16, %out: f32):
    %0 = arith.extf %in : f16 to f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<2x8xf32>
  %h = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%g, %g : tensor<2x8xf32>, tensor<2x8xf32>) outs(%o : tensor<2x8xf32>) {
  ^bb0(%in: f32, %in2: f32, %out: f32):
    %0 = arith.mulf %in, %in2 : f32
    linalg.yield %0 : f32
  } -> tensor<2x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%o : tensor<2x8xf32>) -> tensor<2x8xf32>
  %p = linalg.matmul ins(%x, %w : tensor<2x4xf32>, tensor<4x8xf32>) outs(%f : tensor<2x8xf32>) -> tensor<2x8xf32>
  %a = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%p, %g : tensor<2x8xf32>, tensor<2x8xf32>) outs(%o : tensor<2x8xf32>) {
  ^bb0(%in: f32, %in2: f32, %out: f32):
    %0 = arith.mulf %in, %in2 : f32
    linalg.yield %0 : f32
  } -> tensor<2x8xf32>
  %b = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%p, %h : tensor<2x8xf32>, tensor<2x8xf32>) outs(%o : tensor<2x8xf32>) {
  ^bb0(%in: f32, %in2: f32, %out: f32):
    %0 = arith.addf %in, %in2 : f32
    linalg.yield %0 : f32
  } -> tensor<2x8xf32>
  return %a, %b : tensor<2x8xf32>, tensor<2x8xf32>
}
