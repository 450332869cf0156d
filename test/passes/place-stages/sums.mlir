// RUN: kitsune-opt %s --place-stages='shape=fused' --verify-dataflow | filecheck %s

// Rows that are open until the call, a sum over them, and tensors without a row dimension, which keep their sizes.

#id = affine_map<(i, j) -> (i, j)>
#column = affine_map<(i, j) -> (j)>

// CHECK: "kitsune.queue"() {sym_name = "q", transport = "reg"} : () -> !kitsune.ring<tensor<64x16xf32>, 1 : i64>
// CHECK: "kitsune.queue"() {sym_name = "sums", transport = "l2"} : () -> !kitsune.ring<tensor<16xf32>, [[#THREADS:]] : i64>
// CHECK: "kitsune.load"(%arg0) : (tensor<?x8xf32>) -> tensor<64x8xf32>
// CHECK: replicas = [[#THREADS]] : i64, role = 0 : i64, sym_name = "up"
// CHECK: outs(%{{.+}} : tensor<16xf32>)
// CHECK: "kitsune.accumulate"(%{{.+}}, %{{.+}}) : (!kitsune.ring<tensor<16xf32>, [[#THREADS]] : i64>, tensor<16xf32>) -> ()
// CHECK: replicas = [[#THREADS]] : i64, role = 0 : i64, sym_name = "terms"
// CHECK: "kitsune.reduce"(%{{.+}}) : (!kitsune.ring<tensor<16xf32>, [[#THREADS]] : i64>) -> tensor<16xf32>
// CHECK: replicas = 1 : i64, role = 1 : i64, sym_name = "total"
func.func @main(%x: tensor<?x8xf32>, %w: tensor<8x16xf32>) -> tensor<16xf32> {
  %zero = arith.constant 0.0 : f32
  %p = "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<?x16xf32>, 2 : i64>
    %sums = "kitsune.queue"() {sym_name = "sums"} : () -> !kitsune.ring<tensor<16xf32>, 2 : i64>
    "kitsune.stage"() ({
      %t = "kitsune.load"(%x) : (tensor<?x8xf32>) -> tensor<?x8xf32>
      %c0 = arith.constant 0 : index
      %rows = tensor.dim %t, %c0 : tensor<?x8xf32>
      %e = tensor.empty(%rows) : tensor<?x16xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
      %h = linalg.matmul ins(%t, %w : tensor<?x8xf32>, tensor<8x16xf32>) outs(%f : tensor<?x16xf32>) -> tensor<?x16xf32>
      "kitsune.put"(%q, %h) : (!kitsune.ring<tensor<?x16xf32>, 2 : i64>, tensor<?x16xf32>) -> ()
    }) {kind = "tensor", sym_name = "up"} : () -> ()
    "kitsune.stage"() ({
      %h = "kitsune.get"(%q) : (!kitsune.ring<tensor<?x16xf32>, 2 : i64>) -> tensor<?x16xf32>
      %e = tensor.empty() : tensor<16xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<16xf32>) -> tensor<16xf32>
      %s = linalg.generic {indexing_maps = [#id, #column], iterator_types = ["reduction", "parallel"]}
          ins(%h : tensor<?x16xf32>) outs(%f : tensor<16xf32>) {
      ^bb0(%v: f32, %sum: f32):
        %n = arith.addf %v, %sum : f32
        linalg.yield %n : f32
      } -> tensor<16xf32>
      "kitsune.accumulate"(%sums, %s) : (!kitsune.ring<tensor<16xf32>, 2 : i64>, tensor<16xf32>) -> ()
    }) {kind = "simt", sym_name = "terms"} : () -> ()
    "kitsune.stage"() ({
      %total = "kitsune.reduce"(%sums) : (!kitsune.ring<tensor<16xf32>, 2 : i64>) -> tensor<16xf32>
      "kitsune.store"(%total) {index = 0 : i64} : (tensor<16xf32>) -> ()
    }) {kind = "simt", sym_name = "total"} : () -> ()
  }) {sym_name = "net"} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<16xf32>
  return %r : tensor<16xf32>
}
