// RUN: kitsune-opt %s --verify-dataflow

// relu(A B^T + bias), in two warpgroups with a half of a tile's rows each. One slot of each ring goes round the loop over k.
// Python tests run it, and mutants of it, in the interpreter.

!x = !kitsune.ring<tensor<32x16xbf16>, 3 : i64>
!y = !kitsune.ring<tensor<32x16xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<32x16xbf16>>
!a = !kitsune.acc<tensor<16x32xf32>>
!t = !kitsune.token
func.func @f(%A: tensor<?x64xbf16>, %B: tensor<48x64xbf16>, %bias: tensor<48xf32>) -> tensor<?x48xbf16> {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %c32 = arith.constant 32 : index
  %c48 = arith.constant 48 : index
  %c64 = arith.constant 64 : index
  %m = tensor.dim %A, %c0 : tensor<?x64xbf16>
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m, %c48) {tile = array<i64: 32, 32>} : (index, index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "split", space = "smem", sym_name = "left"} : () -> !x
    %y = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "right"} : () -> !y
    "kitsune.agent"() ({
    ^bb0(%c: index):
      scf.for %t = %lo to %hi step %st {
        %i, %j = affine.delinearize_index %t into (2) : index, index
        %row = arith.muli %i, %c32 : index
        %col = arith.muli %j, %c32 : index
        scf.for %k = %c0 to %c64 step %c16 {
          %s = "kitsune.acquire"(%x) : (!x) -> !s
          %d = "kitsune.copy"(%s, %A, %row, %k) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<?x64xbf16>, index, index) -> !t
          "kitsune.commit"(%s, %d) : (!s, !t) -> ()
          %s1 = "kitsune.acquire"(%y) : (!y) -> !s
          %d1 = "kitsune.copy"(%s1, %B, %col, %k) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<48x64xbf16>, index, index) -> !t
          "kitsune.commit"(%s1, %d1) : (!s, !t) -> ()
        }
      }
    }) {copies = 1, registers = 40, sym_name = "load", warps = 4} : () -> ()
    "kitsune.agent"() ({
    ^bb0(%c: index):
      scf.for %t = %lo to %hi step %st {
        %i, %j = affine.delinearize_index %t into (2) : index, index
        %top = arith.muli %i, %c32 : index
        %half = arith.muli %c, %c16 : index
        %row = arith.addi %top, %half : index
        %col = arith.muli %j, %c32 : index
        %z = "kitsune.sums"() : () -> !a
        %a0 = "kitsune.wait"(%x) : (!x) -> !s
        %b0 = "kitsune.wait"(%y) : (!y) -> !s
        %u0, %t0 = "kitsune.product"(%z, %a0, %b0) {engine = "wgmma"} : (!a, !s, !s) -> (!a, !t)
        %r:4 = scf.for %k = %c16 to %c64 step %c16 iter_args(%u = %u0, %pa = %a0, %pb = %b0, %q = %t0) -> (!a, !s, !s, !t) {
          %a = "kitsune.wait"(%x) : (!x) -> !s
          %b = "kitsune.wait"(%y) : (!y) -> !s
          %v, %e = "kitsune.product"(%u, %a, %b) {engine = "wgmma"} : (!a, !s, !s) -> (!a, !t)
          "kitsune.release"(%pa, %q) : (!s, !t) -> ()
          "kitsune.release"(%pb, %q) : (!s, !t) -> ()
          scf.yield %v, %a, %b, %e : !a, !s, !s, !t
        }
        %h = "kitsune.settle"(%r#0) : (!a) -> tensor<16x32xf32>
        "kitsune.release"(%r#1, %r#3) : (!s, !t) -> ()
        "kitsune.release"(%r#2, %r#3) : (!s, !t) -> ()
        %bias_t = "kitsune.read"(%bias, %col) {dims = array<i64: 0>} : (tensor<48xf32>, index) -> tensor<32xf32>
        %e = tensor.empty() : tensor<16x32xbf16>
        %o = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
            ins(%h, %bias_t : tensor<16x32xf32>, tensor<32xf32>) outs(%e : tensor<16x32xbf16>) {
        ^bb0(%sum: f32, %b: f32, %out: bf16):
          %zero = arith.constant 0.0 : f32
          %n = arith.addf %sum, %b : f32
          %w = arith.maximumf %n, %zero : f32
          %g = arith.truncf %w : f32 to bf16
          linalg.yield %g : bf16
        } -> tensor<16x32xbf16>
        "kitsune.write"(%o, %row, %col) {dims = array<i64: 0, 1>, index = 0 : i64} : (tensor<16x32xbf16>, index, index) -> ()
      }
    }) {copies = 2, registers = 232, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "product", target = "sm_90a"} : () -> !kitsune.outputs
  %o = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x48xbf16>
  return %o : tensor<?x48xbf16>
}
