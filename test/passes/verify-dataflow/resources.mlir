// RUN: kitsune-opt %s --verify-dataflow --split-input-file --verify-diagnostics

// An SM for each CTA.

func.func @fine(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %p = "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "q", transport = "l2"} : () -> !kitsune.ring<tensor<64x8xf32>, 200 : i64>
    "kitsune.stage"() ({
      %t = "kitsune.load"(%x) : (tensor<?x8xf32>) -> tensor<64x8xf32>
      "kitsune.put"(%q, %t) : (!kitsune.ring<tensor<64x8xf32>, 200 : i64>, tensor<64x8xf32>) -> ()
    }) {kind = "simt", sym_name = "a", role = 0 : i64, replicas = 100 : i64} : () -> ()
    "kitsune.stage"() ({
      %t = "kitsune.get"(%q) : (!kitsune.ring<tensor<64x8xf32>, 200 : i64>) -> tensor<64x8xf32>
      "kitsune.store"(%t) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
    }) {kind = "simt", sym_name = "b", role = 1 : i64, replicas = 32 : i64} : () -> ()
  }) {sym_name = "net", tile_rows = 64 : i64, target = "sm_90a"} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}

// -----

// Every CTA that another one waits for is resident.

func.func @residency(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  // expected-error @below {{'net' needs 133 CTAs at once (a: 100, b: 33), but sm_90a holds 132}}
  %p = "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "q", transport = "l2"} : () -> !kitsune.ring<tensor<64x8xf32>, 200 : i64>
    "kitsune.stage"() ({
      %t = "kitsune.load"(%x) : (tensor<?x8xf32>) -> tensor<64x8xf32>
      "kitsune.put"(%q, %t) : (!kitsune.ring<tensor<64x8xf32>, 200 : i64>, tensor<64x8xf32>) -> ()
    }) {kind = "simt", sym_name = "a", role = 0 : i64, replicas = 100 : i64} : () -> ()
    "kitsune.stage"() ({
      %t = "kitsune.get"(%q) : (!kitsune.ring<tensor<64x8xf32>, 200 : i64>) -> tensor<64x8xf32>
      "kitsune.store"(%t) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
    }) {kind = "simt", sym_name = "b", role = 1 : i64, replicas = 33 : i64} : () -> ()
  }) {sym_name = "net", tile_rows = 64 : i64, target = "sm_90a"} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}

// -----

// Rings between the stages of a role lie in its shared memory.

func.func @shared_memory(%x: tensor<?x1024xf32>) -> tensor<?x1024xf32> {
  %p = "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "q", transport = "smem"} : () -> !kitsune.ring<tensor<64x1024xf32>, 1 : i64>
    // expected-error @below {{'a' (role 0: a, b) has 262144 bytes of rings in shared memory, but sm_90a has 232448 a CTA}}
    "kitsune.stage"() ({
      %t = "kitsune.load"(%x) : (tensor<?x1024xf32>) -> tensor<64x1024xf32>
      "kitsune.put"(%q, %t) : (!kitsune.ring<tensor<64x1024xf32>, 1 : i64>, tensor<64x1024xf32>) -> ()
    }) {kind = "simt", sym_name = "a", role = 0 : i64, replicas = 2 : i64} : () -> ()
    "kitsune.stage"() ({
      %t = "kitsune.get"(%q) : (!kitsune.ring<tensor<64x1024xf32>, 1 : i64>) -> tensor<64x1024xf32>
      "kitsune.store"(%t) {index = 0 : i64} : (tensor<64x1024xf32>) -> ()
    }) {kind = "simt", sym_name = "b", role = 0 : i64, replicas = 2 : i64} : () -> ()
  }) {sym_name = "net", tile_rows = 64 : i64, target = "sm_90a"} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x1024xf32>
  return %r : tensor<?x1024xf32>
}

// -----

// Rings between roles lie in L2,

func.func @l2(%x: tensor<?x4096xf32>) -> tensor<?x4096xf32> {
  // expected-error @below {{'net' has 53477376 bytes of rings in L2, but sm_90a has 52428800}}
  %p = "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "q", transport = "l2"} : () -> !kitsune.ring<tensor<64x4096xf32>, 51 : i64>
    "kitsune.stage"() ({
      %t = "kitsune.load"(%x) : (tensor<?x4096xf32>) -> tensor<64x4096xf32>
      "kitsune.put"(%q, %t) : (!kitsune.ring<tensor<64x4096xf32>, 51 : i64>, tensor<64x4096xf32>) -> ()
    }) {kind = "simt", sym_name = "a", role = 0 : i64, replicas = 2 : i64} : () -> ()
    "kitsune.stage"() ({
      %t = "kitsune.get"(%q) : (!kitsune.ring<tensor<64x4096xf32>, 51 : i64>) -> tensor<64x4096xf32>
      "kitsune.store"(%t) {index = 0 : i64} : (tensor<64x4096xf32>) -> ()
    }) {kind = "simt", sym_name = "b", role = 1 : i64, replicas = 3 : i64} : () -> ()
  }) {sym_name = "net", tile_rows = 64 : i64, target = "sm_90a"} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x4096xf32>
  return %r : tensor<?x4096xf32>
}

// -----

// or in DRAM.

func.func @hbm(%x: tensor<?x4096xf32>) -> tensor<?x4096xf32> {
  %p = "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "q", transport = "hbm"} : () -> !kitsune.ring<tensor<64x4096xf32>, 51 : i64>
    "kitsune.stage"() ({
      %t = "kitsune.load"(%x) : (tensor<?x4096xf32>) -> tensor<64x4096xf32>
      "kitsune.put"(%q, %t) : (!kitsune.ring<tensor<64x4096xf32>, 51 : i64>, tensor<64x4096xf32>) -> ()
    }) {kind = "simt", sym_name = "a", role = 0 : i64, replicas = 2 : i64} : () -> ()
    "kitsune.stage"() ({
      %t = "kitsune.get"(%q) : (!kitsune.ring<tensor<64x4096xf32>, 51 : i64>) -> tensor<64x4096xf32>
      "kitsune.store"(%t) {index = 0 : i64} : (tensor<64x4096xf32>) -> ()
    }) {kind = "simt", sym_name = "b", role = 1 : i64, replicas = 3 : i64} : () -> ()
  }) {sym_name = "net", tile_rows = 64 : i64, target = "sm_90a"} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x4096xf32>
  return %r : tensor<?x4096xf32>
}

// -----

// Clusters are as large as every chip can launch,

func.func @huge_cluster(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  // expected-error @below {{'net' makes a cluster of 4096 CTAs, but at most 8 are portable}}
  %p = "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "q", transport = "dsmem"} : () -> !kitsune.ring<tensor<64x8xf32>, 1 : i64>
    "kitsune.stage"() ({
      %t = "kitsune.load"(%x) : (tensor<?x8xf32>) -> tensor<64x8xf32>
      "kitsune.put"(%q, %t) : (!kitsune.ring<tensor<64x8xf32>, 1 : i64>, tensor<64x8xf32>) -> ()
    }) {kind = "simt", sym_name = "a", role = 0 : i64, replicas = 8 : i64} : () -> ()
    "kitsune.stage"() ({
      %t = "kitsune.get"(%q) : (!kitsune.ring<tensor<64x8xf32>, 1 : i64>) -> tensor<64x8xf32>
      "kitsune.store"(%t) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
    }) {kind = "simt", sym_name = "b", role = 0 : i64, replicas = 8 : i64} : () -> ()
  }) {cluster = 4096 : i64, sym_name = "net", tile_rows = 64 : i64, target = "sm_90a"} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}

// -----

// whole ones,

func.func @half_a_cluster(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %p = "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "q", transport = "dsmem"} : () -> !kitsune.ring<tensor<64x8xf32>, 1 : i64>
    // expected-error @below {{'a' has 9 replicas, which are not whole clusters of 2 CTAs}}
    "kitsune.stage"() ({
      %t = "kitsune.load"(%x) : (tensor<?x8xf32>) -> tensor<64x8xf32>
      "kitsune.put"(%q, %t) : (!kitsune.ring<tensor<64x8xf32>, 1 : i64>, tensor<64x8xf32>) -> ()
    }) {kind = "simt", sym_name = "a", role = 0 : i64, replicas = 9 : i64} : () -> ()
    "kitsune.stage"() ({
      %t = "kitsune.get"(%q) : (!kitsune.ring<tensor<64x8xf32>, 1 : i64>) -> tensor<64x8xf32>
      "kitsune.store"(%t) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
    }) {kind = "simt", sym_name = "b", role = 0 : i64, replicas = 9 : i64} : () -> ()
  }) {cluster = 2 : i64, sym_name = "net", tile_rows = 64 : i64, target = "sm_90a"} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}

// -----

// and there where CTAs reach into each other.

func.func @no_cluster(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %p = "kitsune.pipeline"() ({
    // expected-error @below {{'q' has transport dsmem between CTAs that share no cluster: 'net' runs in clusters of 1, which would have to be of 2}}
    %q = "kitsune.queue"() {sym_name = "q", transport = "dsmem"} : () -> !kitsune.ring<tensor<64x8xf32>, 1 : i64>
    "kitsune.stage"() ({
      %t = "kitsune.load"(%x) : (tensor<?x8xf32>) -> tensor<64x8xf32>
      "kitsune.put"(%q, %t) : (!kitsune.ring<tensor<64x8xf32>, 1 : i64>, tensor<64x8xf32>) -> ()
    }) {kind = "simt", sym_name = "a", role = 0 : i64, replicas = 1 : i64} : () -> ()
    "kitsune.stage"() ({
      %t = "kitsune.get"(%q) : (!kitsune.ring<tensor<64x8xf32>, 1 : i64>) -> tensor<64x8xf32>
      "kitsune.store"(%t) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
    }) {kind = "simt", sym_name = "b", role = 1 : i64, replicas = 1 : i64} : () -> ()
  }) {sym_name = "net", tile_rows = 64 : i64, target = "sm_90a"} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}

// -----

// One CTA of each role, then.

func.func @cluster_of_roles(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %p = "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "q", transport = "dsmem"} : () -> !kitsune.ring<tensor<64x8xf32>, 1 : i64>
    "kitsune.stage"() ({
      %t = "kitsune.load"(%x) : (tensor<?x8xf32>) -> tensor<64x8xf32>
      "kitsune.put"(%q, %t) : (!kitsune.ring<tensor<64x8xf32>, 1 : i64>, tensor<64x8xf32>) -> ()
    }) {kind = "simt", sym_name = "a", role = 0 : i64, replicas = 1 : i64} : () -> ()
    "kitsune.stage"() ({
      %t = "kitsune.get"(%q) : (!kitsune.ring<tensor<64x8xf32>, 1 : i64>) -> tensor<64x8xf32>
      "kitsune.store"(%t) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
    }) {kind = "simt", sym_name = "b", role = 1 : i64, replicas = 1 : i64} : () -> ()
  }) {cluster = 2 : i64, sym_name = "net", tile_rows = 64 : i64, target = "sm_90a"} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}
