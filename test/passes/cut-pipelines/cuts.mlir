// RUN: kitsune-opt %s --cut-pipelines="target=sm_90a stages=true" --split-input-file | filecheck %s
// RUN: kitsune-opt %s --cut-pipelines --split-input-file | filecheck %s --check-prefix=CPU
// RUN: kitsune-opt %s --cut-pipelines="target=sm_90a stages=true" --place-stages=target=sm_90a --verify-dataflow --split-input-file | filecheck %s --check-prefix=PLACED

// 2048 columns of a product are more than a warpgroup keeps: layer by layer they chain. The hidden tile, which the
// third stage and an output want too, is stored once.

// CHECK-LABEL: func.func @wide(
// CHECK: %[[P0:.+]] = "kitsune.pipeline"() ({
// CHECK-NOT: kitsune.queue
// CHECK: %[[H:.+]] = linalg.matmul {{.*}} ins(%{{.+}}, %arg1
// CHECK: %[[A:.+]] = linalg.generic
// CHECK: "kitsune.store"(%[[A]]) {index = 0 : i64}
// CHECK-NOT: kitsune.store
// CHECK: }) {kind = "tensor", sym_name = "s0"}
// CHECK: }) {sym_name = "net_part0"} : () -> !kitsune.outputs
// CHECK: %[[H0:.+]] = "kitsune.result"(%[[P0]]) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x2048xbf16>
// CHECK-NOT: kitsune.result
// CHECK: %[[P1:.+]] = "kitsune.pipeline"() ({
// CHECK: "kitsune.load"(%[[H0]]) : (tensor<?x2048xbf16>) -> tensor<?x2048xbf16>
// CHECK: linalg.matmul {{.*}} ins(%{{.+}}, %arg2
// CHECK: "kitsune.store"(%{{.+}}) {index = 0 : i64}
// CHECK: }) {sym_name = "net_part1"}
// CHECK: %[[H1:.+]] = "kitsune.result"(%[[P1]]) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x2048xbf16>
// CHECK: %[[P2:.+]] = "kitsune.pipeline"() ({
// CHECK-DAG: "kitsune.load"(%[[H1]])
// CHECK-DAG: "kitsune.load"(%[[H0]])
// CHECK: }) {sym_name = "net_part2"}
// CHECK: %[[Y:.+]] = "kitsune.result"(%[[P2]]) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x2048xbf16>
// CHECK: return %[[H0]], %[[Y]]

// PLACED-COUNT-3: shape = "chained"

// CPU: "kitsune.queue"() {sym_name = "q0"}
// CPU: "kitsune.put"
// CPU: {sym_name = "net"}
// CPU-NOT: _part

#id = affine_map<(i, j) -> (i, j)>
#a = affine_map<(i, j, k) -> (i, k)>
#b = affine_map<(i, j, k) -> (j, k)>
#c = affine_map<(i, j, k) -> (i, j)>
func.func @wide(%x: tensor<?x2048xbf16>, %w0: tensor<2048x2048xbf16>, %w1: tensor<2048x2048xbf16>, %w2: tensor<2048x2048xbf16>)
    -> (tensor<?x2048xbf16>, tensor<?x2048xbf16>) {
  %zero = arith.constant 0.0 : f32
  %p = "kitsune.pipeline"() ({
    %q0 = "kitsune.queue"() {sym_name = "q0"} : () -> !kitsune.ring<tensor<?x2048xbf16>, 2 : i64>
    "kitsune.stage"() ({
      %t = "kitsune.load"(%x) : (tensor<?x2048xbf16>) -> tensor<?x2048xbf16>
      %d = arith.constant 0 : index
      %n = tensor.dim %t, %d : tensor<?x2048xbf16>
      %e = tensor.empty(%n) : tensor<?x2048xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x2048xf32>) -> tensor<?x2048xf32>
      %h = linalg.matmul indexing_maps = [#a, #b, #c] ins(%t, %w0 : tensor<?x2048xbf16>, tensor<2048x2048xbf16>)
          outs(%f : tensor<?x2048xf32>) -> tensor<?x2048xf32>
      %eb = tensor.empty(%n) : tensor<?x2048xbf16>
      %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%h : tensor<?x2048xf32>) outs(%eb : tensor<?x2048xbf16>) {
      ^bb0(%v: f32, %o: bf16):
        %m = arith.maximumf %v, %zero : f32
        %s = arith.truncf %m : f32 to bf16
        linalg.yield %s : bf16
      } -> tensor<?x2048xbf16>
      "kitsune.put"(%q0, %r) : (!kitsune.ring<tensor<?x2048xbf16>, 2 : i64>, tensor<?x2048xbf16>) -> ()
      "kitsune.store"(%r) {index = 1 : i64} : (tensor<?x2048xbf16>) -> ()
    }) {kind = "tensor", sym_name = "s0"} : () -> ()
    %q1 = "kitsune.queue"() {sym_name = "q1"} : () -> !kitsune.ring<tensor<?x2048xbf16>, 2 : i64>
    "kitsune.stage"() ({
      %t = "kitsune.get"(%q0) : (!kitsune.ring<tensor<?x2048xbf16>, 2 : i64>) -> tensor<?x2048xbf16>
      %d = arith.constant 0 : index
      %n = tensor.dim %t, %d : tensor<?x2048xbf16>
      %e = tensor.empty(%n) : tensor<?x2048xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x2048xf32>) -> tensor<?x2048xf32>
      %h = linalg.matmul indexing_maps = [#a, #b, #c] ins(%t, %w1 : tensor<?x2048xbf16>, tensor<2048x2048xbf16>)
          outs(%f : tensor<?x2048xf32>) -> tensor<?x2048xf32>
      %eb = tensor.empty(%n) : tensor<?x2048xbf16>
      %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%h : tensor<?x2048xf32>) outs(%eb : tensor<?x2048xbf16>) {
      ^bb0(%v: f32, %o: bf16):
        %s = arith.truncf %v : f32 to bf16
        linalg.yield %s : bf16
      } -> tensor<?x2048xbf16>
      "kitsune.put"(%q1, %r) : (!kitsune.ring<tensor<?x2048xbf16>, 2 : i64>, tensor<?x2048xbf16>) -> ()
    }) {kind = "tensor", sym_name = "s1"} : () -> ()
    "kitsune.stage"() ({
      %t = "kitsune.get"(%q1) : (!kitsune.ring<tensor<?x2048xbf16>, 2 : i64>) -> tensor<?x2048xbf16>
      %u = "kitsune.get"(%q0) : (!kitsune.ring<tensor<?x2048xbf16>, 2 : i64>) -> tensor<?x2048xbf16>
      %d = arith.constant 0 : index
      %n = tensor.dim %t, %d : tensor<?x2048xbf16>
      %e = tensor.empty(%n) : tensor<?x2048xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x2048xf32>) -> tensor<?x2048xf32>
      %h = linalg.matmul indexing_maps = [#a, #b, #c] ins(%t, %w2 : tensor<?x2048xbf16>, tensor<2048x2048xbf16>)
          outs(%f : tensor<?x2048xf32>) -> tensor<?x2048xf32>
      %eb = tensor.empty(%n) : tensor<?x2048xbf16>
      %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%h, %u : tensor<?x2048xf32>, tensor<?x2048xbf16>) outs(%eb : tensor<?x2048xbf16>) {
      ^bb0(%v: f32, %skip: bf16, %o: bf16):
        %w = arith.extf %skip : bf16 to f32
        %m = arith.addf %v, %w : f32
        %s = arith.truncf %m : f32 to bf16
        linalg.yield %s : bf16
      } -> tensor<?x2048xbf16>
      "kitsune.store"(%r) {index = 0 : i64} : (tensor<?x2048xbf16>) -> ()
    }) {kind = "tensor", sym_name = "s2"} : () -> ()
  }) {sym_name = "net"} : () -> !kitsune.outputs
  %y = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x2048xbf16>
  %g = "kitsune.result"(%p) {index = 1 : i64} : (!kitsune.outputs) -> tensor<?x2048xbf16>
  return %g, %y : tensor<?x2048xbf16>, tensor<?x2048xbf16>
}
