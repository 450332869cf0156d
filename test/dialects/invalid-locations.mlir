// A diagnostic names the line of the model that the operation came from, whoever finds the fault.
// RUN: not kitsune-opt %s --split-input-file 2>&1 | filecheck %s

// The queue's own verifier.
// CHECK: model.py:12:3: error: 'kitsune.queue' op depth must be from 1 to 2147483647, found 0
func.func @own() {
  "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<?x8xf32>, 0 : i64> loc("model.py":12:3)
  }) {sym_name = "p"} : () -> !kitsune.outputs loc("model.py":1:1)
  return
}

// -----

// The pipeline's verifier, of a queue in it.
// CHECK: model.py:13:5: error: 'kitsune.queue' op needs exactly one kitsune.put or kitsune.accumulate, found 0
func.func @of_a_member() {
  "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<?x8xf32>, 1 : i64> loc("model.py":13:5)
  }) {sym_name = "p"} : () -> !kitsune.outputs loc("model.py":1:1)
  return
}

// -----

// The pipeline's verifier, of a result outside it.
// CHECK: model.py:20:7: error: 'kitsune.result' op type tensor<9xf32> is not the stored type tensor<8xf32>
func.func @of_a_user(%x: tensor<8xf32>) {
  %p = "kitsune.pipeline"() ({
    "kitsune.store"(%x) {index = 0 : i64} : (tensor<8xf32>) -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs loc("model.py":1:1)
  %y = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<9xf32> loc("model.py":20:7)
  return
}

// -----

// IRDL's check of the declared attributes.
// CHECK: model.py:30:1: error: 'kitsune.store' op attribute "index" is expected but not provided
func.func @declared(%x: tensor<8xf32>) {
  "kitsune.pipeline"() ({
    "kitsune.store"(%x) : (tensor<8xf32>) -> () loc("model.py":30:1)
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

// A location with a history: the innermost file is named.
// CHECK: layer.py:4:2: error: 'kitsune.store' op stores a ranked tensor, found f32
func.func @called(%x: f32) {
  "kitsune.pipeline"() ({
    "kitsune.store"(%x) {index = 0 : i64} : (f32) -> () loc(callsite("forward"("layer.py":4:2) at "train.py":99:1))
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}
