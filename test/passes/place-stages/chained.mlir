// RUN: kitsune-opt %s --place-stages='target=sm_90a shape=chained tile-rows=128' | filecheck %s
// RUN: kitsune-opt %s --place-stages=target=sm_90a | filecheck %s --check-prefix=SHORT
// RUN: kitsune-opt %s --place-stages='target=sm_90a shape=chained' | filecheck %s --check-prefix=SHORT

// Products of 16-bit elements are chained in the registers of warpgroups: tiles of 128 rows, queues in registers, one
// role. 1000 rows are 8 tiles; as they do not fill the chip, tiles of one warpgroup are taken, of 64 rows.

// SHORT: "kitsune.queue"() {sym_name = "hidden", transport = "reg"} : () -> !kitsune.ring<tensor<64x256xbf16>, 1 : i64>
// SHORT: {kind = "tensor", replicas = 16 : i64, role = 0 : i64, sym_name = "up"}
// SHORT: shape = "chained", sym_name = "mlp", target = "sm_90a", tile_rows = 64 : i64}

// CHECK-LABEL: func.func @main
// CHECK: "kitsune.queue"() {sym_name = "hidden", transport = "reg"} : () -> !kitsune.ring<tensor<128x256xbf16>, 1 : i64>
// CHECK: "kitsune.load"(%{{.+}}) : (tensor<1000x64xbf16>) -> tensor<128x64xbf16>
// CHECK: linalg.matmul {{.*}}outs(%{{.+}} : tensor<128x256xf32>)
// CHECK: {kind = "tensor", replicas = 8 : i64, role = 0 : i64, sym_name = "up"}
// CHECK: {kind = "tensor", replicas = 8 : i64, role = 0 : i64, sym_name = "down"}
// CHECK-NOT: cluster
// CHECK: {limit = "{{[A-Za-z0-9 ]+}}", predicted_us = {{[0-9.e+]+}} : f64, shape = "chained", sym_name = "mlp", target = "sm_90a", tile_rows = 128 : i64}
#same = affine_map<(m, n) -> (m, n)>
func.func @main(%x: tensor<1000x64xbf16>, %w0: tensor<256x64xbf16>, %w1: tensor<8x256xbf16>) -> tensor<1000x8xbf16> {
  %zero = arith.constant 0.0 : f32
  %p = "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "hidden"} : () -> !kitsune.ring<tensor<?x256xbf16>, 2 : i64>
    "kitsune.stage"() ({
      %tile = "kitsune.load"(%x) : (tensor<1000x64xbf16>) -> tensor<?x64xbf16>
      %c0 = arith.constant 0 : index
      %rows = tensor.dim %tile, %c0 : tensor<?x64xbf16>
      %e = tensor.empty(%rows) : tensor<?x256xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x256xf32>) -> tensor<?x256xf32>
      %s = linalg.matmul indexing_maps = [affine_map<(m,n,k)->(m,k)>, affine_map<(m,n,k)->(n,k)>, affine_map<(m,n,k)->(m,n)>] ins(%tile, %w0 : tensor<?x64xbf16>, tensor<256x64xbf16>) outs(%f : tensor<?x256xf32>) -> tensor<?x256xf32>
      %o = tensor.empty(%rows) : tensor<?x256xbf16>
      %h = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<?x256xf32>) outs(%o : tensor<?x256xbf16>) {
      ^bb0(%a: f32, %b: bf16):
        %r = arith.truncf %a : f32 to bf16
        linalg.yield %r : bf16
      } -> tensor<?x256xbf16>
      "kitsune.put"(%q, %h) : (!kitsune.ring<tensor<?x256xbf16>, 2 : i64>, tensor<?x256xbf16>) -> ()
    }) {kind = "tensor", sym_name = "up"} : () -> ()
    "kitsune.stage"() ({
      %t = "kitsune.get"(%q) : (!kitsune.ring<tensor<?x256xbf16>, 2 : i64>) -> tensor<?x256xbf16>
      %c0 = arith.constant 0 : index
      %rows = tensor.dim %t, %c0 : tensor<?x256xbf16>
      %e = tensor.empty(%rows) : tensor<?x8xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x8xf32>) -> tensor<?x8xf32>
      %s = linalg.matmul indexing_maps = [affine_map<(m,n,k)->(m,k)>, affine_map<(m,n,k)->(n,k)>, affine_map<(m,n,k)->(m,n)>] ins(%t, %w1 : tensor<?x256xbf16>, tensor<8x256xbf16>) outs(%f : tensor<?x8xf32>) -> tensor<?x8xf32>
      %o = tensor.empty(%rows) : tensor<?x8xbf16>
      %y = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<?x8xf32>) outs(%o : tensor<?x8xbf16>) {
      ^bb0(%a: f32, %b: bf16):
        %r = arith.truncf %a : f32 to bf16
        linalg.yield %r : bf16
      } -> tensor<?x8xbf16>
      "kitsune.store"(%y) {index = 0 : i64} : (tensor<?x8xbf16>) -> ()
    }) {kind = "tensor", sym_name = "down"} : () -> ()
  }) {sym_name = "mlp"} : () -> !kitsune.outputs
  %out = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<1000x8xbf16>
  return %out : tensor<1000x8xbf16>
}

// A tile too wide for the registers of a warpgroup is shared by the CTAs of a cluster, through distributed shared
// memory: replicas are whole clusters.

// CHECK-LABEL: func.func @cluster
// CHECK: transport = "dsmem"} : () -> !kitsune.ring<tensor<128x512xbf16>, 1 : i64>
// CHECK: {kind = "tensor", replicas = 16 : i64, role = 0 : i64, sym_name = "up"}
// CHECK: {cluster = 2 : i64, limit = "{{[A-Za-z0-9 ]+}}", predicted_us = {{[0-9.e+]+}} : f64, shape = "chained", sym_name = "wide"
func.func @cluster(%x: tensor<1000x64xbf16>, %w0: tensor<512x64xbf16>, %w1: tensor<64x512xbf16>) -> tensor<1000x64xbf16> {
  %zero = arith.constant 0.0 : f32
  %p = "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "hidden"} : () -> !kitsune.ring<tensor<?x512xbf16>, 2 : i64>
    "kitsune.stage"() ({
      %tile = "kitsune.load"(%x) : (tensor<1000x64xbf16>) -> tensor<?x64xbf16>
      %c0 = arith.constant 0 : index
      %rows = tensor.dim %tile, %c0 : tensor<?x64xbf16>
      %e = tensor.empty(%rows) : tensor<?x512xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x512xf32>) -> tensor<?x512xf32>
      %s = linalg.matmul indexing_maps = [affine_map<(m,n,k)->(m,k)>, affine_map<(m,n,k)->(n,k)>, affine_map<(m,n,k)->(m,n)>] ins(%tile, %w0 : tensor<?x64xbf16>, tensor<512x64xbf16>) outs(%f : tensor<?x512xf32>) -> tensor<?x512xf32>
      %o = tensor.empty(%rows) : tensor<?x512xbf16>
      %h = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<?x512xf32>) outs(%o : tensor<?x512xbf16>) {
      ^bb0(%a: f32, %b: bf16):
        %r = arith.truncf %a : f32 to bf16
        linalg.yield %r : bf16
      } -> tensor<?x512xbf16>
      "kitsune.put"(%q, %h) : (!kitsune.ring<tensor<?x512xbf16>, 2 : i64>, tensor<?x512xbf16>) -> ()
    }) {kind = "tensor", sym_name = "up"} : () -> ()
    "kitsune.stage"() ({
      %t = "kitsune.get"(%q) : (!kitsune.ring<tensor<?x512xbf16>, 2 : i64>) -> tensor<?x512xbf16>
      %c0 = arith.constant 0 : index
      %rows = tensor.dim %t, %c0 : tensor<?x512xbf16>
      %e = tensor.empty(%rows) : tensor<?x64xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x64xf32>) -> tensor<?x64xf32>
      %s = linalg.matmul indexing_maps = [affine_map<(m,n,k)->(m,k)>, affine_map<(m,n,k)->(n,k)>, affine_map<(m,n,k)->(m,n)>] ins(%t, %w1 : tensor<?x512xbf16>, tensor<64x512xbf16>) outs(%f : tensor<?x64xf32>) -> tensor<?x64xf32>
      %o = tensor.empty(%rows) : tensor<?x64xbf16>
      %y = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<?x64xf32>) outs(%o : tensor<?x64xbf16>) {
      ^bb0(%a: f32, %b: bf16):
        %r = arith.truncf %a : f32 to bf16
        linalg.yield %r : bf16
      } -> tensor<?x64xbf16>
      "kitsune.store"(%y) {index = 0 : i64} : (tensor<?x64xbf16>) -> ()
    }) {kind = "tensor", sym_name = "down"} : () -> ()
  }) {sym_name = "wide"} : () -> !kitsune.outputs
  %out = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<1000x64xbf16>
  return %out : tensor<1000x64xbf16>
}
