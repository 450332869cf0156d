// RUN: kitsune-opt %s --verify-dataflow --split-input-file --verify-diagnostics

// Any numbers of CTAs, tiles and slots: each role works on tiles in order, and none takes what it helps to fill.

!q = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @fine(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %p = "kitsune.kernel"() ({
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !q
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.acquire"(%q) : (!q) -> !s
          "kitsune.fill"(%sq, %A, %c0) : (!s, tensor<64x64xbf16>, index) -> ()
          "kitsune.commit"(%sq) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "first"} : () -> ()
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !q
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.wait"(%q) : (!q) -> !s
          %eq = "kitsune.acquire"(%x) : (!q) -> !s
          %dq = "kitsune.copy"(%eq, %sq, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, !s, index, index) -> !t
          "kitsune.commit"(%eq, %dq) : (!s, !t) -> ()
          "kitsune.release"(%sq) : (!s) -> ()
        }
      }) {copies = 1, registers = 24, sym_name = "feed", warps = 4} : () -> ()
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %u = "kitsune.wait"(%x) : (!q) -> !s
          "kitsune.release"(%u) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 3, sym_name = "second"} : () -> ()
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !q
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.wait"(%q) : (!q) -> !s
          %eq = "kitsune.acquire"(%x) : (!q) -> !s
          %dq = "kitsune.copy"(%eq, %sq, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, !s, index, index) -> !t
          "kitsune.commit"(%eq, %dq) : (!s, !t) -> ()
          "kitsune.release"(%sq) : (!s) -> ()
        }
      }) {copies = 1, registers = 24, sym_name = "feed", warps = 4} : () -> ()
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %u = "kitsune.wait"(%x) : (!q) -> !s
          "kitsune.release"(%u) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 3, sym_name = "third"} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// Two roles of which each takes what the other fills would wait for each other.

!q = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @both_ways(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %p = "kitsune.kernel"() ({
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !q
    %r = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "r"} : () -> !q
    // expected-error@+1 {{'kitsune.role' op closes a cycle of roles: 'first', which takes what 'second', which takes what 'first' fills}}
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !q
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sr = "kitsune.wait"(%r) : (!q) -> !s
          %er = "kitsune.acquire"(%x) : (!q) -> !s
          %dr = "kitsune.copy"(%er, %sr, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, !s, index, index) -> !t
          "kitsune.commit"(%er, %dr) : (!s, !t) -> ()
          "kitsune.release"(%sr) : (!s) -> ()
        }
      }) {copies = 1, registers = 24, sym_name = "feed", warps = 4} : () -> ()
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %u = "kitsune.wait"(%x) : (!q) -> !s
          "kitsune.release"(%u) : (!s) -> ()
          %sq = "kitsune.acquire"(%q) : (!q) -> !s
          "kitsune.fill"(%sq, %A, %c0) : (!s, tensor<64x64xbf16>, index) -> ()
          "kitsune.commit"(%sq) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "first"} : () -> ()
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !q
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.wait"(%q) : (!q) -> !s
          %eq = "kitsune.acquire"(%x) : (!q) -> !s
          %dq = "kitsune.copy"(%eq, %sq, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, !s, index, index) -> !t
          "kitsune.commit"(%eq, %dq) : (!s, !t) -> ()
          "kitsune.release"(%sq) : (!s) -> ()
        }
      }) {copies = 1, registers = 24, sym_name = "feed", warps = 4} : () -> ()
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %u = "kitsune.wait"(%x) : (!q) -> !s
          "kitsune.release"(%u) : (!s) -> ()
          %sr = "kitsune.acquire"(%r) : (!q) -> !s
          "kitsune.fill"(%sr, %A, %c0) : (!s, tensor<64x64xbf16>, index) -> ()
          "kitsune.commit"(%sr) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "second"} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// One role fills a ring.

!q = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @filled_by_two(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %p = "kitsune.kernel"() ({
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !q
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.acquire"(%q) : (!q) -> !s
          "kitsune.fill"(%sq, %A, %c0) : (!s, tensor<64x64xbf16>, index) -> ()
          "kitsune.commit"(%sq) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "first"} : () -> ()
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          // expected-error@+1 {{'kitsune.acquire' op fills ring 'q' in role 'other', where 'first' fills it too}}
          %sq = "kitsune.acquire"(%q) : (!q) -> !s
          "kitsune.fill"(%sq, %A, %c0) : (!s, tensor<64x64xbf16>, index) -> ()
          "kitsune.commit"(%sq) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "other"} : () -> ()
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !q
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.wait"(%q) : (!q) -> !s
          %eq = "kitsune.acquire"(%x) : (!q) -> !s
          %dq = "kitsune.copy"(%eq, %sq, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, !s, index, index) -> !t
          "kitsune.commit"(%eq, %dq) : (!s, !t) -> ()
          "kitsune.release"(%sq) : (!s) -> ()
        }
      }) {copies = 1, registers = 24, sym_name = "feed", warps = 4} : () -> ()
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %u = "kitsune.wait"(%x) : (!q) -> !s
          "kitsune.release"(%u) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 3, sym_name = "second"} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// Somebody takes it.

!q = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @taken_by_none(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %p = "kitsune.kernel"() ({
    // expected-error@+1 {{'kitsune.alloc_ring' op has ring 'q', which no role takes}}
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !q
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.acquire"(%q) : (!q) -> !s
          "kitsune.fill"(%sq, %A, %c0) : (!s, tensor<64x64xbf16>, index) -> ()
          "kitsune.commit"(%sq) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "first"} : () -> ()
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %z = arith.constant 0 : index
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "second"} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// Somebody fills it.

!q = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @filled_by_none(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %p = "kitsune.kernel"() ({
    // expected-error@+1 {{'kitsune.alloc_ring' op has ring 'q', which no role fills}}
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !q
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !q
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.wait"(%q) : (!q) -> !s
          %eq = "kitsune.acquire"(%x) : (!q) -> !s
          %dq = "kitsune.copy"(%eq, %sq, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, !s, index, index) -> !t
          "kitsune.commit"(%eq, %dq) : (!s, !t) -> ()
          "kitsune.release"(%sq) : (!s) -> ()
        }
      }) {copies = 1, registers = 24, sym_name = "feed", warps = 4} : () -> ()
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %u = "kitsune.wait"(%x) : (!q) -> !s
          "kitsune.release"(%u) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 3, sym_name = "second"} : () -> ()
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %z = arith.constant 0 : index
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "first"} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// A slot is that of the tile of a turn: there is none elsewhere.

!q = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @out_of_turn(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %p = "kitsune.kernel"() ({
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !q
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        // expected-error@+1 {{'kitsune.acquire' op fills ring 'q', between roles, elsewhere than in a turn of the loop over tiles, which opens and closes the tile's slot}}
        %sq = "kitsune.acquire"(%q) : (!q) -> !s
        "kitsune.fill"(%sq, %A, %c0) : (!s, tensor<64x64xbf16>, index) -> ()
        "kitsune.commit"(%sq) : (!s) -> ()
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "first"} : () -> ()
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !q
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.wait"(%q) : (!q) -> !s
          %eq = "kitsune.acquire"(%x) : (!q) -> !s
          %dq = "kitsune.copy"(%eq, %sq, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, !s, index, index) -> !t
          "kitsune.commit"(%eq, %dq) : (!s, !t) -> ()
          "kitsune.release"(%sq) : (!s) -> ()
        }
      }) {copies = 1, registers = 24, sym_name = "feed", warps = 4} : () -> ()
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %u = "kitsune.wait"(%x) : (!q) -> !s
          "kitsune.release"(%u) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 3, sym_name = "second"} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// Nor in a loop within a turn.

!q = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @in_a_loop_of_a_turn(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %p = "kitsune.kernel"() ({
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !q
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          scf.for %j = %c0 to %c1 step %c1 {
            // expected-error@+1 {{'kitsune.acquire' op fills ring 'q', between roles, elsewhere than in a turn of the loop over tiles, which opens and closes the tile's slot}}
            %sq = "kitsune.acquire"(%q) : (!q) -> !s
            "kitsune.fill"(%sq, %A, %c0) : (!s, tensor<64x64xbf16>, index) -> ()
            "kitsune.commit"(%sq) : (!s) -> ()
          }
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "first"} : () -> ()
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !q
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.wait"(%q) : (!q) -> !s
          %eq = "kitsune.acquire"(%x) : (!q) -> !s
          %dq = "kitsune.copy"(%eq, %sq, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, !s, index, index) -> !t
          "kitsune.commit"(%eq, %dq) : (!s, !t) -> ()
          "kitsune.release"(%sq) : (!s) -> ()
        }
      }) {copies = 1, registers = 24, sym_name = "feed", warps = 4} : () -> ()
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %u = "kitsune.wait"(%x) : (!q) -> !s
          "kitsune.release"(%u) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 3, sym_name = "second"} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// A turn has one slot of a ring.

!q = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @twice_in_a_turn(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %p = "kitsune.kernel"() ({
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !q
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.acquire"(%q) : (!q) -> !s
          "kitsune.fill"(%sq, %A, %c0) : (!s, tensor<64x64xbf16>, index) -> ()
          "kitsune.commit"(%sq) : (!s) -> ()
          // expected-error@+1 {{'kitsune.acquire' op fills the slot of ring 'q' again that is the turn's}}
          %again = "kitsune.acquire"(%q) : (!q) -> !s
          "kitsune.fill"(%again, %A, %c0) : (!s, tensor<64x64xbf16>, index) -> ()
          "kitsune.commit"(%again) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "first"} : () -> ()
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !q
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.wait"(%q) : (!q) -> !s
          %eq = "kitsune.acquire"(%x) : (!q) -> !s
          %dq = "kitsune.copy"(%eq, %sq, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, !s, index, index) -> !t
          "kitsune.commit"(%eq, %dq) : (!s, !t) -> ()
          "kitsune.release"(%sq) : (!s) -> ()
        }
      }) {copies = 1, registers = 24, sym_name = "feed", warps = 4} : () -> ()
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %u = "kitsune.wait"(%x) : (!q) -> !s
          "kitsune.release"(%u) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 3, sym_name = "second"} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// All roles have the same tiles.

!q = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @other_tiles(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %p = "kitsune.kernel"() ({
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !q
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.acquire"(%q) : (!q) -> !s
          "kitsune.fill"(%sq, %A, %c0) : (!s, tensor<64x64xbf16>, index) -> ()
          "kitsune.commit"(%sq) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "first"} : () -> ()
    // expected-error@+1 {{'kitsune.role' op deals out other tiles than role 'first'}}
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%c1) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !q
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.wait"(%q) : (!q) -> !s
          %eq = "kitsune.acquire"(%x) : (!q) -> !s
          %dq = "kitsune.copy"(%eq, %sq, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, !s, index, index) -> !t
          "kitsune.commit"(%eq, %dq) : (!s, !t) -> ()
          "kitsune.release"(%sq) : (!s) -> ()
        }
      }) {copies = 1, registers = 24, sym_name = "feed", warps = 4} : () -> ()
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %u = "kitsune.wait"(%x) : (!q) -> !s
          "kitsune.release"(%u) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 3, sym_name = "second"} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// All CTAs are resident.

!q = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @more_than_an_sm_has(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  // expected-error@+1 {{'kitsune.kernel' op has 133 CTAs, which wait for one another, but sm_90a has 132 SMs}}
  %p = "kitsune.kernel"() ({
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !q
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.acquire"(%q) : (!q) -> !s
          "kitsune.fill"(%sq, %A, %c0) : (!s, tensor<64x64xbf16>, index) -> ()
          "kitsune.commit"(%sq) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 100, sym_name = "first"} : () -> ()
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !q
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.wait"(%q) : (!q) -> !s
          %eq = "kitsune.acquire"(%x) : (!q) -> !s
          %dq = "kitsune.copy"(%eq, %sq, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, !s, index, index) -> !t
          "kitsune.commit"(%eq, %dq) : (!s, !t) -> ()
          "kitsune.release"(%sq) : (!s) -> ()
        }
      }) {copies = 1, registers = 24, sym_name = "feed", warps = 4} : () -> ()
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %u = "kitsune.wait"(%x) : (!q) -> !s
          "kitsune.release"(%u) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 33, sym_name = "second"} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// Nothing is stored in a slot that is given on.

!q = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @filled_when_given_on(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %p = "kitsune.kernel"() ({
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !q
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.acquire"(%q) : (!q) -> !s
          "kitsune.commit"(%sq) : (!s) -> ()
          // expected-error@+1 {{'kitsune.fill' op uses a slot of ring 'q', opened at}}
          "kitsune.fill"(%sq, %A, %c0) : (!s, tensor<64x64xbf16>, index) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "first"} : () -> ()
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !q
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.wait"(%q) : (!q) -> !s
          %eq = "kitsune.acquire"(%x) : (!q) -> !s
          %dq = "kitsune.copy"(%eq, %sq, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, !s, index, index) -> !t
          "kitsune.commit"(%eq, %dq) : (!s, !t) -> ()
          "kitsune.release"(%sq) : (!s) -> ()
        }
      }) {copies = 1, registers = 24, sym_name = "feed", warps = 4} : () -> ()
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %u = "kitsune.wait"(%x) : (!q) -> !s
          "kitsune.release"(%u) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 3, sym_name = "second"} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// Nothing is copied out of a slot that is given back.

!q = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @copied_when_given_back(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %p = "kitsune.kernel"() ({
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !q
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.acquire"(%q) : (!q) -> !s
          "kitsune.fill"(%sq, %A, %c0) : (!s, tensor<64x64xbf16>, index) -> ()
          "kitsune.commit"(%sq) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "first"} : () -> ()
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !q
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.wait"(%q) : (!q) -> !s
          "kitsune.release"(%sq) : (!s) -> ()
          %eq = "kitsune.acquire"(%x) : (!q) -> !s
          // expected-error@+1 {{'kitsune.copy' op uses a slot of ring 'q', opened at}}
          %dq = "kitsune.copy"(%eq, %sq, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, !s, index, index) -> !t
          "kitsune.commit"(%eq, %dq) : (!s, !t) -> ()
        }
      }) {copies = 1, registers = 24, sym_name = "feed", warps = 4} : () -> ()
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %u = "kitsune.wait"(%x) : (!q) -> !s
          "kitsune.release"(%u) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "second"} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// Each slot is given back.

!q = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @never_given_back(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %p = "kitsune.kernel"() ({
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !q
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.acquire"(%q) : (!q) -> !s
          "kitsune.fill"(%sq, %A, %c0) : (!s, tensor<64x64xbf16>, index) -> ()
          "kitsune.commit"(%sq) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "first"} : () -> ()
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !q
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        // expected-error@+1 {{'scf.for' op has 0 open slots of ring 'q' before a turn, 1 behind it}}
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.wait"(%q) : (!q) -> !s
          %eq = "kitsune.acquire"(%x) : (!q) -> !s
          %dq = "kitsune.copy"(%eq, %sq, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, !s, index, index) -> !t
          "kitsune.commit"(%eq, %dq) : (!s, !t) -> ()
        }
      }) {copies = 1, registers = 24, sym_name = "feed", warps = 4} : () -> ()
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %u = "kitsune.wait"(%x) : (!q) -> !s
          "kitsune.release"(%u) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "second"} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// Each role is proven by itself, too: here an agent takes more than there is.

!q = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @a_role_that_hangs(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %p = "kitsune.kernel"() ({
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !q
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.acquire"(%q) : (!q) -> !s
          "kitsune.fill"(%sq, %A, %c0) : (!s, tensor<64x64xbf16>, index) -> ()
          "kitsune.commit"(%sq) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "first"} : () -> ()
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !q
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        // expected-error@+1 {{'scf.for' op has ring 'x', of which in a turn of the loop 'feed' fills 1 slots, but 'math' takes 2}}
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.wait"(%q) : (!q) -> !s
          %eq = "kitsune.acquire"(%x) : (!q) -> !s
          %dq = "kitsune.copy"(%eq, %sq, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, !s, index, index) -> !t
          "kitsune.commit"(%eq, %dq) : (!s, !t) -> ()
          "kitsune.release"(%sq) : (!s) -> ()
        }
      }) {copies = 1, registers = 24, sym_name = "feed", warps = 4} : () -> ()
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %u = "kitsune.wait"(%x) : (!q) -> !s
          "kitsune.release"(%u) : (!s) -> ()
          %v = "kitsune.wait"(%x) : (!q) -> !s
          "kitsune.release"(%v) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 3, sym_name = "second"} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// A slot is filled by pieces of its columns, in any order, where constants and counters of loops say.

!r = !kitsune.ring<tensor<64x192xbf16>, 2 : i64>
!q = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!w = !kitsune.slot<tensor<64x192xbf16>>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @whole_in_pieces(%A: tensor<64x64xbf16>, %B: tensor<64x128xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %p = "kitsune.kernel"() ({
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !r
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.acquire"(%q) : (!r) -> !w
          scf.for %j = %c1 to %c3 step %c1 {
            %at = arith.muli %j, %c64 : index
            "kitsune.fill"(%sq, %A, %at) : (!w, tensor<64x64xbf16>, index) -> ()
          }
          "kitsune.fill"(%sq, %A, %c0) : (!w, tensor<64x64xbf16>, index) -> ()
          "kitsune.commit"(%sq) : (!w) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "first"} : () -> ()
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !q
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.wait"(%q) : (!r) -> !w
          %eq = "kitsune.acquire"(%x) : (!q) -> !s
          %dq = "kitsune.copy"(%eq, %sq, %c0, %c64) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, !w, index, index) -> !t
          "kitsune.commit"(%eq, %dq) : (!s, !t) -> ()
          "kitsune.release"(%sq) : (!w) -> ()
        }
      }) {copies = 1, registers = 24, sym_name = "feed", warps = 4} : () -> ()
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %u = "kitsune.wait"(%x) : (!q) -> !s
          "kitsune.release"(%u) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "second"} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// Columns of a slot that nothing is stored in.

!r = !kitsune.ring<tensor<64x192xbf16>, 2 : i64>
!q = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!w = !kitsune.slot<tensor<64x192xbf16>>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @a_piece_left_out(%A: tensor<64x64xbf16>, %B: tensor<64x128xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %p = "kitsune.kernel"() ({
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !r
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          // expected-error@+1 {{'kitsune.acquire' op fills slots of ring 'q' without columns 64 to 127 of 192}}
          %sq = "kitsune.acquire"(%q) : (!r) -> !w
          "kitsune.fill"(%sq, %A, %c0) : (!w, tensor<64x64xbf16>, index) -> ()
          "kitsune.fill"(%sq, %A, %c128) : (!w, tensor<64x64xbf16>, index) -> ()
          "kitsune.commit"(%sq) : (!w) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "first"} : () -> ()
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !q
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.wait"(%q) : (!r) -> !w
          %eq = "kitsune.acquire"(%x) : (!q) -> !s
          %dq = "kitsune.copy"(%eq, %sq, %c0, %c64) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, !w, index, index) -> !t
          "kitsune.commit"(%eq, %dq) : (!s, !t) -> ()
          "kitsune.release"(%sq) : (!w) -> ()
        }
      }) {copies = 1, registers = 24, sym_name = "feed", warps = 4} : () -> ()
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %u = "kitsune.wait"(%x) : (!q) -> !s
          "kitsune.release"(%u) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "second"} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// A loop over pieces that ends too early.

!r = !kitsune.ring<tensor<64x192xbf16>, 2 : i64>
!q = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!w = !kitsune.slot<tensor<64x192xbf16>>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @a_turn_left_out(%A: tensor<64x64xbf16>, %B: tensor<64x128xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %p = "kitsune.kernel"() ({
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !r
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          // expected-error@+1 {{'kitsune.acquire' op fills slots of ring 'q' without columns 128 to 191 of 192}}
          %sq = "kitsune.acquire"(%q) : (!r) -> !w
          scf.for %j = %c0 to %c2 step %c1 {
            %at = arith.muli %j, %c64 : index
            "kitsune.fill"(%sq, %A, %at) : (!w, tensor<64x64xbf16>, index) -> ()
          }
          "kitsune.commit"(%sq) : (!w) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "first"} : () -> ()
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !q
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.wait"(%q) : (!r) -> !w
          %eq = "kitsune.acquire"(%x) : (!q) -> !s
          %dq = "kitsune.copy"(%eq, %sq, %c0, %c64) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, !w, index, index) -> !t
          "kitsune.commit"(%eq, %dq) : (!s, !t) -> ()
          "kitsune.release"(%sq) : (!w) -> ()
        }
      }) {copies = 1, registers = 24, sym_name = "feed", warps = 4} : () -> ()
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %u = "kitsune.wait"(%x) : (!q) -> !s
          "kitsune.release"(%u) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "second"} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// Two stores in one place, of which either may be the last.

!r = !kitsune.ring<tensor<64x192xbf16>, 2 : i64>
!q = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!w = !kitsune.slot<tensor<64x192xbf16>>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @a_piece_twice(%A: tensor<64x64xbf16>, %B: tensor<64x128xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %p = "kitsune.kernel"() ({
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !r
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.acquire"(%q) : (!r) -> !w
          "kitsune.fill"(%sq, %A, %c0) : (!w, tensor<64x64xbf16>, index) -> ()
          "kitsune.fill"(%sq, %A, %c64) : (!w, tensor<64x64xbf16>, index) -> ()
          // expected-error@+1 {{'kitsune.fill' op fills columns 64 to 127 of a slot of ring 'q', which are filled already}}
          "kitsune.fill"(%sq, %A, %c64) : (!w, tensor<64x64xbf16>, index) -> ()
          "kitsune.fill"(%sq, %A, %c128) : (!w, tensor<64x64xbf16>, index) -> ()
          "kitsune.commit"(%sq) : (!w) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "first"} : () -> ()
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !q
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.wait"(%q) : (!r) -> !w
          %eq = "kitsune.acquire"(%x) : (!q) -> !s
          %dq = "kitsune.copy"(%eq, %sq, %c0, %c64) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, !w, index, index) -> !t
          "kitsune.commit"(%eq, %dq) : (!s, !t) -> ()
          "kitsune.release"(%sq) : (!w) -> ()
        }
      }) {copies = 1, registers = 24, sym_name = "feed", warps = 4} : () -> ()
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %u = "kitsune.wait"(%x) : (!q) -> !s
          "kitsune.release"(%u) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "second"} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// A piece that begins in the one before it.

!r = !kitsune.ring<tensor<64x192xbf16>, 2 : i64>
!q = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!w = !kitsune.slot<tensor<64x192xbf16>>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @a_wrong_offset(%A: tensor<64x64xbf16>, %B: tensor<64x128xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %p = "kitsune.kernel"() ({
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !r
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.acquire"(%q) : (!r) -> !w
          // expected-error@+1 {{'kitsune.fill' op fills columns 64 to 127 of a slot of ring 'q', which are filled already}}
          "kitsune.fill"(%sq, %A, %c64) : (!w, tensor<64x64xbf16>, index) -> ()
          "kitsune.fill"(%sq, %B, %c0) : (!w, tensor<64x128xbf16>, index) -> ()
          "kitsune.commit"(%sq) : (!w) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "first"} : () -> ()
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !q
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.wait"(%q) : (!r) -> !w
          %eq = "kitsune.acquire"(%x) : (!q) -> !s
          %dq = "kitsune.copy"(%eq, %sq, %c0, %c64) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, !w, index, index) -> !t
          "kitsune.commit"(%eq, %dq) : (!s, !t) -> ()
          "kitsune.release"(%sq) : (!w) -> ()
        }
      }) {copies = 1, registers = 24, sym_name = "feed", warps = 4} : () -> ()
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %u = "kitsune.wait"(%x) : (!q) -> !s
          "kitsune.release"(%u) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "second"} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// A counter that goes beyond the slot's columns.

!r = !kitsune.ring<tensor<64x192xbf16>, 2 : i64>
!q = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!w = !kitsune.slot<tensor<64x192xbf16>>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @beyond_the_columns(%A: tensor<64x64xbf16>, %B: tensor<64x128xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %p = "kitsune.kernel"() ({
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !r
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.acquire"(%q) : (!r) -> !w
          scf.for %j = %c0 to %c4 step %c1 {
            %at = arith.muli %j, %c64 : index
            // expected-error@+1 {{'kitsune.fill' op fills column 192 of a slot of ring 'q', which has 192}}
            "kitsune.fill"(%sq, %A, %at) : (!w, tensor<64x64xbf16>, index) -> ()
          }
          "kitsune.commit"(%sq) : (!w) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "first"} : () -> ()
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !q
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.wait"(%q) : (!r) -> !w
          %eq = "kitsune.acquire"(%x) : (!q) -> !s
          %dq = "kitsune.copy"(%eq, %sq, %c0, %c64) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, !w, index, index) -> !t
          "kitsune.commit"(%eq, %dq) : (!s, !t) -> ()
          "kitsune.release"(%sq) : (!w) -> ()
        }
      }) {copies = 1, registers = 24, sym_name = "feed", warps = 4} : () -> ()
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %u = "kitsune.wait"(%x) : (!q) -> !s
          "kitsune.release"(%u) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "second"} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// A piece that may be left out.

!r = !kitsune.ring<tensor<64x192xbf16>, 2 : i64>
!q = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!w = !kitsune.slot<tensor<64x192xbf16>>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @in_a_branch(%A: tensor<64x64xbf16>, %B: tensor<64x128xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %p = "kitsune.kernel"() ({
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !r
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.acquire"(%q) : (!r) -> !w
          "kitsune.fill"(%sq, %B, %c0) : (!w, tensor<64x128xbf16>, index) -> ()
          %last = arith.cmpi eq, %m, %c128 : index
          scf.if %last {
            // expected-error@+1 {{'kitsune.fill' op fills columns of a slot of ring 'q' that are not known: they may be constants, or counted by loops of constant bounds, in no branch of the turn}}
            "kitsune.fill"(%sq, %A, %c128) : (!w, tensor<64x64xbf16>, index) -> ()
          }
          "kitsune.commit"(%sq) : (!w) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "first"} : () -> ()
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !q
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.wait"(%q) : (!r) -> !w
          %eq = "kitsune.acquire"(%x) : (!q) -> !s
          %dq = "kitsune.copy"(%eq, %sq, %c0, %c64) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, !w, index, index) -> !t
          "kitsune.commit"(%eq, %dq) : (!s, !t) -> ()
          "kitsune.release"(%sq) : (!w) -> ()
        }
      }) {copies = 1, registers = 24, sym_name = "feed", warps = 4} : () -> ()
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %u = "kitsune.wait"(%x) : (!q) -> !s
          "kitsune.release"(%u) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "second"} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// Columns that depend on what is not known.

!r = !kitsune.ring<tensor<64x192xbf16>, 2 : i64>
!q = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!w = !kitsune.slot<tensor<64x192xbf16>>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @where_memory_says(%A: tensor<64x64xbf16>, %B: tensor<64x128xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %p = "kitsune.kernel"() ({
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !r
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.acquire"(%q) : (!r) -> !w
          // expected-error@+1 {{'kitsune.fill' op fills columns of a slot of ring 'q' that are not known: they may be constants, or counted by loops of constant bounds, in no branch of the turn}}
          "kitsune.fill"(%sq, %A, %m) : (!w, tensor<64x64xbf16>, index) -> ()
          "kitsune.fill"(%sq, %B, %c0) : (!w, tensor<64x128xbf16>, index) -> ()
          "kitsune.commit"(%sq) : (!w) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "first"} : () -> ()
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !q
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.wait"(%q) : (!r) -> !w
          %eq = "kitsune.acquire"(%x) : (!q) -> !s
          %dq = "kitsune.copy"(%eq, %sq, %c0, %c64) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, !w, index, index) -> !t
          "kitsune.commit"(%eq, %dq) : (!s, !t) -> ()
          "kitsune.release"(%sq) : (!w) -> ()
        }
      }) {copies = 1, registers = 24, sym_name = "feed", warps = 4} : () -> ()
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %u = "kitsune.wait"(%x) : (!q) -> !s
          "kitsune.release"(%u) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "second"} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// Who releases a slot waits for copies into the ring that it was copied to: all that have been begun, and one that has not.

!r = !kitsune.ring<tensor<64x192xbf16>, 2 : i64>
!q = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!w = !kitsune.slot<tensor<64x192xbf16>>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @released_before_a_copy(%A: tensor<64x64xbf16>, %B: tensor<64x128xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %p = "kitsune.kernel"() ({
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !r
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.acquire"(%q) : (!r) -> !w
          scf.for %j = %c1 to %c3 step %c1 {
            %at = arith.muli %j, %c64 : index
            "kitsune.fill"(%sq, %A, %at) : (!w, tensor<64x64xbf16>, index) -> ()
          }
          "kitsune.fill"(%sq, %A, %c0) : (!w, tensor<64x64xbf16>, index) -> ()
          "kitsune.commit"(%sq) : (!w) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "first"} : () -> ()
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !q
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %sq = "kitsune.wait"(%q) : (!r) -> !w
          %eq = "kitsune.acquire"(%x) : (!q) -> !s
          %dq = "kitsune.copy"(%eq, %sq, %c0, %c64) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, !w, index, index) -> !t
          "kitsune.commit"(%eq, %dq) : (!s, !t) -> ()
          %er = "kitsune.acquire"(%x) : (!q) -> !s
          // expected-error@+1 {{'kitsune.release' op closes a slot of ring 'q', which is copied to ring 'x', before the slot opened at}}
          "kitsune.release"(%sq) : (!w) -> ()
          %dr = "kitsune.copy"(%er, %A, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<64x64xbf16>, index, index) -> !t
          "kitsune.commit"(%er, %dr) : (!s, !t) -> ()
        }
      }) {copies = 1, registers = 24, sym_name = "feed", warps = 4} : () -> ()
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %i = %lo to %hi step %st {
          %u = "kitsune.wait"(%x) : (!q) -> !s
          "kitsune.release"(%u) : (!s) -> ()
          %v = "kitsune.wait"(%x) : (!q) -> !s
          "kitsune.release"(%v) : (!s) -> ()
        }
      }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
    }) {replicas = 2, sym_name = "second"} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}
