// RUN: kitsune-opt %s --verify-dataflow --split-input-file --verify-diagnostics

// One partial sum a replica, taken once.

func.func @fine(%x: tensor<?x8xf32>) -> tensor<8xf32> {
  %p = "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "partial", transport = "l2"} : () -> !kitsune.ring<tensor<8xf32>, 2 : i64>
    "kitsune.stage"() ({
      %zero = arith.constant 0.0 : f32
      %t = "kitsune.load"(%x) : (tensor<?x8xf32>) -> tensor<64x8xf32>
      %e = tensor.empty() : tensor<8xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
      %s = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>], iterator_types = ["reduction", "parallel"]}
          ins(%t : tensor<64x8xf32>) outs(%f : tensor<8xf32>) {
      ^bb0(%v: f32, %sum: f32):
        %n = arith.addf %v, %sum : f32
        linalg.yield %n : f32
      } -> tensor<8xf32>
      "kitsune.accumulate"(%q, %s) : (!kitsune.ring<tensor<8xf32>, 2 : i64>, tensor<8xf32>) -> ()
    }) {kind = "simt", sym_name = "terms", role = 0 : i64, replicas = 2 : i64} : () -> ()
    "kitsune.stage"() ({
      %total = "kitsune.reduce"(%q) : (!kitsune.ring<tensor<8xf32>, 2 : i64>) -> tensor<8xf32>
      "kitsune.store"(%total) {index = 0 : i64} : (tensor<8xf32>) -> ()
    }) {kind = "simt", sym_name = "total", role = 1 : i64, replicas = 1 : i64} : () -> ()
  }) {sym_name = "net", tile_rows = 64 : i64, target = "sm_90a"} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// -----

// A slot for each partial sum.

func.func @shallow(%x: tensor<?x8xf32>) -> tensor<8xf32> {
  %p = "kitsune.pipeline"() ({
    // expected-error @below {{'partial' needs a depth of at least 2, found 1: each replica of 'terms' leaves a partial sum there}}
    %q = "kitsune.queue"() {sym_name = "partial", transport = "l2"} : () -> !kitsune.ring<tensor<8xf32>, 1 : i64>
    "kitsune.stage"() ({
      %zero = arith.constant 0.0 : f32
      %t = "kitsune.load"(%x) : (tensor<?x8xf32>) -> tensor<64x8xf32>
      %e = tensor.empty() : tensor<8xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
      %s = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>], iterator_types = ["reduction", "parallel"]}
          ins(%t : tensor<64x8xf32>) outs(%f : tensor<8xf32>) {
      ^bb0(%v: f32, %sum: f32):
        %n = arith.addf %v, %sum : f32
        linalg.yield %n : f32
      } -> tensor<8xf32>
      "kitsune.accumulate"(%q, %s) : (!kitsune.ring<tensor<8xf32>, 1 : i64>, tensor<8xf32>) -> ()
    }) {kind = "simt", sym_name = "terms", role = 0 : i64, replicas = 2 : i64} : () -> ()
    "kitsune.stage"() ({
      %total = "kitsune.reduce"(%q) : (!kitsune.ring<tensor<8xf32>, 1 : i64>) -> tensor<8xf32>
      "kitsune.store"(%total) {index = 0 : i64} : (tensor<8xf32>) -> ()
    }) {kind = "simt", sym_name = "total", role = 1 : i64, replicas = 1 : i64} : () -> ()
  }) {sym_name = "net", tile_rows = 64 : i64, target = "sm_90a"} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// -----

// What fires once does so behind a role's last tile, not between its tiles.

func.func @shared_role(%x: tensor<?x8xf32>) -> tensor<8xf32> {
  %p = "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "partial", transport = "l2"} : () -> !kitsune.ring<tensor<8xf32>, 1 : i64>
    "kitsune.stage"() ({
      %zero = arith.constant 0.0 : f32
      %t = "kitsune.load"(%x) : (tensor<?x8xf32>) -> tensor<64x8xf32>
      %e = tensor.empty() : tensor<8xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
      %s = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>], iterator_types = ["reduction", "parallel"]}
          ins(%t : tensor<64x8xf32>) outs(%f : tensor<8xf32>) {
      ^bb0(%v: f32, %sum: f32):
        %n = arith.addf %v, %sum : f32
        linalg.yield %n : f32
      } -> tensor<8xf32>
      "kitsune.accumulate"(%q, %s) : (!kitsune.ring<tensor<8xf32>, 1 : i64>, tensor<8xf32>) -> ()
    }) {kind = "simt", sym_name = "terms", role = 0 : i64, replicas = 1 : i64} : () -> ()
    // expected-error @below {{'total' fires once but shares role 0 with stages that fire on every tile}}
    "kitsune.stage"() ({
      %total = "kitsune.reduce"(%q) : (!kitsune.ring<tensor<8xf32>, 1 : i64>) -> tensor<8xf32>
      "kitsune.store"(%total) {index = 0 : i64} : (tensor<8xf32>) -> ()
    }) {kind = "simt", sym_name = "total", role = 0 : i64, replicas = 1 : i64} : () -> ()
  }) {sym_name = "net", tile_rows = 64 : i64, target = "sm_90a"} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// -----

// Two replicas would store the sum twice.

func.func @replicated(%x: tensor<?x8xf32>) -> tensor<8xf32> {
  %p = "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "partial", transport = "l2"} : () -> !kitsune.ring<tensor<8xf32>, 2 : i64>
    "kitsune.stage"() ({
      %zero = arith.constant 0.0 : f32
      %t = "kitsune.load"(%x) : (tensor<?x8xf32>) -> tensor<64x8xf32>
      %e = tensor.empty() : tensor<8xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
      %s = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>], iterator_types = ["reduction", "parallel"]}
          ins(%t : tensor<64x8xf32>) outs(%f : tensor<8xf32>) {
      ^bb0(%v: f32, %sum: f32):
        %n = arith.addf %v, %sum : f32
        linalg.yield %n : f32
      } -> tensor<8xf32>
      "kitsune.accumulate"(%q, %s) : (!kitsune.ring<tensor<8xf32>, 2 : i64>, tensor<8xf32>) -> ()
    }) {kind = "simt", sym_name = "terms", role = 0 : i64, replicas = 2 : i64} : () -> ()
    // expected-error @below {{'total' fires once, on 1 replica, found 2: each would store the sum}}
    "kitsune.stage"() ({
      %total = "kitsune.reduce"(%q) : (!kitsune.ring<tensor<8xf32>, 2 : i64>) -> tensor<8xf32>
      "kitsune.store"(%total) {index = 0 : i64} : (tensor<8xf32>) -> ()
    }) {kind = "simt", sym_name = "total", role = 1 : i64, replicas = 2 : i64} : () -> ()
  }) {sym_name = "net", tile_rows = 64 : i64, target = "sm_90a"} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<8xf32>
  return %r : tensor<8xf32>
}
