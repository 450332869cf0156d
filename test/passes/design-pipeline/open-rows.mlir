// Rows in two dimensions, both open: the sizes of a result are those of a tensor that the pipeline reads.

// RUN: kitsune-opt %s --design-pipeline | filecheck %s
// CHECK-LABEL: func.func @main
// CHECK-SAME:    %[[X:.*]]: tensor<?x?x16xf32>, %[[W:.*]]: tensor<16x8xf32>
// CHECK:       %[[ROWS:.*]] = "kitsune.result"(%{{.*}}) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x16xf32>
// CHECK-DAG:   %[[B:.*]] = tensor.dim %[[X]], %c0
// CHECK-DAG:   %[[T:.*]] = tensor.dim %[[X]], %c1
// CHECK:       tensor.expand_shape %[[ROWS]] {{\[}}[0, 1], [2]] output_shape [%[[B]], %[[T]], 16]

#rows = affine_map<(b, t, c) -> (b, t, c)>

func.func @main(%x: tensor<?x?x16xf32>, %w: tensor<16x8xf32>, %b: index, %t: index, %n: index) -> (tensor<?x?x16xf32>, tensor<?x8xf32>) {
  %zero = arith.constant 0.0 : f32
  %p = "kitsune.pipeline"() ({
    %e = tensor.empty(%b, %t) : tensor<?x?x16xf32>
    %r = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%x : tensor<?x?x16xf32>) outs(%e : tensor<?x?x16xf32>) {
    ^bb0(%in: f32, %out: f32):
      %m = arith.maximumf %in, %zero : f32
      linalg.yield %m : f32
    } -> tensor<?x?x16xf32>
    %flat = tensor.collapse_shape %r [[0, 1], [2]] : tensor<?x?x16xf32> into tensor<?x16xf32>
    %f = tensor.empty(%n) : tensor<?x8xf32>
    %z = linalg.fill ins(%zero : f32) outs(%f : tensor<?x8xf32>) -> tensor<?x8xf32>
    %y = linalg.matmul ins(%flat, %w : tensor<?x16xf32>, tensor<16x8xf32>) outs(%z : tensor<?x8xf32>) -> tensor<?x8xf32>
    "kitsune.store"(%r) {index = 0 : i64} : (tensor<?x?x16xf32>) -> ()
    "kitsune.store"(%y) {index = 1 : i64} : (tensor<?x8xf32>) -> ()
  }) {sym_name = "pipeline0"} : () -> !kitsune.outputs
  %h = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x?x16xf32>
  %o = "kitsune.result"(%p) {index = 1 : i64} : (!kitsune.outputs) -> tensor<?x8xf32>
  return %h, %o : tensor<?x?x16xf32>, tensor<?x8xf32>
}
