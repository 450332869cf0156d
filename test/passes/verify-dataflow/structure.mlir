// RUN: kitsune-opt %s --verify-dataflow --split-input-file --verify-diagnostics

// Fine as it is: two replicas feed three.

func.func @fine(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %p = "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "q", transport = "l2"} : () -> !kitsune.ring<tensor<64x8xf32>, 5 : i64>
    "kitsune.stage"() ({
      %t = "kitsune.load"(%x) : (tensor<?x8xf32>) -> tensor<64x8xf32>
      "kitsune.put"(%q, %t) : (!kitsune.ring<tensor<64x8xf32>, 5 : i64>, tensor<64x8xf32>) -> ()
    }) {kind = "simt", sym_name = "a", role = 0 : i64, replicas = 2 : i64} : () -> ()
    "kitsune.stage"() ({
      %t = "kitsune.get"(%q) : (!kitsune.ring<tensor<64x8xf32>, 5 : i64>) -> tensor<64x8xf32>
      "kitsune.store"(%t) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
    }) {kind = "simt", sym_name = "b", role = 1 : i64, replicas = 3 : i64} : () -> ()
  }) {sym_name = "net", tile_rows = 64 : i64, target = "sm_90a"} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}

// -----

// Fewer slots than tiles in work: right, but slow.

func.func @starved(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %p = "kitsune.pipeline"() ({
    // expected-remark @below {{'q' has a depth of 4; 5 would let every replica of both ends hold its tiles}}
    %q = "kitsune.queue"() {sym_name = "q", transport = "l2"} : () -> !kitsune.ring<tensor<64x8xf32>, 4 : i64>
    "kitsune.stage"() ({
      %t = "kitsune.load"(%x) : (tensor<?x8xf32>) -> tensor<64x8xf32>
      "kitsune.put"(%q, %t) : (!kitsune.ring<tensor<64x8xf32>, 4 : i64>, tensor<64x8xf32>) -> ()
    }) {kind = "simt", sym_name = "a", role = 0 : i64, replicas = 2 : i64} : () -> ()
    "kitsune.stage"() ({
      %t = "kitsune.get"(%q) : (!kitsune.ring<tensor<64x8xf32>, 4 : i64>) -> tensor<64x8xf32>
      "kitsune.store"(%t) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
    }) {kind = "simt", sym_name = "b", role = 1 : i64, replicas = 3 : i64} : () -> ()
  }) {sym_name = "net", tile_rows = 64 : i64, target = "sm_90a"} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}

// -----

// On-chip queues stay in one CTA.

func.func @smem_across_roles(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %p = "kitsune.pipeline"() ({
    // expected-error @below {{'q' has transport smem, which stays in one CTA, but 'b' has role 1 and 'a' role 0}}
    %q = "kitsune.queue"() {sym_name = "q", transport = "smem"} : () -> !kitsune.ring<tensor<64x8xf32>, 4 : i64>
    "kitsune.stage"() ({
      %t = "kitsune.load"(%x) : (tensor<?x8xf32>) -> tensor<64x8xf32>
      "kitsune.put"(%q, %t) : (!kitsune.ring<tensor<64x8xf32>, 4 : i64>, tensor<64x8xf32>) -> ()
    }) {kind = "simt", sym_name = "a", role = 0 : i64, replicas = 2 : i64} : () -> ()
    "kitsune.stage"() ({
      %t = "kitsune.get"(%q) : (!kitsune.ring<tensor<64x8xf32>, 4 : i64>) -> tensor<64x8xf32>
      "kitsune.store"(%t) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
    }) {kind = "simt", sym_name = "b", role = 1 : i64, replicas = 3 : i64} : () -> ()
  }) {sym_name = "net", tile_rows = 64 : i64, target = "sm_90a"} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}

// -----

// Registers too.

func.func @reg_across_roles(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %p = "kitsune.pipeline"() ({
    // expected-error @below {{'q' has transport reg, which stays in one CTA}}
    %q = "kitsune.queue"() {sym_name = "q", transport = "reg"} : () -> !kitsune.ring<tensor<64x8xf32>, 4 : i64>
    "kitsune.stage"() ({
      %t = "kitsune.load"(%x) : (tensor<?x8xf32>) -> tensor<64x8xf32>
      "kitsune.put"(%q, %t) : (!kitsune.ring<tensor<64x8xf32>, 4 : i64>, tensor<64x8xf32>) -> ()
    }) {kind = "simt", sym_name = "a", role = 0 : i64, replicas = 2 : i64} : () -> ()
    "kitsune.stage"() ({
      %t = "kitsune.get"(%q) : (!kitsune.ring<tensor<64x8xf32>, 4 : i64>) -> tensor<64x8xf32>
      "kitsune.store"(%t) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
    }) {kind = "simt", sym_name = "b", role = 1 : i64, replicas = 3 : i64} : () -> ()
  }) {sym_name = "net", tile_rows = 64 : i64, target = "sm_90a"} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}

// -----

// The stages of a role run on the same CTAs.

func.func @replicas_of_a_role(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %p = "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "q", transport = "l2"} : () -> !kitsune.ring<tensor<64x8xf32>, 4 : i64>
    "kitsune.stage"() ({
      %t = "kitsune.load"(%x) : (tensor<?x8xf32>) -> tensor<64x8xf32>
      "kitsune.put"(%q, %t) : (!kitsune.ring<tensor<64x8xf32>, 4 : i64>, tensor<64x8xf32>) -> ()
    }) {kind = "simt", sym_name = "a", role = 0 : i64, replicas = 2 : i64} : () -> ()
    // expected-error @below {{'b' has 3 replicas, but 'a' of the same role 0 has 2}}
    "kitsune.stage"() ({
      %t = "kitsune.get"(%q) : (!kitsune.ring<tensor<64x8xf32>, 4 : i64>) -> tensor<64x8xf32>
      "kitsune.store"(%t) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
    }) {kind = "simt", sym_name = "b", role = 0 : i64, replicas = 3 : i64} : () -> ()
  }) {sym_name = "net", tile_rows = 64 : i64, target = "sm_90a"} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}

// -----

// Distributed shared memory pairs replicas.

func.func @unpaired(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %p = "kitsune.pipeline"() ({
    // expected-error @below {{'q' has transport dsmem, which pairs replicas, but 'b' has 3 and 'a' 2}}
    %q = "kitsune.queue"() {sym_name = "q", transport = "dsmem"} : () -> !kitsune.ring<tensor<64x8xf32>, 4 : i64>
    "kitsune.stage"() ({
      %t = "kitsune.load"(%x) : (tensor<?x8xf32>) -> tensor<64x8xf32>
      "kitsune.put"(%q, %t) : (!kitsune.ring<tensor<64x8xf32>, 4 : i64>, tensor<64x8xf32>) -> ()
    }) {kind = "simt", sym_name = "a", role = 0 : i64, replicas = 2 : i64} : () -> ()
    "kitsune.stage"() ({
      %t = "kitsune.get"(%q) : (!kitsune.ring<tensor<64x8xf32>, 4 : i64>) -> tensor<64x8xf32>
      "kitsune.store"(%t) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
    }) {kind = "simt", sym_name = "b", role = 1 : i64, replicas = 3 : i64} : () -> ()
  }) {sym_name = "net", tile_rows = 64 : i64, target = "sm_90a"} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}
