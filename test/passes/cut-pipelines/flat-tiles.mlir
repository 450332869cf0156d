// RUN: kitsune-opt %s --cut-pipelines="target=sm_90a whole=true" | filecheck %s
// RUN: kitsune-opt %s --cut-pipelines="target=sm_80 whole=true" | filecheck %s --check-prefix=OTHERS
// RUN: kitsune-opt %s --cut-pipelines="target=sm_90a whole=true" --place-stages=target=sm_90a --schedule-chains --verify-dataflow | filecheck %s --check-prefix=KERNEL

// Rows of heads are loaded, handed on and stored as rows of columns; a mean over the heads takes them as they are.

// CHECK-LABEL: func.func @heads(
// CHECK-SAME: %[[X:.+]]: tensor<?x4x64xbf16>, %[[S:.+]]: tensor<4x64xbf16>
// CHECK-DAG: %[[FX:.+]] = tensor.collapse_shape %[[X]] {{\[\[0\], \[1, 2\]\]}} : tensor<?x4x64xbf16> into tensor<?x256xbf16>
// CHECK-DAG: %[[FS:.+]] = tensor.collapse_shape %[[S]] {{\[\[0, 1\]\]}} : tensor<4x64xbf16> into tensor<256xbf16>
// CHECK: %[[P:.+]] = "kitsune.pipeline"() ({
// CHECK-NEXT: %[[Q:.+]] = "kitsune.queue"() {sym_name = "q0"} : () -> !kitsune.ring<tensor<?x256xbf16>, 2 : i64>
// CHECK: %[[T:.+]] = "kitsune.load"(%[[FX]]) : (tensor<?x256xbf16>) -> tensor<?x256xbf16>
// CHECK: %[[G:.+]] = linalg.generic {indexing_maps = [#[[ID:.+]], #[[COLUMNS:.+]], #[[ID]]], iterator_types = ["parallel", "parallel"]} ins(%[[T]], %[[FS]] :
// CHECK: linalg.matmul {{.*}} ins(%[[G]],
// CHECK: "kitsune.put"(%[[Q]], %[[G]])
// CHECK: %[[GOT:.+]] = "kitsune.get"(%[[Q]]) : (!kitsune.ring<tensor<?x256xbf16>, 2 : i64>) -> tensor<?x256xbf16>
// CHECK: "kitsune.store"(%[[GOT]]) {index = 1 : i64} : (tensor<?x256xbf16>) -> ()
// CHECK: %[[R:.+]] = "kitsune.result"(%[[P]]) {index = 1 : i64} : (!kitsune.outputs) -> tensor<?x256xbf16>
// CHECK: %[[E:.+]] = tensor.expand_shape %[[R]] {{\[\[0\], \[1, 2\]\]}} output_shape [%{{.+}}, 4, 64]
// CHECK: return %{{.+}}, %[[E]]

// OTHERS-COUNT-1: "kitsune.load"(%{{.+}}) : (tensor<?x4x64xbf16>) -> tensor<?x4x64xbf16>

// KERNEL-LABEL: func.func @heads(
// KERNEL: kitsune.kernel
// KERNEL-NOT: kitsune.pipeline
// KERNEL-LABEL: func.func @mean(

#id = affine_map<(i, j) -> (i, j)>
#deep = affine_map<(i, j, k) -> (i, j, k)>
#image = affine_map<(n, c, y, x) -> (n, c, y, x)>
#head = affine_map<(i, j, k) -> (j, k)>
#a = affine_map<(i, j, k) -> (i, k)>
#b = affine_map<(i, j, k) -> (j, k)>
#c = affine_map<(i, j, k) -> (i, j)>
func.func @heads(%x: tensor<?x4x64xbf16>, %s: tensor<4x64xbf16>, %w0: tensor<64x256xbf16>, %w1: tensor<8x64xbf16>)
    -> (tensor<?x8xf32>, tensor<?x4x64xbf16>) {
  %zero = arith.constant 0.0 : f32
  %p = "kitsune.pipeline"() ({
    %q0 = "kitsune.queue"() {sym_name = "q0"} : () -> !kitsune.ring<tensor<?x4x64xbf16>, 2 : i64>
    %q1 = "kitsune.queue"() {sym_name = "q1"} : () -> !kitsune.ring<tensor<?x64xbf16>, 2 : i64>
    "kitsune.stage"() ({
      %t = "kitsune.load"(%x) : (tensor<?x4x64xbf16>) -> tensor<?x4x64xbf16>
      %d = arith.constant 0 : index
      %n = tensor.dim %t, %d : tensor<?x4x64xbf16>
      %e0 = tensor.empty(%n) : tensor<?x4x64xbf16>
      %g = linalg.generic {indexing_maps = [#deep, #head, #deep], iterator_types = ["parallel", "parallel", "parallel"]}
          ins(%t, %s : tensor<?x4x64xbf16>, tensor<4x64xbf16>) outs(%e0 : tensor<?x4x64xbf16>) {
      ^bb0(%v: bf16, %u: bf16, %o: bf16):
        %m = arith.mulf %v, %u : bf16
        linalg.yield %m : bf16
      } -> tensor<?x4x64xbf16>
      %flat = tensor.collapse_shape %g [[0], [1, 2]] : tensor<?x4x64xbf16> into tensor<?x256xbf16>
      %e = tensor.empty(%n) : tensor<?x64xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x64xf32>) -> tensor<?x64xf32>
      %h = linalg.matmul indexing_maps = [#a, #b, #c] ins(%flat, %w0 : tensor<?x256xbf16>, tensor<64x256xbf16>)
          outs(%f : tensor<?x64xf32>) -> tensor<?x64xf32>
      %eb = tensor.empty(%n) : tensor<?x64xbf16>
      %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%h : tensor<?x64xf32>) outs(%eb : tensor<?x64xbf16>) {
      ^bb0(%v: f32, %o: bf16):
        %m = arith.maximumf %v, %zero : f32
        %c = arith.truncf %m : f32 to bf16
        linalg.yield %c : bf16
      } -> tensor<?x64xbf16>
      "kitsune.put"(%q0, %g) : (!kitsune.ring<tensor<?x4x64xbf16>, 2 : i64>, tensor<?x4x64xbf16>) -> ()
      "kitsune.put"(%q1, %r) : (!kitsune.ring<tensor<?x64xbf16>, 2 : i64>, tensor<?x64xbf16>) -> ()
    }) {kind = "tensor", sym_name = "s0"} : () -> ()
    "kitsune.stage"() ({
      %g = "kitsune.get"(%q0) : (!kitsune.ring<tensor<?x4x64xbf16>, 2 : i64>) -> tensor<?x4x64xbf16>
      %t = "kitsune.get"(%q1) : (!kitsune.ring<tensor<?x64xbf16>, 2 : i64>) -> tensor<?x64xbf16>
      %d = arith.constant 0 : index
      %n = tensor.dim %t, %d : tensor<?x64xbf16>
      %e = tensor.empty(%n) : tensor<?x8xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x8xf32>) -> tensor<?x8xf32>
      %h = linalg.matmul indexing_maps = [#a, #b, #c] ins(%t, %w1 : tensor<?x64xbf16>, tensor<8x64xbf16>)
          outs(%f : tensor<?x8xf32>) -> tensor<?x8xf32>
      "kitsune.store"(%h) {index = 0 : i64} : (tensor<?x8xf32>) -> ()
      "kitsune.store"(%g) {index = 1 : i64} : (tensor<?x4x64xbf16>) -> ()
    }) {kind = "tensor", sym_name = "s1"} : () -> ()
  }) {sym_name = "net"} : () -> !kitsune.outputs
  %y = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x8xf32>
  %g = "kitsune.result"(%p) {index = 1 : i64} : (!kitsune.outputs) -> tensor<?x4x64xbf16>
  return %y, %g : tensor<?x8xf32>, tensor<?x4x64xbf16>
}

// A product of what is the mean over the heads: these stay apart, and the tile that nobody takes flat is loaded so.

// CHECK-LABEL: func.func @mean(
// CHECK: "kitsune.load"(%{{.+}}) : (tensor<?x4x64xbf16>) -> tensor<?x4x64xbf16>
// CHECK: linalg.generic {{.*}} ["parallel", "reduction", "parallel"]
func.func @mean(%x: tensor<?x4x64xbf16>, %w0: tensor<64x64xf32>, %w1: tensor<64x64xf32>) -> tensor<?x64xf32> {
  %zero = arith.constant 0.0 : f32
  %p = "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %t = "kitsune.load"(%x) : (tensor<?x4x64xbf16>) -> tensor<?x4x64xbf16>
      %d = arith.constant 0 : index
      %n = tensor.dim %t, %d : tensor<?x4x64xbf16>
      %e = tensor.empty(%n) : tensor<?x64xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x64xf32>) -> tensor<?x64xf32>
      %m = linalg.generic {indexing_maps = [#deep, affine_map<(i, j, k) -> (i, k)>], iterator_types = ["parallel", "reduction", "parallel"]}
          ins(%t : tensor<?x4x64xbf16>) outs(%f : tensor<?x64xf32>) {
      ^bb0(%v: bf16, %o: f32):
        %c = arith.extf %v : bf16 to f32
        %a = arith.addf %c, %o : f32
        linalg.yield %a : f32
      } -> tensor<?x64xf32>
      %h = linalg.matmul indexing_maps = [#a, #b, #c] ins(%m, %w0 : tensor<?x64xf32>, tensor<64x64xf32>)
          outs(%f : tensor<?x64xf32>) -> tensor<?x64xf32>
      %y = linalg.matmul indexing_maps = [#a, #b, #c] ins(%h, %w1 : tensor<?x64xf32>, tensor<64x64xf32>)
          outs(%f : tensor<?x64xf32>) -> tensor<?x64xf32>
      "kitsune.store"(%y) {index = 0 : i64} : (tensor<?x64xf32>) -> ()
    }) {kind = "tensor", sym_name = "s0"} : () -> ()
  }) {sym_name = "net"} : () -> !kitsune.outputs
  %y = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}

// Whole images are rows of no tile.

// CHECK-LABEL: func.func @images(
// CHECK: "kitsune.load"(%{{.+}}) : (tensor<?x32x64x64xbf16>) -> tensor<?x32x64x64xbf16>

func.func @images(%x: tensor<?x32x64x64xbf16>) -> tensor<?x32x64x64xbf16> {
  %p = "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %t = "kitsune.load"(%x) : (tensor<?x32x64x64xbf16>) -> tensor<?x32x64x64xbf16>
      %d = arith.constant 0 : index
      %n = tensor.dim %t, %d : tensor<?x32x64x64xbf16>
      %e = tensor.empty(%n) : tensor<?x32x64x64xbf16>
      %g = linalg.generic {indexing_maps = [#image, #image], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
          ins(%t : tensor<?x32x64x64xbf16>) outs(%e : tensor<?x32x64x64xbf16>) {
      ^bb0(%v: bf16, %o: bf16):
        %m = arith.mulf %v, %v : bf16
        linalg.yield %m : bf16
      } -> tensor<?x32x64x64xbf16>
      "kitsune.store"(%g) {index = 0 : i64} : (tensor<?x32x64x64xbf16>) -> ()
    }) {kind = "simt", sym_name = "s0"} : () -> ()
  }) {sym_name = "net"} : () -> !kitsune.outputs
  %y = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x32x64x64xbf16>
  return %y : tensor<?x32x64x64xbf16>
}
