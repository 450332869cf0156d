// RUN: kitsune-opt %s --place-stages=target=sm_90a --schedule-chains --convert-kitsune-to-gpu | filecheck %s

// Pipelines that differ in the tensors they name are calls of one kernel; another constant or another use of the
// tensors makes another kernel.

// CHECK: gpu.module @p3_kernel
// CHECK: gpu.module @p2_kernel
// CHECK-NOT: gpu.module @p1_kernel
// CHECK: gpu.module @p0_kernel
// CHECK: func.func @main(%[[X:.+]]: tensor<96x16xf32>, %{{.+}}: tensor<16x16xf32>, %{{.+}}: tensor<16x16xf32>)
// CHECK: %[[A:.+]] = call @p0(%{{.+}}, %[[X]])
// CHECK: %[[B:.+]] = call @p0(%{{.+}}, %[[A]])
// CHECK: %[[C:.+]] = call @p2(%{{.+}}, %[[B]])
// CHECK: %[[D:.+]] = call @p3(%{{.+}}, %[[C]])
// CHECK: return %[[D]]

#id = affine_map<(i, j) -> (i, j)>

func.func @main(%x: tensor<96x16xf32>, %u: tensor<16x16xf32>, %v: tensor<16x16xf32>) -> tensor<96x16xf32> {
  %zero = arith.constant 0.0 : f32
  %half = arith.constant 0.5 : f32
  %third = arith.constant 0.3 : f32
  %p0 = "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %t = "kitsune.load"(%x) : (tensor<96x16xf32>) -> tensor<?x16xf32>
      %c0 = arith.constant 0 : index
      %rows = tensor.dim %t, %c0 : tensor<?x16xf32>
      %e = tensor.empty(%rows) : tensor<?x16xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
      %h = linalg.matmul indexing_maps = [affine_map<(m,n,k)->(m,k)>, affine_map<(m,n,k)->(n,k)>, affine_map<(m,n,k)->(m,n)>] ins(%t, %u : tensor<?x16xf32>, tensor<16x16xf32>) outs(%f : tensor<?x16xf32>) -> tensor<?x16xf32>
      %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%h : tensor<?x16xf32>) outs(%e : tensor<?x16xf32>) {
      ^bb0(%n: f32, %out: f32):
        %m = arith.mulf %n, %half : f32
        linalg.yield %m : f32
      } -> tensor<?x16xf32>
      "kitsune.store"(%s) {index = 0 : i64} : (tensor<?x16xf32>) -> ()
    }) {kind = "tensor", sym_name = "s"} : () -> ()
  }) {sym_name = "p0"} : () -> !kitsune.outputs
  %a = "kitsune.result"(%p0) {index = 0 : i64} : (!kitsune.outputs) -> tensor<96x16xf32>
  %p1 = "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %t = "kitsune.load"(%a) : (tensor<96x16xf32>) -> tensor<?x16xf32>
      %c0 = arith.constant 0 : index
      %rows = tensor.dim %t, %c0 : tensor<?x16xf32>
      %e = tensor.empty(%rows) : tensor<?x16xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
      %h = linalg.matmul indexing_maps = [affine_map<(m,n,k)->(m,k)>, affine_map<(m,n,k)->(n,k)>, affine_map<(m,n,k)->(m,n)>] ins(%t, %v : tensor<?x16xf32>, tensor<16x16xf32>) outs(%f : tensor<?x16xf32>) -> tensor<?x16xf32>
      %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%h : tensor<?x16xf32>) outs(%e : tensor<?x16xf32>) {
      ^bb0(%n: f32, %out: f32):
        %m = arith.mulf %n, %half : f32
        linalg.yield %m : f32
      } -> tensor<?x16xf32>
      "kitsune.store"(%s) {index = 0 : i64} : (tensor<?x16xf32>) -> ()
    }) {kind = "tensor", sym_name = "s"} : () -> ()
  }) {sym_name = "p1"} : () -> !kitsune.outputs
  %b = "kitsune.result"(%p1) {index = 0 : i64} : (!kitsune.outputs) -> tensor<96x16xf32>
  %p2 = "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %t = "kitsune.load"(%b) : (tensor<96x16xf32>) -> tensor<?x16xf32>
      %c0 = arith.constant 0 : index
      %rows = tensor.dim %t, %c0 : tensor<?x16xf32>
      %e = tensor.empty(%rows) : tensor<?x16xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
      %h = linalg.matmul indexing_maps = [affine_map<(m,n,k)->(m,k)>, affine_map<(m,n,k)->(n,k)>, affine_map<(m,n,k)->(m,n)>] ins(%t, %u : tensor<?x16xf32>, tensor<16x16xf32>) outs(%f : tensor<?x16xf32>) -> tensor<?x16xf32>
      %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%h : tensor<?x16xf32>) outs(%e : tensor<?x16xf32>) {
      ^bb0(%n: f32, %out: f32):
        %m = arith.mulf %n, %third : f32
        linalg.yield %m : f32
      } -> tensor<?x16xf32>
      "kitsune.store"(%s) {index = 0 : i64} : (tensor<?x16xf32>) -> ()
    }) {kind = "tensor", sym_name = "s"} : () -> ()
  }) {sym_name = "p2"} : () -> !kitsune.outputs
  %c = "kitsune.result"(%p2) {index = 0 : i64} : (!kitsune.outputs) -> tensor<96x16xf32>
  %p3 = "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %t = "kitsune.load"(%c) : (tensor<96x16xf32>) -> tensor<?x16xf32>
      %c0 = arith.constant 0 : index
      %rows = tensor.dim %t, %c0 : tensor<?x16xf32>
      %e = tensor.empty(%rows) : tensor<?x16xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
      %h = linalg.matmul indexing_maps = [affine_map<(m,n,k)->(m,k)>, affine_map<(m,n,k)->(n,k)>, affine_map<(m,n,k)->(m,n)>] ins(%t, %v : tensor<?x16xf32>, tensor<16x16xf32>) outs(%f : tensor<?x16xf32>) -> tensor<?x16xf32>
      %s = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%h, %t : tensor<?x16xf32>, tensor<?x16xf32>) outs(%e : tensor<?x16xf32>) {
      ^bb0(%n: f32, %i: f32, %out: f32):
        %m = arith.mulf %n, %i : f32
        linalg.yield %m : f32
      } -> tensor<?x16xf32>
      "kitsune.store"(%s) {index = 0 : i64} : (tensor<?x16xf32>) -> ()
    }) {kind = "tensor", sym_name = "s"} : () -> ()
  }) {sym_name = "p3"} : () -> !kitsune.outputs
  %d = "kitsune.result"(%p3) {index = 0 : i64} : (!kitsune.outputs) -> tensor<96x16xf32>
  return %d : tensor<96x16xf32>
}
