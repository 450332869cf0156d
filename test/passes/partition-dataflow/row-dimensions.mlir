// RUN: kitsune-opt %s --partition-dataflow --split-input-file --verify-diagnostics | filecheck %s
// RUN: kitsune-opt %s --partition-dataflow --design-pipeline --split-input-file | filecheck %s --check-prefix=DESIGN

// The number of rows may be open until the call.

// CHECK-LABEL: func.func @dynamic
// CHECK: "kitsune.pipeline"() ({
// CHECK: linalg.matmul {{.*}}tensor<?x16xf32>
// CHECK: "kitsune.store"(%{{.+}}) {index = 0 : i64} : (tensor<?x8xf32>) -> ()
// CHECK: "kitsune.result"(%{{.+}}) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x8xf32>

// DESIGN-LABEL: func.func @dynamic
// DESIGN: "kitsune.load"(%arg0) : (tensor<?x16xf32>) -> tensor<?x16xf32>
// DESIGN: -> tensor<?x8xf32>
func.func @dynamic(%x: tensor<?x16xf32>, %w: tensor<16x8xf32>) -> tensor<?x8xf32> {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %x, %c0 : tensor<?x16xf32>
  %e = tensor.empty(%rows) : tensor<?x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x8xf32>) -> tensor<?x8xf32>
  %y = linalg.matmul ins(%x, %w : tensor<?x16xf32>, tensor<16x8xf32>) outs(%f : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

// Leading dimensions [B, T] are rows together: one group on both sides of the reshapes, flattened by the design.

#id = affine_map<(b, t, j) -> (b, t, j)>
#bias = affine_map<(b, t, j) -> (j)>

// CHECK-LABEL: func.func @leading
// CHECK: "kitsune.pipeline"() ({
// CHECK: linalg.generic {{.*}}tensor<4x16x32xf32>
// CHECK: tensor.collapse_shape
// CHECK: linalg.matmul
// CHECK: tensor.expand_shape
// CHECK: linalg.generic
// CHECK: "kitsune.store"(%{{.+}}) {index = 0 : i64} : (tensor<4x16x8xf32>) -> ()
// CHECK: })
// CHECK-NOT: linalg

// DESIGN-LABEL: func.func @leading
// DESIGN: %[[X:.+]] = tensor.collapse_shape %arg0 {{\[}}[0, 1], [2]] : tensor<4x16x32xf32> into tensor<64x32xf32>
// DESIGN: "kitsune.pipeline"() ({
// DESIGN-NOT: tensor.collapse_shape
// DESIGN: "kitsune.load"(%[[X]]) : (tensor<64x32xf32>) -> tensor<?x32xf32>
// DESIGN: linalg.generic {indexing_maps = [#[[ID:.+]], #[[ID]]], iterator_types = ["parallel", "parallel"]} ins(%{{.+}} : tensor<?x32xf32>)
// DESIGN: linalg.matmul {{.*}}tensor<?x32xf32>
// DESIGN-NOT: tensor.expand_shape
// DESIGN: linalg.generic
// DESIGN-SAME: tensor<?x8xf32>, tensor<8xf32>
// DESIGN: "kitsune.store"(%{{.+}}) {index = 0 : i64} : (tensor<?x8xf32>) -> ()
// DESIGN: %[[Y:.+]] = "kitsune.result"(%{{.+}}) {index = 0 : i64} : (!kitsune.outputs) -> tensor<64x8xf32>
// DESIGN: tensor.expand_shape %[[Y]] {{\[}}[0, 1], [2]] output_shape [4, 16, 8]
func.func @leading(%x: tensor<4x16x32xf32>, %w: tensor<32x8xf32>, %b: tensor<8xf32>) -> tensor<4x16x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x16x32xf32>
  %n = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x : tensor<4x16x32xf32>) outs(%e : tensor<4x16x32xf32>) {
  ^bb0(%v: f32, %out: f32):
    %m = arith.maximumf %v, %zero : f32
    linalg.yield %m : f32
  } -> tensor<4x16x32xf32>
  %flat = tensor.collapse_shape %n [[0, 1], [2]] : tensor<4x16x32xf32> into tensor<64x32xf32>
  %e1 = tensor.empty() : tensor<64x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e1 : tensor<64x8xf32>) -> tensor<64x8xf32>
  %y = linalg.matmul ins(%flat, %w : tensor<64x32xf32>, tensor<32x8xf32>) outs(%f : tensor<64x8xf32>) -> tensor<64x8xf32>
  %whole = tensor.expand_shape %y [[0, 1], [2]] output_shape [4, 16, 8] : tensor<64x8xf32> into tensor<4x16x8xf32>
  %e2 = tensor.empty() : tensor<4x16x8xf32>
  %s = linalg.generic {indexing_maps = [#id, #bias, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%whole, %b : tensor<4x16x8xf32>, tensor<8xf32>) outs(%e2 : tensor<4x16x8xf32>) {
  ^bb0(%l: f32, %r: f32, %out: f32):
    %a = arith.addf %l, %r : f32
    linalg.yield %a : f32
  } -> tensor<4x16x8xf32>
  return %s : tensor<4x16x8xf32>
}

// -----

// A value that is used twice outside is one output.

// CHECK-LABEL: func.func @one_output
// CHECK: "kitsune.pipeline"() ({
// CHECK: "kitsune.store"(%{{.+}}) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
// CHECK-NOT: "kitsune.store"
// CHECK: })
func.func @one_output(%x: tensor<64x16xf32>, %w: tensor<16x8xf32>) -> (tensor<64x8xf32>, tensor<64x8xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x8xf32>) -> tensor<64x8xf32>
  %y = linalg.matmul ins(%x, %w : tensor<64x16xf32>, tensor<16x8xf32>) outs(%f : tensor<64x8xf32>) -> tensor<64x8xf32>
  return %y, %y : tensor<64x8xf32>, tensor<64x8xf32>
}

// -----

// Sizes read off an operator's result come from the arguments, so they do not keep its readers waiting.

#id = affine_map<(b, t, j) -> (b, t, j)>

// CHECK-LABEL: func.func @sizes
// CHECK: "kitsune.pipeline"() ({
// CHECK: linalg.matmul
// CHECK: tensor.expand_shape
// CHECK: math.exp
// CHECK: })

// DESIGN-LABEL: func.func @sizes
// DESIGN: "kitsune.load"(%{{.+}}) : (tensor<?x32xf32>) -> tensor<?x32xf32>
// DESIGN: math.exp
func.func @sizes(%x: tensor<?x9x32xf32>, %w: tensor<32x8xf32>) -> tensor<?x9x8xf32> {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %c9 = arith.constant 9 : index
  %flat = tensor.collapse_shape %x [[0, 1], [2]] : tensor<?x9x32xf32> into tensor<?x32xf32>
  %n = tensor.dim %flat, %c0 : tensor<?x32xf32>
  %e = tensor.empty(%n) : tensor<?x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x8xf32>) -> tensor<?x8xf32>
  %y = linalg.matmul ins(%flat, %w : tensor<?x32xf32>, tensor<32x8xf32>) outs(%f : tensor<?x8xf32>) -> tensor<?x8xf32>
  %b = arith.divsi %n, %c9 : index
  %whole = tensor.expand_shape %y [[0, 1], [2]] output_shape [%b, 9, 8] : tensor<?x8xf32> into tensor<?x9x8xf32>
  %m = tensor.dim %whole, %c0 : tensor<?x9x8xf32>
  %e1 = tensor.empty(%m) : tensor<?x9x8xf32>
  %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%whole : tensor<?x9x8xf32>) outs(%e1 : tensor<?x9x8xf32>) {
  ^bb0(%v: f32, %out: f32):
    %a = math.exp %v : f32
    linalg.yield %a : f32
  } -> tensor<?x9x8xf32>
  return %s : tensor<?x9x8xf32>
}

// -----

// A view of what comes from outside, which something else reads too, stays there: a pipeline would store it again.

// CHECK-LABEL: func.func @shared_view
// CHECK: %[[FLAT:.+]] = tensor.collapse_shape %arg0
// CHECK: "kitsune.pipeline"() ({
// CHECK-NOT: tensor.collapse_shape
// CHECK: linalg.matmul
// CHECK: "kitsune.store"(%{{.+}}) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
// CHECK-NEXT: })
// CHECK: %[[Y:.+]] = "kitsune.result"
// CHECK: return %[[Y]], %[[FLAT]]
func.func @shared_view(%x: tensor<4x16x32xf32>, %w: tensor<32x8xf32>) -> (tensor<64x8xf32>, tensor<64x32xf32>) {
  %zero = arith.constant 0.0 : f32
  %flat = tensor.collapse_shape %x [[0, 1], [2]] : tensor<4x16x32xf32> into tensor<64x32xf32>
  %e = tensor.empty() : tensor<64x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x8xf32>) -> tensor<64x8xf32>
  %y = linalg.matmul ins(%flat, %w : tensor<64x32xf32>, tensor<32x8xf32>) outs(%f : tensor<64x8xf32>) -> tensor<64x8xf32>
  return %y, %flat : tensor<64x8xf32>, tensor<64x32xf32>
}
