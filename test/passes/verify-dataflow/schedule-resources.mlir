// RUN: kitsune-opt %s --verify-dataflow --split-input-file --verify-diagnostics

// 7 slots of 8,192 bytes; 384 threads of 168 registers.

!r = !kitsune.ring<tensor<64x64xbf16>, 7 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @fine(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !r
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      %s = "kitsune.acquire"(%x) : (!r) -> !s
      %d = "kitsune.copy"(%s, %A, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<64x64xbf16>, index, index) -> !t
      "kitsune.commit"(%s, %d) : (!s, !t) -> ()
    }) {copies = 1, registers = 24, sym_name = "load", warps = 4} : () -> ()
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      %s = "kitsune.wait"(%x) : (!r) -> !s
      "kitsune.release"(%s) : (!s) -> ()
    }) {copies = 2, registers = 240, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// A launch gives all threads equally many registers; agents share those out among themselves.

!r = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @registers(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  // expected-error @below {{'kitsune.kernel' op wants 66560 registers in a CTA ('load' 5120, 'math' 61440), but its 384 threads are given 64512}}
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !r
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      %s = "kitsune.acquire"(%x) : (!r) -> !s
      %d = "kitsune.copy"(%s, %A, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<64x64xbf16>, index, index) -> !t
      "kitsune.commit"(%s, %d) : (!s, !t) -> ()
    }) {copies = 1, registers = 40, sym_name = "load", warps = 4} : () -> ()
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      %s = "kitsune.wait"(%x) : (!r) -> !s
      "kitsune.release"(%s) : (!s) -> ()
    }) {copies = 2, registers = 240, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// A CTA has 1,024 threads.

!r = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @threads(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  // expected-error @below {{'kitsune.kernel' op has 1152 threads in a CTA, whose most are 1024}}
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !r
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      %s = "kitsune.acquire"(%x) : (!r) -> !s
      %d = "kitsune.copy"(%s, %A, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<64x64xbf16>, index, index) -> !t
      "kitsune.commit"(%s, %d) : (!s, !t) -> ()
    }) {copies = 1, registers = 40, sym_name = "load", warps = 4} : () -> ()
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      %s = "kitsune.wait"(%x) : (!r) -> !s
      "kitsune.release"(%s) : (!s) -> ()
    }) {copies = 8, registers = 40, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// Rings fit shared memory.

!r = !kitsune.ring<tensor<64x64xbf16>, 29 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @shared(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    // expected-error @below {{'kitsune.alloc_ring' op has rings of 238032 bytes in shared memory, the largest being 'x', but sm_90a has 232448 a CTA; use fewer slots or smaller tiles}}
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !r
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      %s = "kitsune.acquire"(%x) : (!r) -> !s
      %d = "kitsune.copy"(%s, %A, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<64x64xbf16>, index, index) -> !t
      "kitsune.commit"(%s, %d) : (!s, !t) -> ()
    }) {copies = 1, registers = 40, sym_name = "load", warps = 4} : () -> ()
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      %s = "kitsune.wait"(%x) : (!r) -> !s
      "kitsune.release"(%s) : (!s) -> ()
    }) {copies = 1, registers = 40, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// An SM is to hold several CTAs.

func.func @registers_of_all_ctas(%m: index) {
  // expected-error @below {{'kitsune.kernel' op wants 16384 registers in a CTA ('a' 16384), but its 256 threads are given 12288 where an SM holds 5 CTAs}}
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 8>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
    }) {copies = 8, lanes = 32, registers = 64, sym_name = "a", vector = 4, warps = 1} : () -> ()
  }) {ctas = 5, sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// Warps that multiply by themselves do not hand registers on: each agent's threads have what a launch gives them.

!r = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @equal_registers(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !r
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      %s = "kitsune.acquire"(%x) : (!r) -> !s
      %d = "kitsune.copy"(%s, %A, %c0, %c0) {dims = array<i64: 0, 1>, engine = "cp_async"} : (!s, tensor<64x64xbf16>, index, index) -> !t
      "kitsune.commit"(%s, %d) : (!s, !t) -> ()
    }) {copies = 1, registers = 40, sym_name = "load", warps = 4} : () -> ()
    // expected-error @below {{'kitsune.agent' op 'math' wants 232 registers of a thread, but the 384 threads of a CTA are given 168 each, and sm_80 hands none on}}
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      %s = "kitsune.wait"(%x) : (!r) -> !s
      "kitsune.release"(%s) : (!s) -> ()
    }) {copies = 2, registers = 232, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "k", target = "sm_80"} : () -> !kitsune.outputs
  return
}
