// RUN: kitsune-opt --convert-kitsune-to-cpu %s | filecheck %s

// Constants are cloned into the stage, other scalars travel as tensors without dimensions, and a sum over the
// tile's rows stops at the last valid one.

#id = affine_map<(d0, d1) -> (d0, d1)>
#columns = affine_map<(d0, d1) -> (d1)>

// CHECK: func.func private @add_5xf32

// CHECK: func.func private @scaled.sum(%{{.+}}: tensor<8x5xf32>, %[[VALID:.+]]: tensor<i64>) -> tensor<5xf32> attributes {kitsune.stage}
// CHECK: %[[N:.+]] = tensor.extract %[[VALID]][] : tensor<i64>
// CHECK: %[[STOP:.+]] = arith.index_cast %[[N]] : i64 to index
// CHECK: linalg.generic
// CHECK: %[[NEW:.+]] = arith.addf
// CHECK: %[[ROW:.+]] = linalg.index 0
// CHECK: %[[IN:.+]] = arith.cmpi slt, %[[ROW]], %[[STOP]]
// CHECK: arith.select %[[IN]], %[[NEW]]

// CHECK: func.func private @scaled.scale(
// CHECK-DAG: %[[S:.+]] = tensor.extract %{{.+}}[] : tensor<f32>
// CHECK-DAG: %[[C:.+]] = arith.constant 2.000000e+00 : f32
// CHECK: linalg.generic
// CHECK: arith.mulf %{{.+}}, %[[S]]
// CHECK: arith.addf %{{.+}}, %[[C]]

// CHECK: func.func @main
// CHECK: %[[T:.+]] = tensor.from_elements %arg1 : tensor<f32>
// CHECK: call @scaled.run(
func.func @main(%x: tensor<?x5xf32>, %s: f32) -> tensor<5xf32> {
  %two = arith.constant 2.0 : f32
  %zero = arith.constant 0.0 : f32
  %p = "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "h", transport = "reg"} : () -> !kitsune.ring<tensor<8x5xf32>, 1 : i64>
    %sums = "kitsune.queue"() {sym_name = "sums", transport = "l2"} : () -> !kitsune.ring<tensor<5xf32>, 1 : i64>
    "kitsune.stage"() ({
      %t = "kitsune.load"(%x) : (tensor<?x5xf32>) -> tensor<8x5xf32>
      %e = tensor.empty() : tensor<8x5xf32>
      %h = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%t : tensor<8x5xf32>) outs(%e : tensor<8x5xf32>) {
      ^bb0(%in: f32, %out: f32):
        %0 = arith.mulf %in, %s : f32
        %1 = arith.addf %0, %two : f32
        linalg.yield %1 : f32
      } -> tensor<8x5xf32>
      "kitsune.put"(%q, %h) : (!kitsune.ring<tensor<8x5xf32>, 1 : i64>, tensor<8x5xf32>) -> ()
    }) {kind = "simt", sym_name = "scale", role = 0 : i64, replicas = 1 : i64} : () -> ()
    "kitsune.stage"() ({
      %h = "kitsune.get"(%q) : (!kitsune.ring<tensor<8x5xf32>, 1 : i64>) -> tensor<8x5xf32>
      %e = tensor.empty() : tensor<5xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
      %sum = linalg.generic {indexing_maps = [#id, #columns], iterator_types = ["reduction", "parallel"]} ins(%h : tensor<8x5xf32>) outs(%f : tensor<5xf32>) {
      ^bb0(%in: f32, %out: f32):
        %0 = arith.addf %in, %out : f32
        linalg.yield %0 : f32
      } -> tensor<5xf32>
      "kitsune.accumulate"(%sums, %sum) : (!kitsune.ring<tensor<5xf32>, 1 : i64>, tensor<5xf32>) -> ()
    }) {kind = "simt", sym_name = "sum", role = 0 : i64, replicas = 1 : i64} : () -> ()
    "kitsune.stage"() ({
      %all = "kitsune.reduce"(%sums) : (!kitsune.ring<tensor<5xf32>, 1 : i64>) -> tensor<5xf32>
      "kitsune.store"(%all) {index = 0 : i64} : (tensor<5xf32>) -> ()
    }) {kind = "simt", sym_name = "all", role = 1 : i64, replicas = 1 : i64} : () -> ()
  }) {sym_name = "scaled", tile_rows = 8 : i64, target = "cpu"} : () -> !kitsune.outputs
  %out = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<5xf32>
  return %out : tensor<5xf32>
}
