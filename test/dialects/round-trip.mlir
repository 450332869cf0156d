// Every operation and type, unplaced and placed, comes back from text and from bytecode as it was,
// locations included.
// RUN: kitsune-opt %s --verify-roundtrip | filecheck %s
// RUN: kitsune-opt %s | kitsune-opt | filecheck %s
// RUN: kitsune-opt %s --emit=bytecode | kitsune-opt | filecheck %s
// RUN: kitsune-opt %s --mlir-print-debuginfo > %t.debug
// RUN: kitsune-opt %s --emit=bytecode | kitsune-opt --mlir-print-debuginfo | diff %t.debug -
// RUN: kitsune-opt %t.debug --mlir-print-debuginfo | diff %t.debug -
// RUN: filecheck %s --check-prefix=LOC --input-file %t.debug

// CHECK-LABEL: func.func @every_operation
// LOC-LABEL: func.func @every_operation
func.func @every_operation(%x: tensor<64x8xf32>, %w: tensor<8xf32>) -> (tensor<64x8xf32>, tensor<8xf32>) {
  // CHECK: %[[P:.*]] = "kitsune.pipeline"() ({
  %p = "kitsune.pipeline"() ({
    // CHECK-NEXT: %[[ROWS:.*]] = "kitsune.queue"() {sym_name = "rows", transport = "l2"} : () -> !kitsune.ring<tensor<16x8xf32>, 2 : i64>
    // LOC: "kitsune.queue"() {{.*}} loc(#[[QUEUE:loc[0-9]*]])
    %rows = "kitsune.queue"() {sym_name = "rows", transport = "l2"} : () -> !kitsune.ring<tensor<16x8xf32>, 2 : i64> loc("model.py":12:3)
    // CHECK-NEXT: %[[SUMS:.*]] = "kitsune.queue"() {sym_name = "sums", transport = "l2"} : () -> !kitsune.ring<tensor<8xf32>, 4 : i64>
    %sums = "kitsune.queue"() {sym_name = "sums", transport = "l2"} : () -> !kitsune.ring<tensor<8xf32>, 4 : i64>
    // CHECK-NEXT: "kitsune.stage"() ({
    "kitsune.stage"() ({
      // CHECK-NEXT: %[[TILE:.*]] = "kitsune.load"(%{{.*}}) : (tensor<64x8xf32>) -> tensor<16x8xf32>
      %tile = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<16x8xf32>
      // CHECK-NEXT: "kitsune.put"(%[[ROWS]], %[[TILE]]) : (!kitsune.ring<tensor<16x8xf32>, 2 : i64>, tensor<16x8xf32>) -> ()
      "kitsune.put"(%rows, %tile) : (!kitsune.ring<tensor<16x8xf32>, 2 : i64>, tensor<16x8xf32>) -> ()
      // CHECK-NEXT: "kitsune.accumulate"(%[[SUMS]], %{{.*}}) : (!kitsune.ring<tensor<8xf32>, 4 : i64>, tensor<8xf32>) -> ()
      "kitsune.accumulate"(%sums, %w) : (!kitsune.ring<tensor<8xf32>, 4 : i64>, tensor<8xf32>) -> ()
      // CHECK-NEXT: }) {kind = "simt", replicas = 4 : i64, role = 0 : i64, sym_name = "read"} : () -> ()
    }) {kind = "simt", replicas = 4 : i64, role = 0 : i64, sym_name = "read"} : () -> ()
    "kitsune.stage"() ({
      // CHECK: %[[GOT:.*]] = "kitsune.get"(%[[ROWS]]) : (!kitsune.ring<tensor<16x8xf32>, 2 : i64>) -> tensor<16x8xf32>
      %got = "kitsune.get"(%rows) : (!kitsune.ring<tensor<16x8xf32>, 2 : i64>) -> tensor<16x8xf32>
      // CHECK-NEXT: "kitsune.store"(%[[GOT]]) {index = 0 : i64} : (tensor<16x8xf32>) -> ()
      // LOC: "kitsune.store"({{.*}}) {index = 0 : i64} : (tensor<16x8xf32>) -> () loc(#[[STORE:loc[0-9]*]])
      "kitsune.store"(%got) {index = 0 : i64} : (tensor<16x8xf32>) -> () loc(callsite("forward"("model.py":20:1) at "train.py":7:1))
    }) {kind = "tensor", replicas = 2 : i64, role = 1 : i64, sym_name = "write"} : () -> ()
    "kitsune.stage"() ({
      // CHECK: %[[SUM:.*]] = "kitsune.reduce"(%[[SUMS]]) : (!kitsune.ring<tensor<8xf32>, 4 : i64>) -> tensor<8xf32>
      %sum = "kitsune.reduce"(%sums) : (!kitsune.ring<tensor<8xf32>, 4 : i64>) -> tensor<8xf32>
      "kitsune.store"(%sum) {index = 1 : i64} : (tensor<8xf32>) -> ()
    }) {kind = "simt", replicas = 1 : i64, role = 2 : i64, sym_name = "sum"} : () -> ()
    // CHECK: }) {cluster = 2 : i64, limit = "DRAM", predicted_us = 1.500000e+00 : f64, sym_name = "p", target = "sm_90a", tile_rows = 16 : i64} : () -> !kitsune.outputs
  }) {cluster = 2 : i64, limit = "DRAM", predicted_us = 1.500000e+00 : f64, sym_name = "p", target = "sm_90a", tile_rows = 16 : i64} : () -> !kitsune.outputs
  // CHECK-NEXT: "kitsune.result"(%[[P]]) {index = 0 : i64} : (!kitsune.outputs) -> tensor<64x8xf32>
  %0 = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<64x8xf32>
  %1 = "kitsune.result"(%p) {index = 1 : i64} : (!kitsune.outputs) -> tensor<8xf32>
  return %0, %1 : tensor<64x8xf32>, tensor<8xf32>
}

// CHECK-LABEL: func.func @not_designed
func.func @not_designed(%x: tensor<?x4xbf16>) -> tensor<?x4xbf16> {
  // CHECK: "kitsune.pipeline"() ({
  // CHECK-NEXT: "kitsune.store"(%{{.*}}) {index = 0 : i64} : (tensor<?x4xbf16>) -> ()
  %p = "kitsune.pipeline"() ({
    "kitsune.store"(%x) {index = 0 : i64} : (tensor<?x4xbf16>) -> ()
  }) {sym_name = "plain"} : () -> !kitsune.outputs
  %y = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x4xbf16>
  return %y : tensor<?x4xbf16>
}

// CHECK-LABEL: func.func @every_operation_of_a_schedule
func.func @every_operation_of_a_schedule(%a: tensor<64x64xbf16>, %b: tensor<64x64xf32>, %m: index) -> tensor<64x64xf32> {
  // CHECK: %{{.*}} = "kitsune.kernel"() ({
  %p = "kitsune.kernel"() ({
    // CHECK: %{{.*}} = "kitsune.tiles"(%{{.*}}, %{{.*}}) {tile = array<i64: 64, 64>} : (index, index) -> (index, index, index)
    %lower, %upper, %step = "kitsune.tiles"(%m, %m) {tile = array<i64: 64, 64>} : (index, index) -> (index, index, index)
    // CHECK: %{{.*}} = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "left"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "left"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    // CHECK: "kitsune.agent"() ({
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      // CHECK: %{{.*}} = "kitsune.acquire"(%{{.*}}) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // CHECK: %{{.*}} = "kitsune.copy"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {dims = array<i64: 0, 1>, engine = "tma", last = 40 : i64} : (!kitsune.slot<tensor<64x64xbf16>>, tensor<64x64xbf16>, index, index) -> !kitsune.token
      %d = "kitsune.copy"(%s, %a, %m, %m) {dims = array<i64: 0, 1>, engine = "tma", last = 40 : i64} : (!kitsune.slot<tensor<64x64xbf16>>, tensor<64x64xbf16>, index, index) -> !kitsune.token
      // CHECK: "kitsune.commit"(%{{.*}}, %{{.*}}) : (!kitsune.slot<tensor<64x64xbf16>>, !kitsune.token) -> ()
      "kitsune.commit"(%s, %d) : (!kitsune.slot<tensor<64x64xbf16>>, !kitsune.token) -> ()
    // CHECK: }) {copies = 1 : i64, registers = 40 : i64, sym_name = "load", warps = 1 : i64} : () -> ()
    }) {copies = 1 : i64, registers = 40 : i64, sym_name = "load", warps = 1 : i64} : () -> ()
    // CHECK: "kitsune.agent"() ({
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      // CHECK: %{{.*}} = "kitsune.wait"(%{{.*}}) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      %s = "kitsune.wait"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // CHECK: %{{.*}} = "kitsune.sums"() : () -> !kitsune.acc<tensor<64x64xf32>>
      %z = "kitsune.sums"() : () -> !kitsune.acc<tensor<64x64xf32>>
      // CHECK: %{{.*}} = "kitsune.product"(%{{.*}}, %{{.*}}, %{{.*}}) {engine = "wgmma"} : (!kitsune.acc<tensor<64x64xf32>>, !kitsune.slot<tensor<64x64xbf16>>, !kitsune.slot<tensor<64x64xbf16>>) -> (!kitsune.acc<tensor<64x64xf32>>, !kitsune.token)
      %u, %e = "kitsune.product"(%z, %s, %s) {engine = "wgmma"} : (!kitsune.acc<tensor<64x64xf32>>, !kitsune.slot<tensor<64x64xbf16>>, !kitsune.slot<tensor<64x64xbf16>>) -> (!kitsune.acc<tensor<64x64xf32>>, !kitsune.token)
      // CHECK: %{{.*}} = "kitsune.settle"(%{{.*}}) : (!kitsune.acc<tensor<64x64xf32>>) -> tensor<64x64xf32>
      %h = "kitsune.settle"(%u) : (!kitsune.acc<tensor<64x64xf32>>) -> tensor<64x64xf32>
      // CHECK: "kitsune.release"(%{{.*}}, %{{.*}}) : (!kitsune.slot<tensor<64x64xbf16>>, !kitsune.token) -> ()
      "kitsune.release"(%s, %e) : (!kitsune.slot<tensor<64x64xbf16>>, !kitsune.token) -> ()
      // CHECK: %{{.*}} = "kitsune.read"(%{{.*}}, %{{.*}}, %{{.*}}) {dims = array<i64: 0, 1>} : (tensor<64x64xf32>, index, index) -> tensor<64x64xf32>
      %r = "kitsune.read"(%b, %m, %m) {dims = array<i64: 0, 1>} : (tensor<64x64xf32>, index, index) -> tensor<64x64xf32>
      // CHECK: %{{.*}} = "kitsune.read"(%{{.*}}) {ahead, dims = array<i64: 0, 1>}
      %ra = "kitsune.read"(%b, %m, %m) {ahead, dims = array<i64: 0, 1>} : (tensor<64x64xf32>, index, index) -> tensor<64x64xf32>
      %w = arith.addf %h, %r : tensor<64x64xf32>
      // CHECK: "kitsune.write"(%{{.*}}, %{{.*}}, %{{.*}}) {dims = array<i64: 0, 1>, index = 0 : i64} : (tensor<64x64xf32>, index, index) -> ()
      "kitsune.write"(%w, %m, %m) {dims = array<i64: 0, 1>, index = 0 : i64} : (tensor<64x64xf32>, index, index) -> ()
    // CHECK: }) {copies = 1 : i64, registers = 232 : i64, sym_name = "math", warps = 4 : i64} : () -> ()
    }) {copies = 1 : i64, registers = 232 : i64, sym_name = "math", warps = 4 : i64} : () -> ()
  // CHECK: }) {limit = "L2", predicted_us = 1.500000e+00 : f64, single, sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  }) {limit = "L2", predicted_us = 1.500000e+00 : f64, single, sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  // CHECK: %{{.*}} = "kitsune.result"(%{{.*}}) {index = 0 : i64} : (!kitsune.outputs) -> tensor<64x64xf32>
  %y = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<64x64xf32>
  return %y : tensor<64x64xf32>
}

// CHECK-LABEL: func.func @dots
func.func @dots(%a: tensor<9x27x64xbf16>, %m: index) -> tensor<9x27x27xf32> {
  %p = "kitsune.kernel"() ({
    %lower, %upper, %step = "kitsune.tiles"(%m) {tile = array<i64: 1>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      %z = "kitsune.read"(%a, %m, %m, %m) {dims = array<i64: 1, 2>} : (tensor<9x27x64xbf16>, index, index, index) -> tensor<27x64xbf16>
      // CHECK: %{{.*}} = "kitsune.dots"(%{{.*}}, %{{.*}}) : (tensor<27x64xbf16>, tensor<27x64xbf16>) -> tensor<27x27xf32>
      %c = "kitsune.dots"(%z, %z) : (tensor<27x64xbf16>, tensor<27x64xbf16>) -> tensor<27x27xf32>
      // CHECK: %{{.*}} = "kitsune.stash"(%{{.*}}) : (tensor<27x27xf32>) -> tensor<27x27xf32>
      %s = "kitsune.stash"(%c) : (tensor<27x27xf32>) -> tensor<27x27xf32>
      "kitsune.write"(%s, %m, %m, %m) {dims = array<i64: 1, 2>, index = 0 : i64} : (tensor<27x27xf32>, index, index, index) -> ()
    }) {copies = 1 : i64, registers = 168 : i64, sym_name = "dots", warps = 1 : i64} : () -> ()
  }) {ctas = 12 : i64, least = 1 : i64, sym_name = "k"} : () -> !kitsune.outputs
  %y = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<9x27x27xf32>
  return %y : tensor<9x27x27xf32>
}

// CHECK-LABEL: func.func @chain_of_a_schedule
func.func @chain_of_a_schedule(%a: tensor<64x64xbf16>, %f: tensor<64x64xf32>, %to: tensor<64xi32>, %b: tensor<64xbf16>, %of: tensor<5x64x64xbf16>, %m: index, %c0: index) -> tensor<64x16xbf16> {
  %p = "kitsune.kernel"() ({
    %lower, %upper, %step = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "weights"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    // CHECK: %{{.*}} = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "vectors"} : () -> !kitsune.ring<tensor<1x128xbf16>, 1 : i64>
    %v = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "vectors"} : () -> !kitsune.ring<tensor<1x128xbf16>, 1 : i64>
    // CHECK: %{{.*}} = "kitsune.alloc_ring"() {box = "rows", share = "own", space = "smem", sym_name = "stowed"} : () -> !kitsune.ring<tensor<64x64xbf16>, 1 : i64>
    %o = "kitsune.alloc_ring"() {box = "rows", share = "own", space = "smem", sym_name = "stowed"} : () -> !kitsune.ring<tensor<64x64xbf16>, 1 : i64>
    // CHECK: %{{.*}} = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "turn"} : () -> !kitsune.ring<tensor<1x0xi8>, 1 : i64>
    %turn = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "turn"} : () -> !kitsune.ring<tensor<1x0xi8>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      %s = "kitsune.acquire"(%turn) : (!kitsune.ring<tensor<1x0xi8>, 1 : i64>) -> !kitsune.slot<tensor<1x0xi8>>
      // CHECK: "kitsune.prefetch"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) : (!kitsune.slot<tensor<1x0xi8>>, tensor<64x64xbf16>, tensor<64xi32>, index, index) -> ()
      "kitsune.prefetch"(%s, %a, %to, %c0, %m) : (!kitsune.slot<tensor<1x0xi8>>, tensor<64x64xbf16>, tensor<64xi32>, index, index) -> ()
      "kitsune.commit"(%s) : (!kitsune.slot<tensor<1x0xi8>>) -> ()
    }) {copies = 1 : i64, registers = 40 : i64, sym_name = "ask", warps = 3 : i64} : () -> ()
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      %d = "kitsune.acquire"(%v) : (!kitsune.ring<tensor<1x128xbf16>, 1 : i64>) -> !kitsune.slot<tensor<1x128xbf16>>
      // CHECK: %{{.*}} = "kitsune.copy"(%{{.*}}, %{{.*}}) {dims = array<i64>, engine = "tma", into = 0 : i64} : (!kitsune.slot<tensor<1x128xbf16>>, tensor<64xbf16>) -> !kitsune.token
      %d0 = "kitsune.copy"(%d, %b) {dims = array<i64>, engine = "tma", into = 0 : i64} : (!kitsune.slot<tensor<1x128xbf16>>, tensor<64xbf16>) -> !kitsune.token
      // CHECK: %{{.*}} = "kitsune.copy"(%{{.*}}, %{{.*}}) {dims = array<i64>, engine = "tma", into = 64 : i64} : (!kitsune.slot<tensor<1x128xbf16>>, tensor<64xbf16>) -> !kitsune.token
      %d1 = "kitsune.copy"(%d, %b) {dims = array<i64>, engine = "tma", into = 64 : i64} : (!kitsune.slot<tensor<1x128xbf16>>, tensor<64xbf16>) -> !kitsune.token
      "kitsune.commit"(%d, %d0, %d1) : (!kitsune.slot<tensor<1x128xbf16>>, !kitsune.token, !kitsune.token) -> ()
      // CHECK: %{{.*}} = "kitsune.acquire"(%{{.*}}) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<16x64xbf16>>
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<16x64xbf16>>
      // CHECK: %{{.*}} = "kitsune.select"(%{{.*}}, %{{.*}}, %{{.*}}) : (index, tensor<64x64xbf16>, tensor<64x64xbf16>) -> tensor<64x64xbf16>
      %w = "kitsune.select"(%c0, %a, %a) : (index, tensor<64x64xbf16>, tensor<64x64xbf16>) -> tensor<64x64xbf16>
      %e = "kitsune.copy"(%s, %w, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!kitsune.slot<tensor<16x64xbf16>>, tensor<64x64xbf16>, index, index) -> !kitsune.token
      "kitsune.commit"(%s, %e) : (!kitsune.slot<tensor<16x64xbf16>>, !kitsune.token) -> ()
      // CHECK: %{{.*}} = "kitsune.look_up"(%{{.*}}, %{{.*}}) {size = 5 : i64, wrapped} : (tensor<64xi32>, index) -> index
      %place = "kitsune.look_up"(%to, %c0) {size = 5 : i64, wrapped} : (tensor<64xi32>, index) -> index
      %r = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      %i = "kitsune.copy"(%r, %of, %place, %c0, %c0) {dims = array<i64: 1, 2>, engine = "tma"} : (!kitsune.slot<tensor<64x64xbf16>>, tensor<5x64x64xbf16>, index, index, index) -> !kitsune.token
      "kitsune.commit"(%r, %i) : (!kitsune.slot<tensor<64x64xbf16>>, !kitsune.token) -> ()
      %g = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // CHECK: %{{.*}} = "kitsune.gather_rows"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) : (!kitsune.slot<tensor<64x64xbf16>>, tensor<64x64xbf16>, tensor<64xi32>, index, index, index) -> !kitsune.token
      %h = "kitsune.gather_rows"(%g, %a, %to, %c0, %m, %c0) : (!kitsune.slot<tensor<64x64xbf16>>, tensor<64x64xbf16>, tensor<64xi32>, index, index, index) -> !kitsune.token
      "kitsune.commit"(%g, %h) : (!kitsune.slot<tensor<64x64xbf16>>, !kitsune.token) -> ()
    }) {copies = 1 : i64, registers = 40 : i64, sym_name = "feed", warps = 4 : i64} : () -> ()
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      %asked = "kitsune.wait"(%turn) : (!kitsune.ring<tensor<1x0xi8>, 1 : i64>) -> !kitsune.slot<tensor<1x0xi8>>
      "kitsune.release"(%asked) : (!kitsune.slot<tensor<1x0xi8>>) -> ()
      %d = "kitsune.wait"(%v) : (!kitsune.ring<tensor<1x128xbf16>, 1 : i64>) -> !kitsune.slot<tensor<1x128xbf16>>
      // CHECK: %{{.*}} = "kitsune.read"(%{{.*}}, %{{.*}}) : (!kitsune.slot<tensor<1x128xbf16>>, index) -> tensor<16xbf16>
      %bias = "kitsune.read"(%d, %c0) : (!kitsune.slot<tensor<1x128xbf16>>, index) -> tensor<16xbf16>
      %t = "kitsune.read"(%a, %m, %c0) {dims = array<i64: 0, 1>} : (tensor<64x64xbf16>, index, index) -> tensor<64x64xbf16>
      // CHECK: %{{.*}} = "kitsune.part"(%{{.*}}) {first = 8 : i64, wide} : (tensor<64x64xbf16>) -> tensor<64x16xbf16>
      %wide = "kitsune.part"(%t) {first = 8 : i64, wide} : (tensor<64x64xbf16>) -> tensor<64x16xbf16>
      // CHECK: %{{.*}} = "kitsune.part"(%{{.*}}) {first = 0 : i64} : (tensor<64x16xbf16>) -> tensor<64x16xbf16>
      %left = "kitsune.part"(%wide) {first = 0 : i64} : (tensor<64x16xbf16>) -> tensor<64x16xbf16>
      %s = "kitsune.wait"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<16x64xbf16>>
      // CHECK: %{{.*}} = "kitsune.sums"(%{{.*}}) : (tensor<64x16xbf16>) -> !kitsune.acc<tensor<64x16xf32>>
      %z = "kitsune.sums"(%wide) : (tensor<64x16xbf16>) -> !kitsune.acc<tensor<64x16xf32>>
      // CHECK: %{{.*}} = "kitsune.product"(%{{.*}}, %{{.*}}, %{{.*}}) {engine = "wgmma"} : (!kitsune.acc<tensor<64x16xf32>>, tensor<64x16xbf16>, !kitsune.slot<tensor<16x64xbf16>>) -> (!kitsune.acc<tensor<64x16xf32>>, !kitsune.token)
      %u, %e = "kitsune.product"(%z, %left, %s) {engine = "wgmma"} : (!kitsune.acc<tensor<64x16xf32>>, tensor<64x16xbf16>, !kitsune.slot<tensor<16x64xbf16>>) -> (!kitsune.acc<tensor<64x16xf32>>, !kitsune.token)
      // CHECK: %{{.*}} = "kitsune.spread"(%{{.*}}) {columns = array<i64: 3, 9>} : (tensor<64x16xbf16>) -> tensor<64x16xbf16>
      %all = "kitsune.spread"(%left) {columns = array<i64: 3, 9>} : (tensor<64x16xbf16>) -> tensor<64x16xbf16>
      // CHECK: %{{.*}} = "kitsune.stow"(%{{.*}}, %{{.*}}) : (!kitsune.ring<tensor<64x64xbf16>, 1 : i64>, tensor<64x16xbf16>) -> !kitsune.slot<tensor<64x16xbf16>>
      %h = "kitsune.stow"(%o, %left) : (!kitsune.ring<tensor<64x64xbf16>, 1 : i64>, tensor<64x16xbf16>) -> !kitsune.slot<tensor<64x16xbf16>>
      %u2, %e2 = "kitsune.product"(%u, %h, %s) {engine = "wgmma"} : (!kitsune.acc<tensor<64x16xf32>>, !kitsune.slot<tensor<64x16xbf16>>, !kitsune.slot<tensor<16x64xbf16>>) -> (!kitsune.acc<tensor<64x16xf32>>, !kitsune.token)
      "kitsune.release"(%h, %e2) : (!kitsune.slot<tensor<64x16xbf16>>, !kitsune.token) -> ()
      "kitsune.release"(%s, %e, %e2) : (!kitsune.slot<tensor<16x64xbf16>>, !kitsune.token, !kitsune.token) -> ()
      // CHECK: "kitsune.write"(%{{.*}}, %{{.*}}, %{{.*}}) {dims = array<i64: 0, 1>, engine = "tma", index = 0 : i64} : (tensor<64x16xbf16>, index, index) -> ()
      "kitsune.write"(%left, %m, %c0) {dims = array<i64: 0, 1>, engine = "tma", index = 0 : i64} : (tensor<64x16xbf16>, index, index) -> ()
      // CHECK: %{{.*}} = "kitsune.part"(%{{.*}}) {first = 0 : i64, wide} : (tensor<64x64xf32>) -> tensor<64x16xf32>
      %sums = "kitsune.part"(%f) {first = 0 : i64, wide} : (tensor<64x64xf32>) -> tensor<64x16xf32>
      // CHECK: %{{.*}} = "kitsune.sums"(%{{.*}}) {begin} : (tensor<64x16xf32>) -> !kitsune.acc<tensor<64x16xf32>>
      %begun = "kitsune.sums"(%sums) {begin} : (tensor<64x16xf32>) -> !kitsune.acc<tensor<64x16xf32>>
      // CHECK: "kitsune.write_rows"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {adds, index = 1 : i64} : (tensor<64x16xf32>, tensor<64xi32>, index, index, index) -> ()
      "kitsune.write_rows"(%sums, %to, %c0, %m, %c0) {adds, index = 1 : i64} : (tensor<64x16xf32>, tensor<64xi32>, index, index, index) -> ()
      "kitsune.release"(%d) : (!kitsune.slot<tensor<1x128xbf16>>) -> ()
    }) {copies = 1 : i64, registers = 232 : i64, sym_name = "math", warps = 4 : i64} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  %y = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<64x16xbf16>
  %sum = "kitsune.result"(%p) {index = 1 : i64} : (!kitsune.outputs) -> tensor<100x16xf32>
  return %y : tensor<64x16xbf16>
}

// Two CTAs, each of which has a part of k, add up their sums of a tile of few rows.
// CHECK-LABEL: func.func @cluster
func.func @cluster(%a: tensor<16x128xbf16>, %m: index) -> tensor<16x64xf32> {
  %c0 = arith.constant 0 : index
  // CHECK: "kitsune.kernel"
  %p = "kitsune.kernel"() ({
    %lower, %upper, %step = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "left"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      // CHECK: %{{.*}} = "kitsune.rank"() : () -> index
      %r = "kitsune.rank"() : () -> index
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<16x64xbf16>>
      %e = "kitsune.copy"(%s, %a, %c0, %r) {dims = array<i64: 0, 1>, engine = "tma"} : (!kitsune.slot<tensor<16x64xbf16>>, tensor<16x128xbf16>, index, index) -> !kitsune.token
      "kitsune.commit"(%s, %e) : (!kitsune.slot<tensor<16x64xbf16>>, !kitsune.token) -> ()
    }) {copies = 1 : i64, registers = 40 : i64, sym_name = "feed", warps = 4 : i64} : () -> ()
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      %s = "kitsune.wait"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<16x64xbf16>>
      %z = "kitsune.sums"() : () -> !kitsune.acc<tensor<64x16xf32>>
      // CHECK: "kitsune.product"(%{{.*}}, %{{.*}}, %{{.*}}) {engine = "wgmma"} : (!kitsune.acc<tensor<64x16xf32>>, !kitsune.slot<tensor<16x64xbf16>>, !kitsune.slot<tensor<16x64xbf16>>)
      %u, %e = "kitsune.product"(%z, %s, %s) {engine = "wgmma"} : (!kitsune.acc<tensor<64x16xf32>>, !kitsune.slot<tensor<16x64xbf16>>, !kitsune.slot<tensor<16x64xbf16>>) -> (!kitsune.acc<tensor<64x16xf32>>, !kitsune.token)
      %t = "kitsune.settle"(%u) : (!kitsune.acc<tensor<64x16xf32>>) -> tensor<64x16xf32>
      "kitsune.release"(%s, %e) : (!kitsune.slot<tensor<16x64xbf16>>, !kitsune.token) -> ()
      // CHECK: %{{.*}} = "kitsune.meet"(%{{.*}}) : (tensor<64x16xf32>) -> tensor<64x8xf32>
      %h = "kitsune.meet"(%t) : (tensor<64x16xf32>) -> tensor<64x8xf32>
      "kitsune.write"(%h, %c0, %c0) {dims = array<i64: 0, 1>, index = 0 : i64} : (tensor<64x8xf32>, index, index) -> ()
    }) {copies = 1 : i64, registers = 232 : i64, sym_name = "math", warps = 4 : i64} : () -> ()
  // CHECK: }) {cluster = 2 : i64, sym_name = "k"}
  }) {cluster = 2 : i64, sym_name = "k"} : () -> !kitsune.outputs
  %y = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<16x64xf32>
  return %y : tensor<16x64xf32>
}

// CHECK-LABEL: func.func @exchange
func.func @exchange(%a: tensor<64x64xbf16>, %b: tensor<64xf32>, %m: index) -> tensor<64xf32> {
  %c0 = arith.constant 0 : index
  %p = "kitsune.kernel"() ({
    %lower, %upper, %step = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    // CHECK: "kitsune.alloc_ring"() {box = "rows", share = "own", space = "dsmem", sym_name = "sent"}
    %x = "kitsune.alloc_ring"() {box = "rows", share = "own", space = "dsmem", sym_name = "sent"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      %t = "kitsune.part"(%a) {first = 0 : i64} : (tensor<64x64xbf16>) -> tensor<64x32xbf16>
      // CHECK: "kitsune.send"(%{{.*}}, %{{.*}}) {{.*}}: (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>, tensor<64x32xbf16>) -> ()
      "kitsune.send"(%x, %t) {operandSegmentSizes = array<i32: 1, 1>} : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>, tensor<64x32xbf16>) -> ()
      // CHECK: "kitsune.wait"(%{{.*}}) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x32xbf16>>
      %s = "kitsune.wait"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x32xbf16>>
      "kitsune.release"(%s) : (!kitsune.slot<tensor<64x32xbf16>>) -> ()
      // CHECK: %{{.*}} = "kitsune.total"(%{{.*}}) {join = "arith.addf"} : (tensor<64xf32>) -> tensor<64xf32>
      %h = "kitsune.total"(%b) {join = "arith.addf"} : (tensor<64xf32>) -> tensor<64xf32>
      // CHECK: "kitsune.write"(%{{.*}}, %{{.*}}) {dims = array<i64: 0>, index = 0 : i64, once
      "kitsune.write"(%h, %c0) {dims = array<i64: 0>, index = 0 : i64, once} : (tensor<64xf32>, index) -> ()
    }) {copies = 1 : i64, registers = 232 : i64, sym_name = "math", warps = 4 : i64} : () -> ()
  }) {cluster = 2 : i64, sym_name = "k"} : () -> !kitsune.outputs
  %y = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<64xf32>
  return %y : tensor<64xf32>
}

// CHECK-LABEL: func.func @collect
func.func @collect(%a: tensor<64x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lower, %upper, %step = "kitsune.tiles"(%m) {tile = array<i64: 16>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "own", space = "dsmem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      %t = tensor.extract_slice %a[0, 0] [16, 32] [1, 1] : tensor<64x64xbf16> to tensor<16x32xbf16>
      // CHECK: "kitsune.collect"(%{{.*}}, %{{.*}}) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>, tensor<16x32xbf16>) -> ()
      "kitsune.collect"(%x, %t) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>, tensor<16x32xbf16>) -> ()
      // CHECK: "kitsune.wait"(%{{.*}}) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<16x64xbf16>>
      %s = "kitsune.wait"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<16x64xbf16>>
      "kitsune.release"(%s) : (!kitsune.slot<tensor<16x64xbf16>>) -> ()
      %r = "kitsune.wait"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<16x64xbf16>>
      "kitsune.release"(%r) : (!kitsune.slot<tensor<16x64xbf16>>) -> ()
    }) {copies = 1 : i64, registers = 232 : i64, sym_name = "math", warps = 4 : i64} : () -> ()
  }) {cluster = 4 : i64, sym_name = "k"} : () -> !kitsune.outputs
  return
}

// CHECK-LABEL: func.func @roles
func.func @roles(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %p = "kitsune.kernel"() ({
    // CHECK: "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !kitsune.ring<tensor<64x128xbf16>, 2 : i64>
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !kitsune.ring<tensor<64x128xbf16>, 2 : i64>
    "kitsune.role"() ({
      %lower, %upper, %step = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %t = %lower to %upper step %step {
          %s = "kitsune.acquire"(%q) : (!kitsune.ring<tensor<64x128xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x128xbf16>>
          // CHECK: "kitsune.fill"(%{{.*}}, %{{.*}}, %{{.*}}) : (!kitsune.slot<tensor<64x128xbf16>>, tensor<64x64xbf16>, index) -> ()
          "kitsune.fill"(%s, %A, %c0) : (!kitsune.slot<tensor<64x128xbf16>>, tensor<64x64xbf16>, index) -> ()
          "kitsune.commit"(%s) : (!kitsune.slot<tensor<64x128xbf16>>) -> ()
        }
      }) {copies = 1 : i64, registers = 240 : i64, sym_name = "math", warps = 4 : i64} : () -> ()
    // CHECK: }) {replicas = 3 : i64, sym_name = "first"} : () -> ()
    }) {replicas = 3 : i64, sym_name = "first"} : () -> ()
    "kitsune.role"() ({
      %lower, %upper, %step = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %t = %lower to %upper step %step {
          %s = "kitsune.wait"(%q) : (!kitsune.ring<tensor<64x128xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x128xbf16>>
          %e = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
          // CHECK: "kitsune.copy"(%{{.*}}, %{{.*}}, %{{.*}}) {{.*}} : (!kitsune.slot<tensor<64x64xbf16>>, !kitsune.slot<tensor<64x128xbf16>>, index, index) -> !kitsune.token
          %d = "kitsune.copy"(%e, %s, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!kitsune.slot<tensor<64x64xbf16>>, !kitsune.slot<tensor<64x128xbf16>>, index, index) -> !kitsune.token
          "kitsune.commit"(%e, %d) : (!kitsune.slot<tensor<64x64xbf16>>, !kitsune.token) -> ()
          "kitsune.release"(%s) : (!kitsune.slot<tensor<64x128xbf16>>) -> ()
        }
      }) {copies = 1 : i64, registers = 24 : i64, sym_name = "feed", warps = 4 : i64} : () -> ()
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %t = %lower to %upper step %step {
          %s = "kitsune.wait"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
          "kitsune.release"(%s) : (!kitsune.slot<tensor<64x64xbf16>>) -> ()
        }
      }) {copies = 1 : i64, registers = 240 : i64, sym_name = "math", warps = 4 : i64} : () -> ()
    }) {replicas = 2 : i64, sym_name = "second"} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// CHECK-LABEL: func.func @windows
func.func @windows(%x: tensor<2x7x9x64xbf16>)
    -> (tensor<2x28x384xbf16>, tensor<14x192xbf16>, tensor<14x144xbf16>) {
  // CHECK: %{{.*}} = "kitsune.windows"(%{{.*}}) {dilations = array<i64: 1, 1>, filter = array<i64: 3, 2>, low = array<i64: 1, 0>, places = array<i64: 7, 4>, strides = array<i64: 1, 2>} : (tensor<2x7x9x64xbf16>) -> tensor<2x28x384xbf16>
  %m = "kitsune.windows"(%x) {dilations = array<i64: 1, 1>, filter = array<i64: 3, 2>, low = array<i64: 1, 0>, places = array<i64: 7, 4>, strides = array<i64: 1, 2>} : (tensor<2x7x9x64xbf16>) -> tensor<2x28x384xbf16>
  // CHECK: %{{.*}} = "kitsune.windows"(%{{.*}}) {dilations = array<i64: 1>, filter = array<i64: 1>, low = array<i64: 0>, pitches = array<i64: 4032, 576>, places = array<i64: 7>, sizes = array<i64: 7, 192>, strides = array<i64: 1>} : (tensor<2x7x9x64xbf16>) -> tensor<14x192xbf16>
  %n = "kitsune.windows"(%x) {dilations = array<i64: 1>, filter = array<i64: 1>, low = array<i64: 0>, pitches = array<i64: 4032, 576>, places = array<i64: 7>, sizes = array<i64: 7, 192>, strides = array<i64: 1>} : (tensor<2x7x9x64xbf16>) -> tensor<14x192xbf16>
  // CHECK: %{{.*}} = "kitsune.windows"(%{{.*}}) {chunk = 48 : i64, dilations = array<i64: 1>, filter = array<i64: 1>, low = array<i64: 0>, pitches = array<i64: 4032, 576>, places = array<i64: 7>, sizes = array<i64: 7, 128>, strides = array<i64: 1>} : (tensor<2x7x9x64xbf16>) -> tensor<14x144xbf16>
  %o = "kitsune.windows"(%x) {chunk = 48 : i64, dilations = array<i64: 1>, filter = array<i64: 1>, low = array<i64: 0>, pitches = array<i64: 4032, 576>, places = array<i64: 7>, sizes = array<i64: 7, 128>, strides = array<i64: 1>} : (tensor<2x7x9x64xbf16>) -> tensor<14x144xbf16>
  return %m, %n, %o : tensor<2x28x384xbf16>, tensor<14x192xbf16>, tensor<14x144xbf16>
}

// CHECK-LABEL: func.func @open_windows
func.func @open_windows(%x: tensor<?x?x9x64xbf16>, %n: tensor<?xi8>) -> tensor<?x384xbf16> {
  // CHECK: %{{.*}} = "kitsune.windows"(%{{.*}}, %{{.*}}) {dilations = array<i64: 1, 1>, filter = array<i64: 3, 2>, low = array<i64: 1, 0>, places = array<i64: -1, 4>, strides = array<i64: 1, 2>, upper = array<i64: -1, -1>} : (tensor<?x?x9x64xbf16>, tensor<?xi8>) -> tensor<?x384xbf16>
  %m = "kitsune.windows"(%x, %n) {dilations = array<i64: 1, 1>, filter = array<i64: 3, 2>, low = array<i64: 1, 0>, places = array<i64: -1, 4>, strides = array<i64: 1, 2>, upper = array<i64: -1, -1>} : (tensor<?x?x9x64xbf16>, tensor<?xi8>) -> tensor<?x384xbf16>
  return %m : tensor<?x384xbf16>
}

// CHECK-LABEL: func.func private @types(!kitsune.ring<tensor<?x3x5xi8>, 7 : i64>, !kitsune.outputs, !kitsune.slot<tensor<2x3xf32>>, !kitsune.acc<f32>, !kitsune.token)
func.func private @types(!kitsune.ring<tensor<?x3x5xi8>, 7 : i64>, !kitsune.outputs, !kitsune.slot<tensor<2x3xf32>>, !kitsune.acc<f32>, !kitsune.token)

// CHECK-LABEL: func.func private @columns(tensor<?x369xbf16, #kitsune.columns<0 : i64, 376 : i64, false>>)
func.func private @columns(tensor<?x369xbf16, #kitsune.columns<0 : i64, 376 : i64, false>>)

// LOC-DAG: #[[QUEUE]] = loc("model.py":12:3)
// LOC-DAG: #[[FORWARD:loc[0-9]*]] = loc("model.py":20:1)
// LOC-DAG: #[[STORE]] = loc(callsite(

// CHECK-LABEL: func.func @scattered
func.func @scattered(%x: tensor<64x8xf32>, %to: tensor<64xi64>) -> tensor<5x8xf32> {
  %p = "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %tile = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<16x8xf32>
      // CHECK: %[[TO:.*]] = "kitsune.load"(%{{.*}}) : (tensor<64xi64>) -> tensor<16xi64>
      %rows = "kitsune.load"(%to) : (tensor<64xi64>) -> tensor<16xi64>
      // CHECK-NEXT: "kitsune.scatter"(%{{.*}}, %[[TO]]) {index = 0 : i64} : (tensor<16x8xf32>, tensor<16xi64>) -> ()
      "kitsune.scatter"(%tile, %rows) {index = 0 : i64} : (tensor<16x8xf32>, tensor<16xi64>) -> ()
    }) {kind = "simt", replicas = 1 : i64, role = 0 : i64, sym_name = "add"} : () -> ()
  }) {sym_name = "p", target = "sm_90a", tile_rows = 16 : i64} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<5x8xf32>
  return %r : tensor<5x8xf32>
}

// CHECK-LABEL: func.func @scattered_to_any_rows
func.func @scattered_to_any_rows(%x: tensor<64x8xf32>, %to: tensor<64xi64>, %like: tensor<?x3xf32>) -> tensor<?x8xf32> {
  %p = "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %tile = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<16x8xf32>
      %rows = "kitsune.load"(%to) : (tensor<64xi64>) -> tensor<16xi64>
      // CHECK: "kitsune.scatter"(%{{.*}}, %{{.*}}, %{{.*}}) {index = 0 : i64} : (tensor<16x8xf32>, tensor<16xi64>, tensor<?x3xf32>) -> ()
      "kitsune.scatter"(%tile, %rows, %like) {index = 0 : i64} : (tensor<16x8xf32>, tensor<16xi64>, tensor<?x3xf32>) -> ()
    }) {kind = "simt", replicas = 1 : i64, role = 0 : i64, sym_name = "add"} : () -> ()
  }) {sym_name = "p", target = "sm_90a", tile_rows = 16 : i64} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}

// CHECK-LABEL: func.func @ordered
func.func @ordered(%keys: tensor<?xi64>, %count: index, %with: tensor<?xi64>) -> (tensor<?xi32>, tensor<?xi32>) {
  // CHECK: %{{.*}}:3 = "kitsune.order"(%{{.*}}, %{{.*}}, %{{.*}}) : (tensor<?xi64>, index, tensor<?xi64>) -> (tensor<?xi32>, tensor<?xi32>, tensor<?xi64>)
  %rows, %places, %moved = "kitsune.order"(%keys, %count, %with) : (tensor<?xi64>, index, tensor<?xi64>) -> (tensor<?xi32>, tensor<?xi32>, tensor<?xi64>)
  return %rows, %places : tensor<?xi32>, tensor<?xi32>
}

// CHECK-LABEL: func.func @systems
func.func @systems(%a: tensor<?x8x8xf32>, %b: tensor<?x8x?xf32>) -> (tensor<?x8x?xf32>, tensor<?x8xf32>) {
  // CHECK: "kitsune.cholesky"(%{{.*}}) : (tensor<?x8x8xf32>) -> tensor<?x8x8xf32>
  %factor = "kitsune.cholesky"(%a) : (tensor<?x8x8xf32>) -> tensor<?x8x8xf32>
  // CHECK: "kitsune.substitute"(%{{.*}}, %{{.*}}) {transposed, unit, upper} : (tensor<?x8x?xf32>, tensor<?x8x8xf32>) -> tensor<?x8x?xf32>
  %half = "kitsune.substitute"(%b, %factor) {upper, transposed, unit} : (tensor<?x8x?xf32>, tensor<?x8x8xf32>) -> tensor<?x8x?xf32>
  // CHECK: "kitsune.solve"(%{{.*}}, %{{.*}}) : (tensor<?x8x?xf32>, tensor<?x8x8xf32>) -> tensor<?x8x?xf32>
  %x = "kitsune.solve"(%half, %a) : (tensor<?x8x?xf32>, tensor<?x8x8xf32>) -> tensor<?x8x?xf32>
  // CHECK: "kitsune.pivots"(%{{.*}}) : (tensor<?x8x8xf32>) -> tensor<?x8xf32>
  %pivots = "kitsune.pivots"(%a) : (tensor<?x8x8xf32>) -> tensor<?x8xf32>
  return %x, %pivots : tensor<?x8x?xf32>, tensor<?x8xf32>
}

// CHECK-LABEL: func.func @transformed
func.func @transformed(%x: tensor<?x100xf32>) -> tensor<?x100xf32> {
  // CHECK: %{{.*}}:2 = "kitsune.firsts"(%{{.*}}) {descending} : (tensor<?x100xf32>) -> (tensor<?x20xf32>, tensor<?x20xi64>)
  %firsts:2 = "kitsune.firsts"(%x) {descending} : (tensor<?x100xf32>) -> (tensor<?x20xf32>, tensor<?x20xi64>)
  // CHECK: %{{.*}}:2 = "kitsune.fourier"(%{{.*}}) {dimension = 1 : i64, scale = 1.000000e+00 : f64, size = 128 : i64} : (tensor<?x100xf32>) -> (tensor<?x65xf32>, tensor<?x65xf32>)
  %half:2 = "kitsune.fourier"(%x) {dimension = 1 : i64, size = 128 : i64, scale = 1.0 : f64} : (tensor<?x100xf32>) -> (tensor<?x65xf32>, tensor<?x65xf32>)
  // CHECK: "kitsune.fourier"(%{{.*}}, %{{.*}}) {dimension = 1 : i64, inverse, scale = 7.812500e-03 : f64, size = 128 : i64} : (tensor<?x65xf32>, tensor<?x65xf32>) -> tensor<?x100xf32>
  %y = "kitsune.fourier"(%half#0, %half#1) {dimension = 1 : i64, size = 128 : i64, scale = 0.0078125 : f64, inverse} : (tensor<?x65xf32>, tensor<?x65xf32>) -> tensor<?x100xf32>
  return %y : tensor<?x100xf32>
}

// CHECK-LABEL: func.func @filters
func.func @filters(%x: tensor<?x9x7x8xbf16>, %g: tensor<?x5x7x16xbf16>) -> tensor<3x3x32xf32> {
  // CHECK: "kitsune.filter_gradient"(%{{.*}}, %{{.*}}) {dilation = array<i64: 1, 1>, padding = array<i64: 1, 1>, stride = array<i64: 2, 1>} : (tensor<?x9x7x8xbf16>, tensor<?x5x7x16xbf16>) -> tensor<3x3x32xf32>
  %filters = "kitsune.filter_gradient"(%x, %g) {dilation = array<i64: 1, 1>, padding = array<i64: 1, 1>, stride = array<i64: 2, 1>} : (tensor<?x9x7x8xbf16>, tensor<?x5x7x16xbf16>) -> tensor<3x3x32xf32>
  return %filters : tensor<3x3x32xf32>
}

// CHECK-LABEL: func.func @placed
func.func @placed(%x: tensor<64x8xbf16>, %to: tensor<64xi32>) -> tensor<64x8xbf16> {
  %p = "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %tile = "kitsune.load"(%x) : (tensor<64x8xbf16>) -> tensor<16x8xbf16>
      // CHECK: %[[TO:.*]] = "kitsune.load"(%{{.*}}) : (tensor<64xi32>) -> tensor<16xi32>
      %rows = "kitsune.load"(%to) : (tensor<64xi32>) -> tensor<16xi32>
      // CHECK-NEXT: "kitsune.place"(%{{.*}}, %[[TO]]) {index = 0 : i64} : (tensor<16x8xbf16>, tensor<16xi32>) -> ()
      "kitsune.place"(%tile, %rows) {index = 0 : i64} : (tensor<16x8xbf16>, tensor<16xi32>) -> ()
    }) {kind = "simt", replicas = 1 : i64, role = 0 : i64, sym_name = "move"} : () -> ()
  }) {sym_name = "p", target = "sm_90a", tile_rows = 16 : i64} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<64x8xbf16>
  return %r : tensor<64x8xbf16>
}

// CHECK-LABEL: func.func @split
func.func @split(%m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "columns", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<128x64xf32>, 1 : i64>
    %q = "kitsune.alloc_ring"() {box = "columns", share = "all", space = "smem", sym_name = "q"} : () -> !kitsune.ring<tensor<128x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.wait"(%x) : (!kitsune.ring<tensor<128x64xf32>, 1 : i64>) -> !kitsune.slot<tensor<128x64xf32>>
      %high = "kitsune.acquire"(%q) : (!kitsune.ring<tensor<128x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<128x64xbf16>>
      %low = "kitsune.acquire"(%q) : (!kitsune.ring<tensor<128x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<128x64xbf16>>
      // CHECK: "kitsune.split"(%{{.*}}, %{{.*}}, %{{.*}}) : (!kitsune.slot<tensor<128x64xf32>>, !kitsune.slot<tensor<128x64xbf16>>, !kitsune.slot<tensor<128x64xbf16>>) -> ()
      "kitsune.split"(%s, %high, %low) : (!kitsune.slot<tensor<128x64xf32>>, !kitsune.slot<tensor<128x64xbf16>>, !kitsune.slot<tensor<128x64xbf16>>) -> ()
      "kitsune.commit"(%high) {operandSegmentSizes = array<i32: 1, 0>} : (!kitsune.slot<tensor<128x64xbf16>>) -> ()
      "kitsune.commit"(%low) {operandSegmentSizes = array<i32: 1, 0>} : (!kitsune.slot<tensor<128x64xbf16>>) -> ()
      "kitsune.release"(%s) {operandSegmentSizes = array<i32: 1, 0>} : (!kitsune.slot<tensor<128x64xf32>>) -> ()
    }) {copies = 1 : i64, registers = 88 : i64, sym_name = "make", warps = 4 : i64} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// CHECK-LABEL: func.func @turned_words
func.func @turned_words(%m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "columns", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<128x32xf32>, 1 : i64>
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "q"} : () -> !kitsune.ring<tensor<128x32xf32>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.wait"(%x) : (!kitsune.ring<tensor<128x32xf32>, 1 : i64>) -> !kitsune.slot<tensor<128x32xf32>>
      %t = "kitsune.acquire"(%q) : (!kitsune.ring<tensor<128x32xf32>, 2 : i64>) -> !kitsune.slot<tensor<128x32xf32>>
      // CHECK: "kitsune.split"(%{{.*}}, %{{.*}}) : (!kitsune.slot<tensor<128x32xf32>>, !kitsune.slot<tensor<128x32xf32>>) -> ()
      "kitsune.split"(%s, %t) : (!kitsune.slot<tensor<128x32xf32>>, !kitsune.slot<tensor<128x32xf32>>) -> ()
      "kitsune.commit"(%t) {operandSegmentSizes = array<i32: 1, 0>} : (!kitsune.slot<tensor<128x32xf32>>) -> ()
      "kitsune.release"(%s) {operandSegmentSizes = array<i32: 1, 0>} : (!kitsune.slot<tensor<128x32xf32>>) -> ()
    }) {copies = 1 : i64, registers = 88 : i64, sym_name = "make", warps = 4 : i64} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// CHECK-LABEL: @steps
func.func @steps(%x: tensor<2x?x64xf32>, %w: tensor<1x16x64xf32>, %b: tensor<1x64xf32>, %h: tensor<1x2x16xf32>, %c: tensor<1x2x16xf32>) -> tensor<2x?x16xf32> {
  // CHECK: kitsune.recurrent
  // CHECK-SAME: cell = "lstm"
  %y, %last:2 = "kitsune.recurrent"(%x, %w, %b, %h, %c) {cell = "lstm", time = 1 : i64} : (tensor<2x?x64xf32>, tensor<1x16x64xf32>, tensor<1x64xf32>, tensor<1x2x16xf32>, tensor<1x2x16xf32>) -> (tensor<2x?x16xf32>, tensor<1x2x16xf32>, tensor<1x2x16xf32>)
  return %y : tensor<2x?x16xf32>
}
