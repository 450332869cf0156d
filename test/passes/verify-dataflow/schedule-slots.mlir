// RUN: kitsune-opt %s --verify-dataflow --split-input-file --verify-diagnostics

// A slot is opened and closed once, in order, by one who knows that nobody reads or writes it any more.

!r = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
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
      scf.for %i = %lo to %hi step %st {
        %s = "kitsune.acquire"(%x) : (!r) -> !s
        %d = "kitsune.copy"(%s, %A, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<64x64xbf16>, index, index) -> !t
        "kitsune.commit"(%s, %d) : (!s, !t) -> ()
      }
    }) {copies = 1, registers = 40, sym_name = "load", warps = 4} : () -> ()
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      scf.for %i = %lo to %hi step %st {
        %s = "kitsune.wait"(%x) : (!r) -> !s
        "kitsune.release"(%s) : (!s) -> ()
      }
    }) {copies = 1, registers = 40, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// Every slot is closed.

!r = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @never_closed(%A: tensor<64x64xbf16>, %m: index) {
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
      // expected-error @below {{'kitsune.wait' op opens a slot of ring 'x' that 'math' never closes}}
      %s = "kitsune.wait"(%x) : (!r) -> !s
    }) {copies = 1, registers = 40, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// A turn of a loop leaves as many slots open as it found.

!r = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @turn(%A: tensor<64x64xbf16>, %m: index) {
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
      // expected-error @below {{'scf.for' op has 0 open slots of ring 'x' before a turn, 1 behind it}}
      scf.for %i = %c0 to %m step %c1 {
        %s = "kitsune.wait"(%x) : (!r) -> !s
      }
    }) {copies = 1, registers = 40, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// What was opened before a loop is not closed in it.

!r = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @outside(%A: tensor<64x64xbf16>, %m: index) {
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
      %s = "kitsune.wait"(%x) : (!r) -> !s
      scf.for %i = %c0 to %m step %c1 {
        // expected-error @below {{'kitsune.release' op closes, in a loop, a slot of ring 'x' that was opened before the loop at }}
        "kitsune.release"(%s) : (!s) -> ()
      }
    }) {copies = 1, registers = 40, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// Slots are closed in the order in which they were opened.

!r = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @order(%A: tensor<64x64xbf16>, %m: index) {
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
      %s1 = "kitsune.acquire"(%x) : (!r) -> !s
      %d1 = "kitsune.copy"(%s1, %A, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<64x64xbf16>, index, index) -> !t
      "kitsune.commit"(%s1, %d1) : (!s, !t) -> ()
    }) {copies = 1, registers = 40, sym_name = "load", warps = 4} : () -> ()
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      %s = "kitsune.wait"(%x) : (!r) -> !s
      %s1 = "kitsune.wait"(%x) : (!r) -> !s
      // expected-error @below {{'kitsune.release' op closes a slot of ring 'x' before the one that was opened earlier, at }}
      "kitsune.release"(%s1) : (!s) -> ()
      "kitsune.release"(%s) : (!s) -> ()
    }) {copies = 1, registers = 40, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// A slot is full when the copies into it are done.

!r = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @token(%A: tensor<64x64xbf16>, %m: index) {
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
      // expected-error @below {{'kitsune.commit' op closes a slot of ring 'x' without the token of the copy into it at }}
      "kitsune.commit"(%s) : (!s) -> ()
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

// It waits for its own copies.

!r = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @other_token(%A: tensor<64x64xbf16>, %m: index) {
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
      %s1 = "kitsune.acquire"(%x) : (!r) -> !s
      %d1 = "kitsune.copy"(%s1, %A, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<64x64xbf16>, index, index) -> !t
      // expected-error @below {{'kitsune.commit' op commits a slot of ring 'x' with the token of work on another slot}}
      "kitsune.commit"(%s1, %d) : (!s, !t) -> ()
    }) {copies = 1, registers = 40, sym_name = "load", warps = 4} : () -> ()
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      %s = "kitsune.wait"(%x) : (!r) -> !s
      "kitsune.release"(%s) : (!s) -> ()
      %s1 = "kitsune.wait"(%x) : (!r) -> !s
      "kitsune.release"(%s1) : (!s) -> ()
    }) {copies = 1, registers = 40, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// Something was copied into it.

!r = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @nothing(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !r
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      %s = "kitsune.acquire"(%x) : (!r) -> !s
      // expected-error @below {{'kitsune.commit' op commits a slot of ring 'x' into which nothing was copied}}
      "kitsune.commit"(%s) : (!s) -> ()
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

// Once.

!r = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @written_twice(%A: tensor<64x64xbf16>, %m: index) {
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
      // expected-error @below {{'kitsune.copy' op may copy twice into the slot of ring 'x' opened at }}
      %d1 = "kitsune.copy"(%s, %A, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<64x64xbf16>, index, index) -> !t
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

// By its producer.

!r = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @written_by_a_reader(%A: tensor<64x64xbf16>, %m: index) {
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
      %s = "kitsune.wait"(%x) : (!r) -> !s
      // expected-error @below {{'kitsune.copy' op writes to a slot of ring 'x' opened to read, at }}
      %d = "kitsune.copy"(%s, %A, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<64x64xbf16>, index, index) -> !t
      "kitsune.release"(%s) : (!s) -> ()
    }) {copies = 1, registers = 40, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// Who waited for it releases it.

!r = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @sides(%A: tensor<64x64xbf16>, %m: index) {
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
      %s = "kitsune.wait"(%x) : (!r) -> !s
      // expected-error @below {{'kitsune.commit' op closes as producer a slot of ring 'x' opened as consumer at }}
      "kitsune.commit"(%s) : (!s) -> ()
    }) {copies = 1, registers = 40, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// Agents agree on how often a loop with slots goes round.

!r = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @trips_of_a_copy(%A: tensor<64x64xbf16>, %m: index) {
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
      // expected-error @below {{'scf.for' op touches ring 'x' in a loop whose trip count agents may not know alike}}
      scf.for %i = %c0 to %copy step %c1 {
        %s = "kitsune.wait"(%x) : (!r) -> !s
        "kitsune.release"(%s) : (!s) -> ()
      }
    }) {copies = 1, registers = 40, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}

// -----

// And on whether it is touched at all.

!r = !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<64x64xbf16>>
!t = !kitsune.token
func.func @branch_of_a_turn(%A: tensor<64x64xbf16>, %m: index) {
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
      scf.for %i = %c0 to %m step %c1 {
        %b = arith.cmpi eq, %i, %c0 : index
        // expected-error @below {{'scf.if' op decides about ring 'x' by a value that agents may not know alike}}
        scf.if %b {
          %s = "kitsune.wait"(%x) : (!r) -> !s
          "kitsune.release"(%s) : (!s) -> ()
        }
      }
    }) {copies = 1, registers = 40, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  return
}
