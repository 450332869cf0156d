// RUN: kitsune-opt %s --verify-dataflow --split-input-file --verify-diagnostics

// Any number of tiles, any number of turns: slots are filled in the order in which they are taken.

!r = !kitsune.ring<tensor<64x64xbf16>, 1 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @fine(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !r
    %y = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "y"} : () -> !r
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      scf.for %i = %lo to %hi step %st {
        %s = "kitsune.acquire"(%x) : (!r) -> !s
        %d = "kitsune.copy"(%s, %A, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<64x64xbf16>, index, index) -> !t
        "kitsune.commit"(%s, %d) : (!s, !t) -> ()
        scf.for %j = %c0 to %m step %c1 {
          %s1 = "kitsune.acquire"(%y) : (!r) -> !s
          %d1 = "kitsune.copy"(%s1, %A, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<64x64xbf16>, index, index) -> !t
          "kitsune.commit"(%s1, %d1) : (!s, !t) -> ()
        }
      }
    }) {copies = 1, registers = 40, sym_name = "load", warps = 4} : () -> ()
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      scf.for %i = %lo to %hi step %st {
        %s = "kitsune.wait"(%x) : (!r) -> !s
        scf.for %j = %c0 to %m step %c1 {
          %s1 = "kitsune.wait"(%y) : (!r) -> !s
          "kitsune.release"(%s1) : (!s) -> ()
        }
        "kitsune.release"(%s) : (!s) -> ()
      }
    }) {copies = 1, registers = 40, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// One agent fills a ring.

!r = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @two_producers(%A: tensor<64x64xbf16>, %m: index) {
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
    }) {copies = 1, registers = 40, sym_name = "load", warps = 4} : () -> ()
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      // expected-error @below {{'kitsune.acquire' op fills slots of ring 'x' in 'more', where 'load' fills them too}}
      %s = "kitsune.acquire"(%x) : (!r) -> !s
      %d = "kitsune.copy"(%s, %A, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<64x64xbf16>, index, index) -> !t
      "kitsune.commit"(%s, %d) : (!s, !t) -> ()
    }) {copies = 1, registers = 40, sym_name = "more", warps = 4} : () -> ()
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      %s = "kitsune.wait"(%x) : (!r) -> !s
      "kitsune.release"(%s) : (!s) -> ()
    }) {copies = 1, registers = 40, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// In one copy.

!r = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @two_copies(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !r
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      // expected-error @below {{'kitsune.acquire' op fills slots of ring 'x' in 2 copies of 'load'; wants one}}
      %s = "kitsune.acquire"(%x) : (!r) -> !s
      %d = "kitsune.copy"(%s, %A, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<64x64xbf16>, index, index) -> !t
      "kitsune.commit"(%s, %d) : (!s, !t) -> ()
    }) {copies = 2, registers = 40, sym_name = "load", warps = 4} : () -> ()
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      %s = "kitsune.wait"(%x) : (!r) -> !s
      "kitsune.release"(%s) : (!s) -> ()
    }) {copies = 1, registers = 40, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// Somebody takes what is filled.

!r = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @nobody(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    // expected-error @below {{'kitsune.alloc_ring' op has ring 'x', of which no agent takes slots}}
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !r
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      %s = "kitsune.acquire"(%x) : (!r) -> !s
      %d = "kitsune.copy"(%s, %A, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<64x64xbf16>, index, index) -> !t
      "kitsune.commit"(%s, %d) : (!s, !t) -> ()
    }) {copies = 1, registers = 40, sym_name = "load", warps = 4} : () -> ()
    "kitsune.agent"() ({
    ^bb0(%copy: index):
    }) {copies = 1, registers = 40, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// As much as is filled.

!r = !kitsune.ring<tensor<64x64xbf16>, 4 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @rates(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    // expected-error @below {{'kitsune.alloc_ring' op has ring 'x', of which 'load' fills 4 slots, but 'math' takes 1}}
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !r
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      scf.for %i = %c0 to %c4 step %c1 {
        %s = "kitsune.acquire"(%x) : (!r) -> !s
        %d = "kitsune.copy"(%s, %A, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<64x64xbf16>, index, index) -> !t
        "kitsune.commit"(%s, %d) : (!s, !t) -> ()
      }
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

// In every turn.

!r = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @rates_of_a_turn(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !r
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      // expected-error @below {{'scf.for' op has ring 'x', of which in a turn of the loop 'load' fills 2 slots, but 'math' takes 1}}
      scf.for %i = %c0 to %m step %c1 {
        %s = "kitsune.acquire"(%x) : (!r) -> !s
        %d = "kitsune.copy"(%s, %A, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<64x64xbf16>, index, index) -> !t
        "kitsune.commit"(%s, %d) : (!s, !t) -> ()
        %s1 = "kitsune.acquire"(%x) : (!r) -> !s
        %d1 = "kitsune.copy"(%s1, %A, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<64x64xbf16>, index, index) -> !t
        "kitsune.commit"(%s1, %d1) : (!s, !t) -> ()
      }
    }) {copies = 1, registers = 40, sym_name = "load", warps = 4} : () -> ()
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      scf.for %i = %c0 to %m step %c1 {
        %s = "kitsune.wait"(%x) : (!r) -> !s
        "kitsune.release"(%s) : (!s) -> ()
      }
    }) {copies = 1, registers = 40, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// Loops that belong together go round equally often.

!r = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @bounds(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !r
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      scf.for %i = %c0 to %m step %c1 {
        %s = "kitsune.acquire"(%x) : (!r) -> !s
        %d = "kitsune.copy"(%s, %A, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<64x64xbf16>, index, index) -> !t
        "kitsune.commit"(%s, %d) : (!s, !t) -> ()
      }
    }) {copies = 1, registers = 40, sym_name = "load", warps = 4} : () -> ()
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      // expected-error @below {{'scf.for' op takes slots of ring 'x' in a loop whose bounds are not those of the loop at }}
      scf.for %i = %lo to %hi step %st {
        %s = "kitsune.wait"(%x) : (!r) -> !s
        "kitsune.release"(%s) : (!s) -> ()
      }
    }) {copies = 1, registers = 40, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// A loop of unknown trip count has one at the ring's other end.

!r = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @no_loop(%A: tensor<64x64xbf16>, %m: index) {
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
    }) {copies = 1, registers = 40, sym_name = "load", warps = 4} : () -> ()
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      // expected-error @below {{'scf.for' op visits ring 'x' in a loop of unknown trip count to which no loop at the ring's other end corresponds: 'load' has 0 such loops here, 'math' 1}}
      scf.for %i = %c0 to %m step %c1 {
        %s = "kitsune.wait"(%x) : (!r) -> !s
        "kitsune.release"(%s) : (!s) -> ()
      }
    }) {copies = 1, registers = 40, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// One.

!r = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @two_loops(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !r
    %y = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "y"} : () -> !r
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      scf.for %i = %c0 to %m step %c1 {
        %s = "kitsune.acquire"(%x) : (!r) -> !s
        %d = "kitsune.copy"(%s, %A, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<64x64xbf16>, index, index) -> !t
        "kitsune.commit"(%s, %d) : (!s, !t) -> ()
      }
      // expected-error @below {{'scf.for' op and the loop at }}
      scf.for %i = %c0 to %m step %c1 {
        %s = "kitsune.acquire"(%y) : (!r) -> !s
        %d = "kitsune.copy"(%s, %A, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<64x64xbf16>, index, index) -> !t
        "kitsune.commit"(%s, %d) : (!s, !t) -> ()
      }
    }) {copies = 1, registers = 40, sym_name = "load", warps = 4} : () -> ()
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      scf.for %i = %c0 to %m step %c1 {
        %s = "kitsune.wait"(%x) : (!r) -> !s
        "kitsune.release"(%s) : (!s) -> ()
        %s1 = "kitsune.wait"(%y) : (!r) -> !s
        "kitsune.release"(%s1) : (!s) -> ()
      }
    }) {copies = 1, registers = 40, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// Two loops are visited in one order: with four slots, four turns end and eight do not.

!r = !kitsune.ring<tensor<64x64xbf16>, 4 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @opposite(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !r
    %y = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "y"} : () -> !r
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      scf.for %i = %c0 to %m step %c1 {
        %s = "kitsune.acquire"(%x) : (!r) -> !s
        %d = "kitsune.copy"(%s, %A, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<64x64xbf16>, index, index) -> !t
        "kitsune.commit"(%s, %d) : (!s, !t) -> ()
      }
      // expected-error @below {{'scf.for' op closes a cycle of waits: the loop over ring 'y' (}}
      scf.for %i = %c0 to %m step %c1 {
        %s = "kitsune.acquire"(%y) : (!r) -> !s
        %d = "kitsune.copy"(%s, %A, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<64x64xbf16>, index, index) -> !t
        "kitsune.commit"(%s, %d) : (!s, !t) -> ()
      }
    }) {copies = 1, registers = 40, sym_name = "load", warps = 4} : () -> ()
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      scf.for %i = %c0 to %m step %c1 {
        %s = "kitsune.wait"(%y) : (!r) -> !s
        "kitsune.release"(%s) : (!s) -> ()
      }
      scf.for %i = %c0 to %m step %c1 {
        %s = "kitsune.wait"(%x) : (!r) -> !s
        "kitsune.release"(%s) : (!s) -> ()
      }
    }) {copies = 1, registers = 40, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// Where the number of turns is known, slots may be enough.

!r = !kitsune.ring<tensor<64x64xbf16>, 4 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @opposite_constant(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !r
    %y = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "y"} : () -> !r
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      scf.for %i = %c0 to %c4 step %c1 {
        %s = "kitsune.acquire"(%x) : (!r) -> !s
        %d = "kitsune.copy"(%s, %A, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<64x64xbf16>, index, index) -> !t
        "kitsune.commit"(%s, %d) : (!s, !t) -> ()
      }
      scf.for %i = %c0 to %c4 step %c1 {
        %s = "kitsune.acquire"(%y) : (!r) -> !s
        %d = "kitsune.copy"(%s, %A, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<64x64xbf16>, index, index) -> !t
        "kitsune.commit"(%s, %d) : (!s, !t) -> ()
      }
    }) {copies = 1, registers = 40, sym_name = "load", warps = 4} : () -> ()
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      scf.for %i = %c0 to %c4 step %c1 {
        %s = "kitsune.wait"(%y) : (!r) -> !s
        "kitsune.release"(%s) : (!s) -> ()
      }
      scf.for %i = %c0 to %c4 step %c1 {
        %s = "kitsune.wait"(%x) : (!r) -> !s
        "kitsune.release"(%s) : (!s) -> ()
      }
    }) {copies = 1, registers = 40, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// Or not.

!r = !kitsune.ring<tensor<64x64xbf16>, 3 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @too_shallow(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !r
    %y = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "y"} : () -> !r
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      scf.for %i = %c0 to %c4 step %c1 {
        // expected-error @below {{'kitsune.acquire' op closes a cycle of waits: the acquire of ring 'x' in 'load' (}}
        %s = "kitsune.acquire"(%x) : (!r) -> !s
        %d = "kitsune.copy"(%s, %A, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<64x64xbf16>, index, index) -> !t
        "kitsune.commit"(%s, %d) : (!s, !t) -> ()
      }
      scf.for %i = %c0 to %c4 step %c1 {
        %s = "kitsune.acquire"(%y) : (!r) -> !s
        %d = "kitsune.copy"(%s, %A, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<64x64xbf16>, index, index) -> !t
        "kitsune.commit"(%s, %d) : (!s, !t) -> ()
      }
    }) {copies = 1, registers = 40, sym_name = "load", warps = 4} : () -> ()
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      scf.for %i = %c0 to %c4 step %c1 {
        %s = "kitsune.wait"(%y) : (!r) -> !s
        "kitsune.release"(%s) : (!s) -> ()
      }
      scf.for %i = %c0 to %c4 step %c1 {
        %s = "kitsune.wait"(%x) : (!r) -> !s
        "kitsune.release"(%s) : (!s) -> ()
      }
    }) {copies = 1, registers = 40, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// Nobody waits for a turn to come before the loop.

!r = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @ahead(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !r
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      scf.for %i = %c0 to %m step %c1 {
        %s = "kitsune.acquire"(%x) : (!r) -> !s
        %d = "kitsune.copy"(%s, %A, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<64x64xbf16>, index, index) -> !t
        "kitsune.commit"(%s, %d) : (!s, !t) -> ()
      }
      // expected-error @below {{'kitsune.acquire' op closes a cycle of waits: the acquire of ring 'x' in 'load' (}}
      %s1 = "kitsune.acquire"(%x) : (!r) -> !s
      %d1 = "kitsune.copy"(%s1, %A, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<64x64xbf16>, index, index) -> !t
      "kitsune.commit"(%s1, %d1) : (!s, !t) -> ()
    }) {copies = 1, registers = 40, sym_name = "load", warps = 4} : () -> ()
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      %s = "kitsune.wait"(%x) : (!r) -> !s
      "kitsune.release"(%s) : (!s) -> ()
      scf.for %i = %c0 to %m step %c1 {
        %s1 = "kitsune.wait"(%x) : (!r) -> !s
        "kitsune.release"(%s1) : (!s) -> ()
      }
    }) {copies = 1, registers = 40, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}
