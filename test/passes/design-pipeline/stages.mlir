// RUN: kitsune-opt %s --design-pipeline --split-input-file | filecheck %s
// RUN: kitsune-opt %s --design-pipeline=fuse=false --split-input-file | filecheck %s --check-prefix=NOFUSE

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (j)>

// Every product starts a stage, what follows it row by row joins it; what reads inputs only stands in front.

// CHECK-LABEL: func.func @epilogues
// CHECK: "kitsune.stage"() ({
// CHECK: "kitsune.load"(%arg0) : (tensor<64x16xf32>) -> tensor<?x16xf32>
// CHECK: arith.negf
// CHECK: "kitsune.put"(%[[Q0:.+]], %{{.+}}) : (!kitsune.ring<tensor<?x16xf32>, 2 : i64>, tensor<?x16xf32>) -> ()
// CHECK: }) {kind = "simt", sym_name = "s0"}
// CHECK: %[[Q1:.+]] = "kitsune.queue"() {sym_name = "q1"} : () -> !kitsune.ring<tensor<?x32xf32>, 2 : i64>
// CHECK: "kitsune.stage"() ({
// CHECK: %[[A:.+]] = "kitsune.get"(%{{.+}}) : (!kitsune.ring<tensor<?x16xf32>, 2 : i64>) -> tensor<?x16xf32>
// CHECK: %[[ROWS:.+]] = tensor.dim %[[A]], %{{.+}}
// CHECK: tensor.empty(%[[ROWS]]) : tensor<?x32xf32>
// CHECK: %[[H:.+]] = linalg.matmul ins(%[[A]], %arg1 : tensor<?x16xf32>, tensor<16x32xf32>)
// CHECK: %[[R:.+]] = linalg.generic {{.*}} ins(%[[H]], %arg3 : tensor<?x32xf32>, tensor<32xf32>)
// CHECK: arith.maximumf
// CHECK: "kitsune.put"(%[[Q1]], %[[R]])
// CHECK: }) {kind = "tensor", sym_name = "s1"}
// CHECK-NOT: kitsune.queue
// CHECK: "kitsune.stage"() ({
// CHECK: %[[B:.+]] = "kitsune.get"(%[[Q1]])
// CHECK: %[[Y:.+]] = linalg.matmul ins(%[[B]], %arg2
// CHECK: "kitsune.store"(%[[Y]]) {index = 0 : i64} : (tensor<?x8xf32>) -> ()
// CHECK: }) {kind = "tensor", sym_name = "s2"}
// CHECK: }) {sym_name = "net"} : () -> !kitsune.outputs

// NOFUSE: {kind = "simt", sym_name = "s0"}
// NOFUSE: {kind = "tensor", sym_name = "s1"}
// NOFUSE: {kind = "simt", sym_name = "s2"}
// NOFUSE: {kind = "tensor", sym_name = "s3"}
func.func @epilogues(%x: tensor<64x16xf32>, %w0: tensor<16x32xf32>, %w1: tensor<32x8xf32>, %b: tensor<32xf32>) -> tensor<64x8xf32> {
  %zero = arith.constant 0.0 : f32
  %p = "kitsune.pipeline"() ({
    %e = tensor.empty() : tensor<64x16xf32>
    %n = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%x : tensor<64x16xf32>) outs(%e : tensor<64x16xf32>) {
    ^bb0(%v: f32, %out: f32):
      %m = arith.negf %v : f32
      linalg.yield %m : f32
    } -> tensor<64x16xf32>
    %e0 = tensor.empty() : tensor<64x32xf32>
    %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<64x32xf32>) -> tensor<64x32xf32>
    %h = linalg.matmul ins(%n, %w0 : tensor<64x16xf32>, tensor<16x32xf32>) outs(%f0 : tensor<64x32xf32>) -> tensor<64x32xf32>
    %a = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
        ins(%h, %b : tensor<64x32xf32>, tensor<32xf32>) outs(%e0 : tensor<64x32xf32>) {
    ^bb0(%v: f32, %c: f32, %out: f32):
      %s = arith.addf %v, %c : f32
      %m = arith.maximumf %s, %zero : f32
      linalg.yield %m : f32
    } -> tensor<64x32xf32>
    %e1 = tensor.empty() : tensor<64x8xf32>
    %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<64x8xf32>) -> tensor<64x8xf32>
    %y = linalg.matmul ins(%a, %w1 : tensor<64x32xf32>, tensor<32x8xf32>) outs(%f1 : tensor<64x8xf32>) -> tensor<64x8xf32>
    "kitsune.store"(%y) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
  }) {sym_name = "net"} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<64x8xf32>
  return %r : tensor<64x8xf32>
}

// -----

// One queue to two consumers, and a skip past the stage between; without fusion the join is a stage of its own.

#id = affine_map<(i, j) -> (i, j)>

// CHECK-LABEL: func.func @skip
// CHECK: %[[Q:.+]] = "kitsune.queue"() {sym_name = "q0"}
// CHECK: "kitsune.put"(%[[Q]]
// CHECK-NOT: "kitsune.put"(%[[Q]]
// CHECK: sym_name = "s0"
// CHECK: %[[Q1:.+]] = "kitsune.queue"() {sym_name = "q1"}
// CHECK: %[[T:.+]] = "kitsune.get"(%[[Q]])
// CHECK: linalg.matmul ins(%[[T]], %arg2
// CHECK: sym_name = "s1"
// CHECK-NOT: kitsune.queue
// CHECK-DAG: %[[L:.+]] = "kitsune.get"(%[[Q1]])
// CHECK-DAG: %[[R:.+]] = "kitsune.get"(%[[Q]])
// CHECK: %[[S:.+]] = linalg.generic {{.*}} ins(%{{.+}}, %[[R]] :
// CHECK: "kitsune.store"(%[[S]])
// CHECK: sym_name = "s2"
// CHECK-NOT: kitsune.stage
// CHECK: sym_name = "net"

// NOFUSE-LABEL: func.func @skip
// NOFUSE: %[[Q:.+]] = "kitsune.queue"() {sym_name = "q0"}
// NOFUSE: {kind = "tensor", sym_name = "s2"}
// NOFUSE: %[[R:.+]] = "kitsune.get"(%[[Q]])
// NOFUSE: arith.addf
// NOFUSE: {kind = "simt", sym_name = "s3"}
func.func @skip(%x: tensor<64x16xf32>, %w0: tensor<16x16xf32>, %w1: tensor<16x16xf32>, %w2: tensor<16x16xf32>) -> tensor<64x16xf32> {
  %zero = arith.constant 0.0 : f32
  %p = "kitsune.pipeline"() ({
    %e = tensor.empty() : tensor<64x16xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x16xf32>) -> tensor<64x16xf32>
    %h = linalg.matmul ins(%x, %w0 : tensor<64x16xf32>, tensor<16x16xf32>) outs(%f : tensor<64x16xf32>) -> tensor<64x16xf32>
    %a = linalg.matmul ins(%h, %w1 : tensor<64x16xf32>, tensor<16x16xf32>) outs(%f : tensor<64x16xf32>) -> tensor<64x16xf32>
    %b = linalg.matmul ins(%a, %w2 : tensor<64x16xf32>, tensor<16x16xf32>) outs(%f : tensor<64x16xf32>) -> tensor<64x16xf32>
    %s = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%b, %h : tensor<64x16xf32>, tensor<64x16xf32>) outs(%e : tensor<64x16xf32>) {
    ^bb0(%l: f32, %r: f32, %out: f32):
      %n = arith.addf %l, %r : f32
      linalg.yield %n : f32
    } -> tensor<64x16xf32>
    "kitsune.store"(%s) {index = 0 : i64} : (tensor<64x16xf32>) -> ()
  }) {sym_name = "net"} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<64x16xf32>
  return %r : tensor<64x16xf32>
}

// -----

// A concatenation goes to the stage that reads it: its parts cross the queue, not the whole.

// CHECK-LABEL: func.func @concatenation
// CHECK: "kitsune.queue"() {sym_name = "q0"} : () -> !kitsune.ring<tensor<?x16xf32>, 2 : i64>
// CHECK-NOT: tensor.concat
// CHECK: sym_name = "s0"
// CHECK-NOT: kitsune.queue
// CHECK-DAG: %[[H:.+]] = "kitsune.get"(%{{.+}}) : (!kitsune.ring<tensor<?x16xf32>, 2 : i64>) -> tensor<?x16xf32>
// CHECK-DAG: %[[X:.+]] = "kitsune.load"(%arg0)
// CHECK: %[[C:.+]] = tensor.concat dim(1) %[[H]], %[[X]] : (tensor<?x16xf32>, tensor<?x8xf32>) -> tensor<?x24xf32>
// CHECK: linalg.matmul ins(%[[C]], %arg2
// CHECK: sym_name = "s1"

// NOFUSE-LABEL: func.func @concatenation
// NOFUSE: tensor.concat
// NOFUSE: "kitsune.put"
// NOFUSE: {kind = "simt", sym_name = "s1"}
func.func @concatenation(%x: tensor<64x8xf32>, %w0: tensor<8x16xf32>, %w1: tensor<24x16xf32>) -> tensor<64x16xf32> {
  %zero = arith.constant 0.0 : f32
  %p = "kitsune.pipeline"() ({
    %e = tensor.empty() : tensor<64x16xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x16xf32>) -> tensor<64x16xf32>
    %h = linalg.matmul ins(%x, %w0 : tensor<64x8xf32>, tensor<8x16xf32>) outs(%f : tensor<64x16xf32>) -> tensor<64x16xf32>
    %c = tensor.concat dim(1) %h, %x : (tensor<64x16xf32>, tensor<64x8xf32>) -> tensor<64x24xf32>
    %y = linalg.matmul ins(%c, %w1 : tensor<64x24xf32>, tensor<24x16xf32>) outs(%f : tensor<64x16xf32>) -> tensor<64x16xf32>
    "kitsune.store"(%y) {index = 0 : i64} : (tensor<64x16xf32>) -> ()
  }) {sym_name = "net"} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<64x16xf32>
  return %r : tensor<64x16xf32>
}

// -----

// A sum over rows is split: terms are accumulated tile by tile, a stage of its own reduces the partial sums.

#id = affine_map<(i, j) -> (i, j)>
#column = affine_map<(i, j) -> (j)>

// CHECK-LABEL: func.func @sum
// CHECK: %[[S:.+]] = "kitsune.queue"() {sym_name = "q1"} : () -> !kitsune.ring<tensor<16xf32>, 2 : i64>
// CHECK: %[[H:.+]] = "kitsune.get"
// CHECK: %[[P:.+]] = linalg.generic {{.*}} iterator_types = ["reduction", "parallel"]} ins(%[[H]] : tensor<?x16xf32>) outs(%{{.+}} : tensor<16xf32>)
// CHECK: "kitsune.accumulate"(%[[S]], %[[P]])
// CHECK: }) {kind = "simt", sym_name = "s1"}
// CHECK: %[[T:.+]] = "kitsune.reduce"(%[[S]]) : (!kitsune.ring<tensor<16xf32>, 2 : i64>) -> tensor<16xf32>
// CHECK-NEXT: "kitsune.store"(%[[T]]) {index = 0 : i64} : (tensor<16xf32>) -> ()
// CHECK: }) {kind = "simt", sym_name = "sum1"}
// CHECK: sym_name = "net"

// NOFUSE-LABEL: func.func @sum
// NOFUSE: kitsune.accumulate
// NOFUSE: kitsune.reduce
func.func @sum(%x: tensor<64x8xf32>, %w0: tensor<8x16xf32>) -> tensor<16xf32> {
  %zero = arith.constant 0.0 : f32
  %p = "kitsune.pipeline"() ({
    %e = tensor.empty() : tensor<64x16xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x16xf32>) -> tensor<64x16xf32>
    %h = linalg.matmul ins(%x, %w0 : tensor<64x8xf32>, tensor<8x16xf32>) outs(%f : tensor<64x16xf32>) -> tensor<64x16xf32>
    %e1 = tensor.empty() : tensor<16xf32>
    %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<16xf32>) -> tensor<16xf32>
    %s = linalg.generic {indexing_maps = [#id, #column], iterator_types = ["reduction", "parallel"]}
        ins(%h : tensor<64x16xf32>) outs(%f1 : tensor<16xf32>) {
    ^bb0(%v: f32, %sum: f32):
      %n = arith.addf %v, %sum : f32
      linalg.yield %n : f32
    } -> tensor<16xf32>
    "kitsune.store"(%s) {index = 0 : i64} : (tensor<16xf32>) -> ()
  }) {sym_name = "net"} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<16xf32>
  return %r : tensor<16xf32>
}
