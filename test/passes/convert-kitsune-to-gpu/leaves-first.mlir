// RUN: kitsune-opt %s --convert-kitsune-to-gpu | filecheck %s

// A kernel becomes a function of gpu and nvvm. A tile leaves by the copy engine before any sums are settled: threads find
// there where they stand in it.

// CHECK:       func.func private @k(tensor<256x32xf32>) -> tensor<256x32xf32>
// CHECK:       gpu.module @k_kernel
// CHECK:         st.shared.v2.f32
// CHECK:         cp.async.bulk.tensor.2d.global.shared
// CHECK:       func.func @main
// CHECK:         call @k
func.func @main(%x: tensor<256x32xf32>) -> tensor<256x32xf32> {
  %m = arith.constant 256 : index
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
    }) {copies = 1, registers = 248, sym_name = "feed", warps = 4} : () -> ()
    "kitsune.agent"() ({
    ^bb0(%c: index):
      scf.for %i = %lo to %hi step %st {
        %c64 = arith.constant 64 : index
        %c0 = arith.constant 0 : index
        %row = arith.muli %i, %c64 : index
        %t = "kitsune.read"(%x, %row, %c0) {dims = array<i64: 0, 1>} : (tensor<256x32xf32>, index, index) -> tensor<64x32xf32>
        "kitsune.write"(%t, %row, %c0) {dims = array<i64: 0, 1>, engine = "tma", index = 0} : (tensor<64x32xf32>, index, index) -> ()
      }
    }) {copies = 1, registers = 248, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  %y = "kitsune.result"(%p) {index = 0} : (!kitsune.outputs) -> tensor<256x32xf32>
  return %y : tensor<256x32xf32>
}
