// RUN: kitsune-opt %s --partition-dataflow --split-input-file --verify-diagnostics | filecheck %s

// A path that leaves through an operator outside and comes back ends the group: what stands behind it is a second one.

#id = affine_map<(i, j) -> (i, j)>
#swap = affine_map<(i, j) -> (j, i)>

// CHECK-LABEL: func.func @diamond
// CHECK: "kitsune.pipeline"() ({
// CHECK-COUNT-2: linalg.matmul
// CHECK-NOT: linalg.matmul
// CHECK: "kitsune.store"(%[[H:.+]]) {index = 0 : i64}
// CHECK: "kitsune.store"(%[[A:.+]]) {index = 1 : i64}
// CHECK: sym_name = "pipeline0"
// CHECK-NOT: kitsune.pipeline
// CHECK: %[[T:.+]] = linalg.{{transpose|generic}}
// CHECK: "kitsune.pipeline"() ({
// CHECK: arith.addf
// CHECK: linalg.matmul
// CHECK: sym_name = "pipeline1"
func.func @diamond(%x: tensor<64x64xf32>, %w0: tensor<64x64xf32>, %w1: tensor<64x64xf32>, %w2: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  %h = linalg.matmul ins(%x, %w0 : tensor<64x64xf32>, tensor<64x64xf32>) outs(%f : tensor<64x64xf32>) -> tensor<64x64xf32>
  %a = linalg.matmul ins(%h, %w1 : tensor<64x64xf32>, tensor<64x64xf32>) outs(%f : tensor<64x64xf32>) -> tensor<64x64xf32>
  // expected-remark @below {{stays outside pipelines: reads other rows than the one it writes}}
  %t = linalg.generic {indexing_maps = [#swap, #id], iterator_types = ["parallel", "parallel"]}
      ins(%h : tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %n = arith.negf %in : f32
    linalg.yield %n : f32
  } -> tensor<64x64xf32>
  %s = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a, %t : tensor<64x64xf32>, tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%l: f32, %r: f32, %out: f32):
    %n = arith.addf %l, %r : f32
    linalg.yield %n : f32
  } -> tensor<64x64xf32>
  %y = linalg.matmul ins(%s, %w2 : tensor<64x64xf32>, tensor<64x64xf32>) outs(%f : tensor<64x64xf32>) -> tensor<64x64xf32>
  return %y : tensor<64x64xf32>
}

// -----

// The same without the way around is one group, skip included.

#id = affine_map<(i, j) -> (i, j)>

// CHECK-LABEL: func.func @skip
// CHECK: "kitsune.pipeline"() ({
// CHECK-COUNT-2: linalg.matmul
// CHECK: arith.addf
// CHECK: "kitsune.store"(%{{.+}}) {index = 0 : i64} : (tensor<64x32xf32>) -> ()
// CHECK-NOT: kitsune.pipeline
func.func @skip(%x: tensor<64x32xf32>, %w0: tensor<32x32xf32>, %w1: tensor<32x32xf32>) -> tensor<64x32xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x32xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x32xf32>) -> tensor<64x32xf32>
  %h = linalg.matmul ins(%x, %w0 : tensor<64x32xf32>, tensor<32x32xf32>) outs(%f : tensor<64x32xf32>) -> tensor<64x32xf32>
  %a = linalg.matmul ins(%h, %w1 : tensor<64x32xf32>, tensor<32x32xf32>) outs(%f : tensor<64x32xf32>) -> tensor<64x32xf32>
  %s = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a, %h : tensor<64x32xf32>, tensor<64x32xf32>) outs(%e : tensor<64x32xf32>) {
  ^bb0(%l: f32, %r: f32, %out: f32):
    %n = arith.addf %l, %r : f32
    linalg.yield %n : f32
  } -> tensor<64x32xf32>
  return %s : tensor<64x32xf32>
}

// -----

// A product of two values of the model needs all of its right operand, so that one is finished in a pipeline before.

// CHECK-LABEL: func.func @barrier
// CHECK: "kitsune.pipeline"() ({
// CHECK-COUNT-1: linalg.matmul
// CHECK-NOT: linalg.matmul
// CHECK: })
// CHECK: %[[K:.+]] = "kitsune.result"
// CHECK: "kitsune.pipeline"() ({
// CHECK: linalg.matmul
// CHECK: linalg.matmul {{.*}}ins(%{{.+}}, %[[K]] :
// CHECK: })
func.func @barrier(%x: tensor<64x32xf32>, %w0: tensor<32x32xf32>, %w1: tensor<32x32xf32>) -> tensor<64x64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x32xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x32xf32>) -> tensor<64x32xf32>
  %q = linalg.matmul ins(%x, %w0 : tensor<64x32xf32>, tensor<32x32xf32>) outs(%f : tensor<64x32xf32>) -> tensor<64x32xf32>
  %k = linalg.matmul ins(%x, %w1 : tensor<64x32xf32>, tensor<32x32xf32>) outs(%f : tensor<64x32xf32>) -> tensor<64x32xf32>
  %e1 = tensor.empty() : tensor<64x64xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<64x64xf32>) -> tensor<64x64xf32>
  %s = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%q, %k : tensor<64x32xf32>, tensor<64x32xf32>) outs(%f1 : tensor<64x64xf32>) -> tensor<64x64xf32>
  return %s : tensor<64x64xf32>
}

// -----

// Groups whose rows are different tensors' rows stay apart.

// CHECK-LABEL: func.func @two_row_spaces
// CHECK: "kitsune.pipeline"() ({
// CHECK: linalg.matmul {{.*}}tensor<64x32xf32>
// CHECK-NOT: linalg.matmul
// CHECK: sym_name = "pipeline0"
// CHECK: "kitsune.pipeline"() ({
// CHECK: linalg.matmul {{.*}}tensor<100x32xf32>
// CHECK-NOT: linalg.matmul
// CHECK: sym_name = "pipeline1"
func.func @two_row_spaces(%x: tensor<64x32xf32>, %z: tensor<100x32xf32>, %w: tensor<32x8xf32>) -> (tensor<64x8xf32>, tensor<100x8xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x8xf32>) -> tensor<64x8xf32>
  %a = linalg.matmul ins(%x, %w : tensor<64x32xf32>, tensor<32x8xf32>) outs(%f : tensor<64x8xf32>) -> tensor<64x8xf32>
  %e1 = tensor.empty() : tensor<100x8xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<100x8xf32>) -> tensor<100x8xf32>
  %b = linalg.matmul ins(%z, %w : tensor<100x32xf32>, tensor<32x8xf32>) outs(%f1 : tensor<100x8xf32>) -> tensor<100x8xf32>
  return %a, %b : tensor<64x8xf32>, tensor<100x8xf32>
}

// -----

// A scalar of all rows that a body reads is a way around too.

#id = affine_map<(i, j) -> (i, j)>

// CHECK-LABEL: func.func @scalar
// CHECK: "kitsune.pipeline"() ({
// CHECK: linalg.matmul
// CHECK-NOT: linalg.matmul
// CHECK: })
// CHECK: %[[M:.+]] = tensor.extract
// CHECK: "kitsune.pipeline"() ({
// CHECK: arith.mulf %{{.+}}, %[[M]]
// CHECK: linalg.matmul
// CHECK: })
func.func @scalar(%x: tensor<64x32xf32>, %w0: tensor<32x32xf32>, %w1: tensor<32x32xf32>) -> tensor<64x32xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x32xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x32xf32>) -> tensor<64x32xf32>
  %h = linalg.matmul ins(%x, %w0 : tensor<64x32xf32>, tensor<32x32xf32>) outs(%f : tensor<64x32xf32>) -> tensor<64x32xf32>
  %e0 = tensor.empty() : tensor<f32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<f32>) -> tensor<f32>
  // expected-remark @below {{stays outside pipelines: has fewer dimensions}}
  %m = linalg.generic {indexing_maps = [#id, affine_map<(i, j) -> ()>], iterator_types = ["reduction", "reduction"]}
      ins(%h : tensor<64x32xf32>) outs(%f0 : tensor<f32>) {
  ^bb0(%v: f32, %out: f32):
    %s = arith.addf %v, %out : f32
    linalg.yield %s : f32
  } -> tensor<f32>
  %scale = tensor.extract %m[] : tensor<f32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%h : tensor<64x32xf32>) outs(%e : tensor<64x32xf32>) {
  ^bb0(%v: f32, %out: f32):
    %s = arith.mulf %v, %scale : f32
    linalg.yield %s : f32
  } -> tensor<64x32xf32>
  %y = linalg.matmul ins(%a, %w1 : tensor<64x32xf32>, tensor<32x32xf32>) outs(%f : tensor<64x32xf32>) -> tensor<64x32xf32>
  return %y : tensor<64x32xf32>
}
