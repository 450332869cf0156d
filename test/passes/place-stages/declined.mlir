// RUN: kitsune-opt %s --place-stages=target=sm_80 --verify-diagnostics --split-input-file | filecheck %s

// A pipeline without a kernel form becomes the linalg it was made from, on all rows.

#id = affine_map<(i, j) -> (i, j)>
#column = affine_map<(i, j) -> (j)>

// CHECK-LABEL: func.func @sum
// CHECK-SAME: (%[[X:.+]]: tensor<?x8xf32>, %[[W:.+]]: tensor<8x16xf32>) -> tensor<16xf32>
// CHECK: %[[ROWS:.+]] = tensor.dim %[[X]]
// CHECK: tensor.empty(%[[ROWS]]) : tensor<?x16xf32>
// CHECK: %[[H:.+]] = linalg.matmul ins(%[[X]], %[[W]] : tensor<?x8xf32>, tensor<8x16xf32>)
// CHECK: %[[S:.+]] = linalg.generic {{.*}} iterator_types = ["reduction", "parallel"]} ins(%[[H]] : tensor<?x16xf32>)
// CHECK-NEXT: ^bb0
// CHECK-NOT: kitsune
// CHECK: return %[[S]]
func.func @sum(%x: tensor<?x8xf32>, %w: tensor<8x16xf32>) -> tensor<16xf32> {
  %zero = arith.constant 0.0 : f32
  // expected-remark @below {{pipeline 'net' runs bulk-synchronously: sums over the rows have no kernel on sm_80}}
  %p = "kitsune.pipeline"() ({
    %sums = "kitsune.queue"() {sym_name = "sums"} : () -> !kitsune.ring<tensor<16xf32>, 2 : i64>
    %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<?x16xf32>, 2 : i64>
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

// -----

// Only what has no kernel form is declined: f64 products are, the pipeline beside them is not.

// CHECK-LABEL: func.func @precision
// CHECK: "kitsune.pipeline"
// CHECK: shape = "chained", sym_name = "single"
// CHECK: linalg.matmul {{.*}}tensor<64x8xf64>
// CHECK-NOT: "kitsune.pipeline
func.func @precision(%x: tensor<64x8xf32>, %w: tensor<16x8xf32>, %xd: tensor<64x8xf64>, %wd: tensor<8x16xf64>) -> (tensor<64x16xf32>, tensor<64x16xf64>) {
  %zero = arith.constant 0.0 : f32
  %zerod = arith.constant 0.0 : f64
  %p = "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %t = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
      %c0 = arith.constant 0 : index
      %rows = tensor.dim %t, %c0 : tensor<?x8xf32>
      %e = tensor.empty(%rows) : tensor<?x16xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
      %h = linalg.matmul indexing_maps = [affine_map<(m,n,k)->(m,k)>, affine_map<(m,n,k)->(n,k)>, affine_map<(m,n,k)->(m,n)>] ins(%t, %w : tensor<?x8xf32>, tensor<16x8xf32>) outs(%f : tensor<?x16xf32>) -> tensor<?x16xf32>
      "kitsune.store"(%h) {index = 0 : i64} : (tensor<?x16xf32>) -> ()
    }) {kind = "tensor", sym_name = "up"} : () -> ()
  }) {sym_name = "single"} : () -> !kitsune.outputs
  %y = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<64x16xf32>
  // expected-remark @below {{pipeline 'double' runs bulk-synchronously: products of f64 with f64 into f64 are not chained by warpgroups}}
  %d = "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %t = "kitsune.load"(%xd) : (tensor<64x8xf64>) -> tensor<?x8xf64>
      %c0 = arith.constant 0 : index
      %rows = tensor.dim %t, %c0 : tensor<?x8xf64>
      %e = tensor.empty(%rows) : tensor<?x16xf64>
      %f = linalg.fill ins(%zerod : f64) outs(%e : tensor<?x16xf64>) -> tensor<?x16xf64>
      %h = linalg.matmul ins(%t, %wd : tensor<?x8xf64>, tensor<8x16xf64>) outs(%f : tensor<?x16xf64>) -> tensor<?x16xf64>
      "kitsune.store"(%h) {index = 0 : i64} : (tensor<?x16xf64>) -> ()
    }) {kind = "tensor", sym_name = "up"} : () -> ()
  }) {sym_name = "double"} : () -> !kitsune.outputs
  %z = "kitsune.result"(%d) {index = 0 : i64} : (!kitsune.outputs) -> tensor<64x16xf64>
  return %y, %z : tensor<64x16xf32>, tensor<64x16xf64>
}
