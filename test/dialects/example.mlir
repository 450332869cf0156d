// RUN: kitsune-opt %s --verify-roundtrip | filecheck %s

// CHECK: "kitsune.pipeline"()
// CHECK: "kitsune.queue"() {sym_name = "hidden"} : () -> !kitsune.ring<tensor<?x256xf32>, 2 : i64>
// CHECK: {kind = "tensor", sym_name = "up"}
// CHECK: {kind = "tensor", sym_name = "down"}
// CHECK: {sym_name = "mlp"} : () -> !kitsune.outputs
func.func @main(%x: tensor<1000x64xf32>, %w0: tensor<256x64xf32>, %w1: tensor<8x256xf32>) -> tensor<1000x8xf32> {
  %zero = arith.constant 0.0 : f32
  %p = "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "hidden"} : () -> !kitsune.ring<tensor<?x256xf32>, 2 : i64>
    "kitsune.stage"() ({
      %tile = "kitsune.load"(%x) : (tensor<1000x64xf32>) -> tensor<?x64xf32>
      %c0 = arith.constant 0 : index
      %rows = tensor.dim %tile, %c0 : tensor<?x64xf32>
      %e = tensor.empty(%rows) : tensor<?x256xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x256xf32>) -> tensor<?x256xf32>
      %h = linalg.matmul indexing_maps = [affine_map<(m,n,k)->(m,k)>, affine_map<(m,n,k)->(n,k)>, affine_map<(m,n,k)->(m,n)>] ins(%tile, %w0 : tensor<?x64xf32>, tensor<256x64xf32>) outs(%f : tensor<?x256xf32>) -> tensor<?x256xf32>
      "kitsune.put"(%q, %h) : (!kitsune.ring<tensor<?x256xf32>, 2 : i64>, tensor<?x256xf32>) -> ()
    }) {kind = "tensor", sym_name = "up"} : () -> ()
    "kitsune.stage"() ({
      %t = "kitsune.get"(%q) : (!kitsune.ring<tensor<?x256xf32>, 2 : i64>) -> tensor<?x256xf32>
      %c0 = arith.constant 0 : index
      %rows = tensor.dim %t, %c0 : tensor<?x256xf32>
      %e = tensor.empty(%rows) : tensor<?x8xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x8xf32>) -> tensor<?x8xf32>
      %y = linalg.matmul indexing_maps = [affine_map<(m,n,k)->(m,k)>, affine_map<(m,n,k)->(n,k)>, affine_map<(m,n,k)->(m,n)>] ins(%t, %w1 : tensor<?x256xf32>, tensor<8x256xf32>) outs(%f : tensor<?x8xf32>) -> tensor<?x8xf32>
      "kitsune.store"(%y) {index = 0 : i64} : (tensor<?x8xf32>) -> ()
    }) {kind = "tensor", sym_name = "down"} : () -> ()
  }) {sym_name = "mlp"} : () -> !kitsune.outputs
  %out = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<1000x8xf32>
  return %out : tensor<1000x8xf32>
}
