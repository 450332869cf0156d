// Upstream passes merge and erase what is pure and leave what carries a queue's state.
// RUN: kitsune-opt %s --cse --canonicalize --remove-dead-values --verify-roundtrip | filecheck %s
// RUN: kitsune-opt %s --cse | filecheck %s
// RUN: kitsune-opt %s --loop-invariant-code-motion --control-flow-sink --cse --symbol-dce | filecheck %s

// CHECK-LABEL: func.func @merged
func.func @merged(%x: tensor<64x8xf32>) -> (tensor<64x8xf32>, tensor<64x8xf32>) {
  // CHECK: "kitsune.stage"
  // CHECK-NEXT: %[[TILE:.*]] = "kitsune.load"
  // CHECK-NEXT: %[[SUM:.*]] = arith.addf %[[TILE]], %[[TILE]]
  // CHECK-NEXT: "kitsune.store"(%[[SUM]])
  // CHECK-NEXT: }) {kind = "simt"
  %p = "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %a = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
      %b = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
      %sum = arith.addf %a, %b : tensor<?x8xf32>
      "kitsune.store"(%sum) {index = 0 : i64} : (tensor<?x8xf32>) -> ()
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  // CHECK: %[[Y:.*]] = "kitsune.result"
  // CHECK-NEXT: return %[[Y]], %[[Y]]
  %y = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<64x8xf32>
  %z = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<64x8xf32>
  return %y, %z : tensor<64x8xf32>, tensor<64x8xf32>
}

// Loads of two stages are two tiles, and results of two outputs two tensors.
// CHECK-LABEL: func.func @kept_apart
func.func @kept_apart(%x: tensor<64x8xf32>) -> (tensor<64x8xf32>, tensor<64x8xf32>) {
  // CHECK-COUNT-2: "kitsune.load"
  %p = "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %a = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
      "kitsune.store"(%a) {index = 0 : i64} : (tensor<?x8xf32>) -> ()
    }) {kind = "simt", sym_name = "s"} : () -> ()
    "kitsune.stage"() ({
      %b = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
      "kitsune.store"(%b) {index = 1 : i64} : (tensor<?x8xf32>) -> ()
    }) {kind = "simt", sym_name = "t"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  // CHECK: %[[Y:.*]] = "kitsune.result"(%{{.*}}) {index = 0 : i64}
  // CHECK-NEXT: %[[Z:.*]] = "kitsune.result"(%{{.*}}) {index = 1 : i64}
  // CHECK-NEXT: return %[[Y]], %[[Z]]
  %y = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<64x8xf32>
  %z = "kitsune.result"(%p) {index = 1 : i64} : (!kitsune.outputs) -> tensor<64x8xf32>
  return %y, %z : tensor<64x8xf32>, tensor<64x8xf32>
}

// A load nobody uses goes; a get nobody uses frees a slot, so it stays, and the queues with it.
// CHECK-LABEL: func.func @kept
func.func @kept(%x: tensor<64x8xf32>, %w: tensor<8xf32>) {
  // CHECK-COUNT-2: "kitsune.queue"
  // CHECK: "kitsune.stage"
  // CHECK-NEXT: "kitsune.load"
  // CHECK-NEXT: "kitsune.put"
  // CHECK-NEXT: "kitsune.accumulate"
  // CHECK-NEXT: }) {kind
  // CHECK-NEXT: "kitsune.stage"
  // CHECK-NEXT: "kitsune.get"
  // CHECK-NEXT: }) {kind
  // CHECK-NEXT: "kitsune.stage"
  // CHECK-NEXT: "kitsune.reduce"
  // CHECK-NEXT: }) {kind
  "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<?x8xf32>, 2 : i64>
    %r = "kitsune.queue"() {sym_name = "r"} : () -> !kitsune.ring<tensor<8xf32>, 2 : i64>
    "kitsune.stage"() ({
      %a = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
      %unused = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<16x8xf32>
      "kitsune.put"(%q, %a) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>, tensor<?x8xf32>) -> ()
      "kitsune.accumulate"(%r, %w) : (!kitsune.ring<tensor<8xf32>, 2 : i64>, tensor<8xf32>) -> ()
    }) {kind = "simt", sym_name = "s"} : () -> ()
    "kitsune.stage"() ({
      %b = "kitsune.get"(%q) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>) -> tensor<?x8xf32>
    }) {kind = "simt", sym_name = "t"} : () -> ()
    "kitsune.stage"() ({
      %c = "kitsune.reduce"(%r) : (!kitsune.ring<tensor<8xf32>, 2 : i64>) -> tensor<8xf32>
    }) {kind = "simt", sym_name = "u"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}
