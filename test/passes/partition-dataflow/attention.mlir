// RUN: kitsune-opt %s --partition-dataflow --split-input-file --verify-diagnostics | filecheck %s

// The two products of an attention of one head, neither of weights, are a kernel of their own, no stages.

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

// CHECK-LABEL: func.func @one_head
// CHECK-NOT: kitsune.pipeline
// CHECK-COUNT-2: linalg.matmul
// CHECK-NOT: kitsune.pipeline
func.func @one_head(%q: tensor<64x32xf32>, %k: tensor<32x64xf32>, %v: tensor<64x32xf32>) -> tensor<64x32xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  // expected-remark @below {{stays outside pipelines: is one of the two products of an attention, which are a kernel of their own}}
  %s = linalg.matmul ins(%q, %k : tensor<64x32xf32>, tensor<32x64xf32>) outs(%f : tensor<64x64xf32>) -> tensor<64x64xf32>
  // expected-remark @below {{stays outside pipelines}}
  %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  } -> tensor<64x64xf32>
  %r = tensor.empty() : tensor<64xf32>
  %g = linalg.fill ins(%zero : f32) outs(%r : tensor<64xf32>) -> tensor<64xf32>
  // expected-remark @below {{stays outside pipelines}}
  %t = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<64x64xf32>) outs(%g : tensor<64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %in, %out : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  // expected-remark @below {{stays outside pipelines}}
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %t : tensor<64x64xf32>, tensor<64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%in: f32, %sum: f32, %out: f32):
    %0 = arith.divf %in, %sum : f32
    linalg.yield %0 : f32
  } -> tensor<64x64xf32>
  %h = tensor.empty() : tensor<64x32xf32>
  %i = linalg.fill ins(%zero : f32) outs(%h : tensor<64x32xf32>) -> tensor<64x32xf32>
  // expected-remark @below {{stays outside pipelines: is one of the two products of an attention, which are a kernel of their own}}
  %o = linalg.matmul ins(%p, %v : tensor<64x64xf32>, tensor<64x32xf32>) outs(%i : tensor<64x32xf32>) -> tensor<64x32xf32>
  return %o : tensor<64x32xf32>
}

// -----

// A network between exponentials and a product of weights is none.

#id = affine_map<(i, j) -> (i, j)>

// CHECK-LABEL: func.func @of_weights
// CHECK: "kitsune.pipeline"() ({
// CHECK-COUNT-2: linalg.matmul
// CHECK: "kitsune.store"
func.func @of_weights(%x: tensor<64x32xf32>, %w: tensor<32x64xf32>, %u: tensor<64x32xf32>) -> tensor<64x32xf32>
    attributes {kitsune.weights = array<i64: 1, 2>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  %s = linalg.matmul ins(%x, %w : tensor<64x32xf32>, tensor<32x64xf32>) outs(%f : tensor<64x64xf32>) -> tensor<64x64xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  } -> tensor<64x64xf32>
  %h = tensor.empty() : tensor<64x32xf32>
  %i = linalg.fill ins(%zero : f32) outs(%h : tensor<64x32xf32>) -> tensor<64x32xf32>
  %o = linalg.matmul ins(%y, %u : tensor<64x64xf32>, tensor<64x32xf32>) outs(%i : tensor<64x32xf32>) -> tensor<64x32xf32>
  return %o : tensor<64x32xf32>
}
